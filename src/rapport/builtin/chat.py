"""Talk in a direct chat: greet, say what this is, repeat what was said, and ask on; without pretending to understand."""

from rapport.builtin.facts import find_name, get_name, is_about_self, recall, tell_nearest_memories
from rapport.builtin.language.words import content_words, is_question, sentences, words
from rapport.builtin.phrases import PHRASES, Phrasebook, capitalise, quote
from rapport.builtin.prompt import Prompt
from rapport.builtin.sources import BLEND_THRESHOLD, answer_from_sources
from rapport.builtin.topics import find_options, find_small_talk, has_bad_news

_DIRECT = PHRASES["direct"]
_GREETING = PHRASES["greeting"]
_GREETING_WORDS = frozenset(_GREETING["words"].split())
_GREETING_FOLLOWERS = _GREETING_WORDS | frozenset(_GREETING["followers"].split())
_ORDERS = frozenset(_DIRECT["orders"].split())
_POLITE = frozenset(_DIRECT["polite"].split())
_MAX_KEYWORDS = 4  # words of a message that is read as a search for them


def make_small_talk(text: str, prompt: Prompt, book: Phrasebook) -> str | None:
    """Return the reply to a greeting, thanks, a goodbye or a question about the model; None for anything with content."""
    if not words(text):
        return book.pick(_DIRECT["empty"])
    if not drop_greeting(text):
        name = get_name(prompt)
        return book.pick(_GREETING["hello"], name=f" {name}" if name else "")
    replies = find_small_talk("what can you do" if words(text) in (["help"], ["start"]) else text)
    return book.pick(replies) if replies else None


def drop_greeting(text: str) -> str:
    """Return the text without a greeting at its beginning."""
    said = text.split()
    if not said or said[0].lower().strip(",.!–") not in _GREETING_WORDS:
        return text.strip()
    is_rest = (word.lower().strip(",.!–") not in _GREETING_FOLLOWERS for word in said)
    return " ".join(said[next((place for place, rest in enumerate(is_rest) if rest), len(said)) :])


def talk(text: str, prompt: Prompt, book: Phrasebook) -> str:
    """Return the reply to a message of a direct chat: from what is known, else honestly without, else a question back."""
    if options := find_options(text):
        return book.pick(_DIRECT["options"], A=capitalise(options[0]), b=options[1])
    asked = next((one for one in reversed(sentences(text)) if is_question(one)), None)
    if known := _answer(asked, text, prompt, book):
        return known
    first = next((word for word in words(text[:80]) if word not in _POLITE), "")
    if first in _ORDERS:
        return book.pick(_DIRECT["cannot"])
    if asked is None:
        return _continue(text, book)
    if prompt.sources:
        return book.pick(PHRASES["sources"]["not_covered"])
    if is_about_self(asked):
        return tell_nearest_memories(prompt, book)
    return book.pick(_DIRECT["unknown"])


def _answer(asked: str | None, text: str, prompt: Prompt, book: Phrasebook) -> str | None:
    """Return an answer from the person's own words or the notes, if the message asks for one."""
    if asked and is_about_self(asked) and (known := recall(prompt, asked, book)):
        return known
    is_search = len(words(text)) <= _MAX_KEYWORDS and not is_about_self(text)
    if not asked and not is_search:
        return None
    earlier = prompt.earlier[-1].text if prompt.earlier else ""
    found = answer_from_sources(text, earlier, prompt.sources, threshold=BLEND_THRESHOLD)
    return found or (recall(prompt, asked, book) if asked else None)


def _continue(text: str, book: Phrasebook) -> str:
    """Return a short reply that quotes what the person said, and one question."""
    if has_bad_news(text):
        return book.pick(_DIRECT["bad_news"])
    if not content_words(text):
        return book.pick(_DIRECT["short"])
    stated = [one for one in sentences(text) if content_words(one)]
    reply = book.pick(_DIRECT["statement"], said=quote(stated[-1], 160))
    name = find_name([text])
    return f"{book.pick(_GREETING['met'], name=name)} {reply}" if name else reply
