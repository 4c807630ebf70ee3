"""Being asked for a view of what others have just said."""

import re

from rapport.builtin.language.words import content_words
from rapport.builtin.phrasing import Phrasebook, capitalise, finish_sentence, quotable
from rapport.builtin.prompt_reader import Turn, Window
from rapport.builtin.question_kinds import is_question
from rapport.builtin.rules import asks_to_break_rules
from rapport.builtin.subjects import options

_ASKS_VIEW = re.compile(
    r"\b(?:what do you think|what'?s your (?:take|view|opinion|thought)|your thoughts|any thoughts|any ideas|thoughts|what do you say|"
    r"do you agree|can you help|what would you do|who(?:'s| is) right|wdyt|opinions?)\b[^.?!]{0,25}[\s?!.^]*$",
    re.IGNORECASE,
)
_SUMS_UP = re.compile(
    r"^\W*(?:(?:please|can you|could you|pls|would you)\s+)*(?:summari[sz]e|sum (?:(?:it|this|that|us|things) )?up|recap|tl;?dr|catch me up|bring me up to (?:speed|date)|"
    r"what did i miss|where (?:are|do) we (?:stand|at|now)?|what'?s (?:the status|going on|this about))\b[^.?!]{0,40}[\s?!.^]*$",
    re.IGNORECASE,
)
_WHATS_OPEN = re.compile(
    r"^\W*(?:so |and )?what(?:'s| is| are|s)?\b[^.?!]{0,20}\b(?:still |left )?(?:open|undecided|unanswered|unclear|missing|left|to decide|to do)\b[^.?!]{0,20}[\s?!.]*$",
    re.IGNORECASE,
)
_ARROW = re.compile(r"[\^↑👆☝]")
_POINTS_UP = re.compile(r"^[\s^↑👆☝?!.]*$")

_MOST_POINTS = 3

_ON_CHOICE = (
    "{who} So the choice is: {a}, or {b}. I take no side, being a program. What would tip the balance for you?",
    "{who} Two ways, then: {a}, or {b}. I have no view of my own on that. What matters most here?",
)
_ON_POINT = (
    "{who} I have no opinion of my own to add, but that seems to be the point to settle. What would settle it?",
    "{who} As a program I take no side. What speaks against it, as you see it?",
    "{who} That's where it stands, as far as I can see. What would you need to know to go on?",
)
# In a group nobody may come back to it: it says what is missing and asks for nothing.
_ON_CHOICE_THERE = (
    "{who} So the choice is: {a}, or {b}. I take no side, being a program: what matters most to you should tip the balance.",
    "{who} Two ways, then: {a}, or {b}. I have no view of my own. Missing to decide it: what speaks against each of them.",
)
_ON_POINT_THERE = (
    "{who} That's where it stands, as far as I can see. I have no opinion of my own; missing is what speaks against it.",
    "{who} That is all I know of it. I have no opinion of my own; missing is what there is to decide.",
)


def points_up(window: Window, text: str) -> bool:
    """Return whether a message only points at what stands above it: "@bot" and "@bot ^"; in a direct chat only the arrow does."""
    return bool(_POINTS_UP.match(text)) and (is_group(window) or window.anchor is not None or bool(_ARROW.search(text)))


def asks_view(text: str) -> bool:
    """Return whether a message asks what is thought of something that others said."""
    return bool(_ASKS_VIEW.search(text.strip()))


def asks_to_sum_up(text: str) -> bool:
    """Return whether a message wants to be told where the talk stands."""
    return bool(_SUMS_UP.match(text))


def asks_whats_open(text: str) -> bool:
    """Return whether a message asks what is left to answer or to decide."""
    return bool(_WHATS_OPEN.match(text))


def question_above(window: Window) -> str | None:
    """Return the question that somebody points at: the message replied to, else the latest that others asked."""
    if window.anchor:
        return window.anchor if is_question(window.anchor) else None
    asker = window.last.speaker if window.last else None
    told = [turn for turn in window.earlier if _asks(turn.text) or is_substantive(turn.text)][-_MOST_POINTS:]
    asked = [turn.text for turn in told if _asks(turn.text)]
    others = [turn.text for turn in told if _asks(turn.text) and turn.speaker != asker]
    return next(reversed(others or asked), None)


def view(window: Window, text: str, book: Phrasebook) -> str | None:
    """Return an answer about the latest substantive message of the others; None if no view was asked for."""
    if not points_up(window, text) and not asks_view(text):
        return None
    points = _points(window)
    if not points:
        return None
    who = " ".join(points)
    if both := next((found for point in reversed(points) if (found := options(point))), None):
        return book.pick(_ON_CHOICE_THERE if window.group else _ON_CHOICE).format(who=who, a=both[0], b=both[1])
    return capitalise(book.pick(_ON_POINT_THERE if window.group else _ON_POINT).format(who=who))


def _points(window: Window) -> list[str]:
    """Return what is on the table: the message replied to, else the latest of up to two other people, and the asker's own."""
    if window.anchor:
        return [f"You're pointing at this: “{finish_sentence(quotable(window.anchor, 160))}”"]
    asker = window.last.speaker if window.last else None
    latest: dict[str | None, Turn] = {}
    for turn in reversed(window.earlier):
        others = len(latest) - (asker in latest and is_group(window))
        if is_substantive(turn.text) and others < 2:
            latest.setdefault(turn.speaker, turn)
    return [_attribute(turn, asker) for turn in reversed(latest.values())]


def _attribute(turn: Turn, asker: str | None) -> str:
    quote = f"“{finish_sentence(capitalise(quotable(turn.text, 90)))}”"
    verb = "asked" if is_question(turn.text) else "said"
    name = quotable(turn.speaker, 40) if turn.speaker and turn.speaker != asker else "You"
    return f"{name} {verb}: {quote}"


def is_group(window: Window) -> bool:
    """Return whether several people talk here."""
    return window.group or len({turn.speaker for turn in window.turns if turn.role == "user" and turn.speaker}) > 1


def _asks(text: str) -> bool:
    return is_question(text) and not asks_view(text) and not asks_to_break_rules(text)


def is_substantive(text: str) -> bool:
    """Return whether a message says something that one could take up."""
    return (
        bool(content_words(text))
        and len(text.split()) >= 3
        and not _ASKS_VIEW.search(text.strip())
        and not asks_to_break_rules(text)
    )
