"""Collect what a group has said that bears on a call: who said what, what the notes say, and what is unanswered."""

from collections.abc import Sequence
from itertools import pairwise

from rapport.builtin.facts import find_statement
from rapport.builtin.language.words import content_words, is_question, sentences, terms
from rapport.builtin.phrases import PHRASES, Phrasebook, clip, quote
from rapport.builtin.prompt import Prompt, Turn
from rapport.builtin.sources import BLEND_THRESHOLD, add_sources_line, answer_from_sources, find_related
from rapport.builtin.topics import breaks_rules

_GROUP = PHRASES["group"]
_VIEW_WORDS = frozenset(_GROUP["view_words"].split())
_OVERVIEW_WORDS = _VIEW_WORDS | frozenset(_GROUP["overview_words"].split())
_MAX_QUOTED, _MAX_CHARACTERS, _NEAR_MESSAGES = 5, 180, 6
_MATTER_THRESHOLD, _TALK_THRESHOLD = (
    0.25,
    0.08,
)  # shares of the matter and of the whole talk, for a passage of the notes


def answer_group(text: str, prompt: Prompt, book: Phrasebook) -> str:
    """Return an answer from the notes or the chat, else a digest of what bears on the call; ask nothing back (CTX-10)."""
    said = _find_statements(prompt)
    if not asks_for_view(text):
        return _answer_question(text, said, prompt, book)
    if not said and not prompt.anchor:
        return book.pick(_GROUP["silent"])
    if not prompt.anchor and not _VIEW_WORDS.issuperset(content_words(text)):
        return _list_lines(book.pick(_GROUP["overview"]), said[-_MAX_QUOTED:], prompt)
    return _digest(_find_matter(said, prompt), said, prompt, book)


def asks_for_view(text: str) -> bool:
    """Return True if a call has no question of its own: it asks about what stands above it."""
    return _OVERVIEW_WORDS.issuperset(content_words(text))


def _find_statements(prompt: Prompt) -> list[Turn]:
    """Return the messages of people that say something, without earlier calls of the agent."""
    calls = [turn for turn, following in pairwise(prompt.turns) if following.role == "assistant"]
    said = [turn for turn in prompt.earlier if turn not in calls and not breaks_rules(turn.text)]
    return [
        turn for turn in said if not asks_for_view(turn.text) or (len(turn.text.split()) > 2 and not _asks(turn.text))
    ]


def _answer_question(text: str, said: Sequence[Turn], prompt: Prompt, book: Phrasebook) -> str:
    if found := answer_from_sources(text, prompt.anchor or "", prompt.sources, threshold=BLEND_THRESHOLD):
        return found
    if statement := find_statement(text, said):
        return f"{_attribute(statement, prompt)}: {quote(statement.text, _MAX_CHARACTERS)}"
    near = [turn for turn in said if set(terms(text)) & set(terms(turn.text))][-_MAX_QUOTED:]
    return _list_lines(book.pick(_GROUP["found"]), near, prompt) if near else book.pick(_GROUP["nothing"])


def _find_matter(said: Sequence[Turn], prompt: Prompt) -> Turn | None:
    """Return the message that the call is about: the one replied to, else the question with most replies, the newest first."""
    if prompt.anchor:
        head = " ".join(prompt.anchor.split())[:40]
        replied_to = (turn for turn in said if " ".join(turn.text.split()).startswith(head))
        return next(replied_to, Turn("user", prompt.anchor))

    def rank(turn: Turn) -> int:
        following = said[said.index(turn) + 1 :][:_NEAR_MESSAGES]
        replies = sum(1 for later in following if later.replying_to and later.replying_to == turn.speaker)
        return replies + (1 if _is_asker(turn, prompt) else 0)

    return max((turn for turn in reversed(said) if _asks(turn.text)), key=rank, default=None)


def _digest(matter: Turn | None, said: Sequence[Turn], prompt: Prompt, book: Phrasebook) -> str:
    shown = _choose_related(matter, said)
    shown = [matter, *shown] if matter and matter not in said else shown
    talk = " ".join(turn.text for turn in shown).replace("?", ".")
    passages = find_related(matter.text if matter else "", prompt.sources, threshold=_MATTER_THRESHOLD)
    passages = passages or find_related(talk, prompt.sources, threshold=_TALK_THRESHOLD)
    parts = [_list_lines(book.pick(_GROUP["lead"]), shown, prompt)]
    if passages:
        notes = (f"{quote(one.text, _MAX_CHARACTERS)} [source: {one.source_id}]" for one in passages)
        parts.append(f"The notes say: {' '.join(notes)}")
    if matter and said and matter is said[-1] and _asks(matter.text):
        parts.append(_GROUP["unanswered"])
    elif open_questions := [turn for turn in shown if turn is not matter and _is_open(turn, said)]:
        newest = open_questions[-1]
        whose = "Your" if _is_asker(newest, prompt) else f"{clip(newest.speaker or 'Somebody', 40)}'s"
        parts.append(f"Still open: {whose} question {quote(sentences(newest.text)[-1], 90)}")
    return add_sources_line("\n\n".join(parts), [one.source_id for one in passages])


def _choose_related(matter: Turn | None, said: Sequence[Turn]) -> list[Turn]:
    """Return the matter and the messages that reply to it, share its words or stand near it, in the order of the chat."""
    if matter is None or matter not in said:
        return list(said[-_MAX_QUOTED:])
    start = said.index(matter)

    def score(place: int) -> float:
        turn = said[place]
        is_reply = place > start and turn.replying_to is not None and turn.replying_to == matter.speaker
        shared = len(set(terms(matter.text)) & set(terms(turn.text)))
        return shared + (2 if is_reply else 0) + 3 / abs(place - start)

    best = sorted((place for place in range(len(said)) if place != start), key=score, reverse=True)[:_MAX_QUOTED]
    return [said[place] for place in sorted([start, *best])]


def _asks(text: str) -> bool:
    return is_question(sentences(text)[-1]) if text.strip() else False


def _is_open(turn: Turn, said: Sequence[Turn]) -> bool:
    """Return True if nobody else has replied to a question, by a link or without any."""
    later = [one for one in said[said.index(turn) + 1 :] if one.speaker != turn.speaker]
    return _asks(turn.text) and all(one.replying_to not in (turn.speaker, None) for one in later)


def _list_lines(lead: str, turns: Sequence[Turn], prompt: Prompt) -> str:
    lines = (f"- {_attribute(turn, prompt)}: {quote(turn.text, _MAX_CHARACTERS)}" for turn in turns)
    return "\n".join([lead, "", *lines])


def _attribute(turn: Turn, prompt: Prompt) -> str:
    name = "You" if _is_asker(turn, prompt) else clip(turn.speaker or "Somebody", 40)
    return f"{name} {'asked' if _asks(turn.text) else 'said'}"


def _is_asker(turn: Turn, prompt: Prompt) -> bool:
    return turn.speaker is not None and prompt.last is not None and turn.speaker == prompt.last.speaker
