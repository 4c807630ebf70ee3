"""Find what a person told about themselves, in memories and in this window, and repeat it in their words."""

import re
from collections.abc import Iterable, Sequence

from rapport.builtin.language.words import ASKING_STEMS, find_phrase, gives_answer, is_question, sentences, terms
from rapport.builtin.phrases import PHRASES, Phrasebook, capitalise, clip, finish_sentence, quote
from rapport.builtin.prompt import Prompt, Turn

_PERSON = PHRASES["person"]
_NOT_NAMES = frozenset(_PERSON["not_names"].split())
_GIVEN_NAME = re.compile(r"\b(?:name is|call me) ([^\W\d_][\w'-]{0,30})", re.IGNORECASE)
_BARE_NAME = re.compile(r"\b[Ii](?:'m| am) ([A-Z][\w'-]{1,30})(?= and\b| from\b|[.,!;]|$)")
_THIRD_PERSON = ("The user's ", "The user ", "User's ", "User ")
_CONJUGATED = {"is": "are", "was": "were", "has": "have", "does": "do", "doesn't": "don't", "isn't": "aren't", "hasn't": "haven't"}  # fmt: skip
_MIN_SHARE = 0.6  # of a question's words, for a statement that answers it
_MAX_MEMORIES, _MAX_NEAR = 10, 2


def find_name(texts: Iterable[str]) -> str | None:
    """Return the name that the newest of the texts gives, if any does."""
    heads = (text[:500].replace("’", "'") for text in texts)
    matches = filter(None, (_GIVEN_NAME.search(head) or _BARE_NAME.search(head) for head in heads))
    names = [name for match in matches if (name := match.group(1).rstrip("'-")).lower() not in _NOT_NAMES]
    return capitalise(names[-1]) if names else None


def get_name(prompt: Prompt) -> str | None:
    """Return what the person who writes now is called, if they or the chat said so."""
    if prompt.last and prompt.last.speaker:
        return clip(prompt.last.speaker, 40)
    return find_name([*prompt.memories, *(turn.text for turn in prompt.turns if turn.role == "user")])


def is_about_self(question: str) -> bool:
    """Return True if a question is about the person who asks it."""
    return find_phrase(question, _PERSON["own_words"].split()) is not None


def recall(prompt: Prompt, question: str, book: Phrasebook) -> str | None:
    """Return an answer from what the person said or the memories hold; None if nothing fits the question."""
    if find_phrase(question, _PERSON["name_asked"]):
        name = get_name(prompt)
        return f"Your name is {name}." if name else book.pick(PHRASES["direct"]["no_name"])
    if find_phrase(question, _PERSON["everything"]):
        told = [tell_memory(memory) for memory in prompt.memories[:_MAX_MEMORIES]]
        return " ".join(["I remember this:", *told]) if told else None
    memories = [Turn("user", memory) for memory in prompt.memories]
    if (statement := find_statement(question, [*memories, *prompt.earlier])) is None:
        return None
    if statement in memories:
        return f"I remember this: {tell_memory(statement.text)}"
    return f"You said: {quote(statement.text, 160)}"


def tell_nearest_memories(prompt: Prompt, book: Phrasebook) -> str:
    """Return that nothing answers a question about the person, and the memories that come nearest to it."""
    not_told = book.pick(PHRASES["direct"]["not_told"])
    near = " ".join(tell_memory(memory) for memory in prompt.memories[:_MAX_NEAR])
    return f"{not_told} I do remember this: {near}" if near else not_told


def find_statement(question: str, turns: Sequence[Turn]) -> Turn | None:
    """Return the sentence that shares most words with a question, the newest of equals; None if it shares too few."""
    wanted = set(terms(question)) - ASKING_STEMS
    best, most = None, _MIN_SHARE
    for turn in turns:
        for sentence in sentences(turn.text)[:20]:
            found = wanted & set(terms(f"{turn.speaker or ''} {sentence}"))
            share = len(found) / len(wanted) if wanted and not is_question(sentence) else 0.0
            if share >= most and gives_answer(question, sentence) is not False:
                best, most = Turn("user", sentence, turn.speaker), share
    return best


def tell_memory(memory: str) -> str:
    """Return a note about the person as said to them: "The user lives in Porto." becomes "You live in Porto."."""
    text = finish_sentence(clip(memory, 200))
    prefix = next((prefix for prefix in _THIRD_PERSON if text.startswith(prefix)), None)
    if prefix is None:
        return capitalise(text)
    rest = text.removeprefix(prefix).replace(" their ", " your ")
    if prefix.endswith("'s "):
        return f"Your {rest}"
    verb, space, rest = rest.partition(" ")
    bare = f"{verb[:-3]}y" if verb.endswith("ies") else verb[:-2] if verb.endswith(("ches", "shes", "sses")) else verb
    bare = bare.removesuffix("s") if not bare.endswith("ss") else bare
    return f"You {_CONJUGATED.get(verb, bare)}{space}{rest}"
