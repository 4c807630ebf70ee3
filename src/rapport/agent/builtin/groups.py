"""Being asked for a view of what others have just said."""

import re

from rapport.agent.builtin.phrasing import Phrasebook, capitalised, finished, quotable
from rapport.agent.builtin.questions import is_question
from rapport.agent.builtin.rules import asks_to_break_rules
from rapport.agent.builtin.subjects import options
from rapport.agent.builtin.window import Turn, Window
from rapport.agent.builtin.words import content_words

_ASKS_VIEW = re.compile(
    r"\b(?:what do you think|what'?s your (?:take|view|opinion|thought)|your thoughts|any thoughts|any ideas|thoughts|what do you say|"
    r"do you agree|can you help|what would you do|who(?:'s| is) right|wdyt|opinions?)\b[^.?!]{0,25}[\s?!.^]*$",
    re.IGNORECASE,
)
_ARROW = re.compile(r"[\^↑👆☝]")
_POINTS_UP = re.compile(r"^[\s^↑👆☝?!.]*$")

_ON_CHOICE = (
    "{who} So the choice is: {a}, or {b}. I take no side, being a program. What would tip the balance for you?",
    "{who} Two ways, then: {a}, or {b}. I have no view of my own on that. What matters most here?",
)
_ON_POINT = (
    "{who} I have no opinion of my own to add, but that seems to be the point to settle. What would settle it?",
    "{who} As a program I take no side. What speaks against it, as you see it?",
    "{who} That's where it stands, as far as I can see. What would you need to know to go on?",
)


def view(window: Window, text: str, book: Phrasebook) -> str | None:
    """An answer about the latest substantive message of the others; None if no view was asked for."""
    # "@bot" and "@bot ^" mean what stands above; in a direct chat only the arrow does.
    asked_bare = bool(_POINTS_UP.match(text)) and (_is_group(window) or bool(_ARROW.search(text)))
    if not asked_bare and not _ASKS_VIEW.search(text.strip()):
        return None
    points = _points(window)
    if not points:
        return None
    who = " ".join(points)
    if both := next((found for point in reversed(points) if (found := options(point))), None):
        return book.pick(_ON_CHOICE).format(who=who, a=both[0], b=both[1])
    return capitalised(book.pick(_ON_POINT).format(who=who))


def _points(window: Window) -> list[str]:
    """What is on the table: the message replied to, else the latest of up to two other people."""
    if window.anchor:
        return [f"You're pointing at this: “{finished(quotable(window.anchor, 160))}”"]
    asker = window.last.speaker if window.last else None
    latest: dict[str | None, Turn] = {}
    for turn in reversed(window.earlier):
        if _substantive(turn.text) and (turn.speaker != asker or not _is_group(window)):
            latest.setdefault(turn.speaker, turn)
        if len(latest) == 2:
            break
    return [_attributed(turn) for turn in reversed(latest.values())]


def _attributed(turn: Turn) -> str:
    quote = f"“{finished(capitalised(quotable(turn.text, 90)))}”"
    verb = "asked" if is_question(turn.text) else "said"
    return f"{quotable(turn.speaker, 40)} {verb}: {quote}" if turn.speaker else f"You {verb}: {quote}"


def _is_group(window: Window) -> bool:
    return len({turn.speaker for turn in window.turns if turn.role == "user" and turn.speaker}) > 1


def _substantive(text: str) -> bool:
    return (
        bool(content_words(text))
        and len(text.split()) >= 3
        and not _ASKS_VIEW.search(text.strip())
        and not asks_to_break_rules(text)
    )
