"""Rewrite text of people, notes and models so that it contains no citation when it is quoted, and Postgres can store it."""

from __future__ import annotations

import re
from collections.abc import Collection

from rapport.replies.citation_grammar import CLOSING, ID, LIST, OPENING, START, Inside, KnownIds, tag_state

_GAP = "[\u00ad\u180e\u200b-\u200f\u2060\ufeff]*+"
_SOURCES = re.compile(rf"(?<![^\s*_>#.!?\]-]){_GAP.join('source')}{_GAP}s?+[\s*_]*+(?P<colon>[:：])", re.IGNORECASE)


def defuse(text: str) -> str:
    """Return the text with round brackets instead of the brackets of tags."""
    characters = list(text)
    opened: list[tuple[int, int]] = []
    for position in _from_first_bracket(text):
        char = text[position]
        if char in OPENING:
            opened.append((position, START))
        elif char in CLOSING and opened and opened[-1][1] >= LIST:
            characters[opened.pop()[0]], characters[position] = "(", ")"
            _follow(opened, "(")  # the rewritten tag is part of the content of an outer one
        else:
            _follow(opened, char)
    return "".join(characters)


def defuse_ids(text: str, retrieved: Collection[str]) -> str:
    """Return the text without other citations of these ids: alone in brackets, or in a `Sources:` line.

    Each character stays in its place: brackets become round ones, and the colon of `Sources:` a comma.
    """
    if not retrieved:
        return text
    characters = list(text)
    known = KnownIds(retrieved)
    opened = -1
    inside = Inside()
    for position in _from_first_bracket(text):
        char = text[position]
        if char in OPENING:
            opened, inside = position, Inside()
        elif char in CLOSING:
            if opened >= 0 and inside.cites(known):
                characters[opened], characters[position] = "(", ")"
            opened = -1
        elif opened >= 0:
            inside = inside.read(char, known)
    lowered = {note_id.lower() for note_id in retrieved}
    has_id = any(word.lower() in lowered for word in ID.findall(text))
    return defuse_lines("".join(characters)) if has_id else "".join(characters)


def defuse_lines(text: str) -> str:
    """Return the text without the beginning of a citation line: the colon of `Sources:` becomes a comma."""
    characters = list(text)
    for match in _SOURCES.finditer(text):
        characters[match.start("colon")] = ","
    return "".join(characters)


def _from_first_bracket(text: str) -> range:
    """Return the positions from the first opening bracket on; none if there is no bracket."""
    first = min((position for bracket in OPENING if (position := text.find(bracket)) >= 0), default=len(text))
    return range(first, len(text))


def _follow(opened: list[tuple[int, int]], char: str) -> None:
    """Update the state of the innermost bracket. If it can't be a tag any more, no bracket around it can."""
    if not opened:
        return
    start, state = opened[-1]
    state = tag_state(state, char)
    if state < START:
        opened.clear()
    else:
        opened[-1] = (start, state)


def make_storable(text: str) -> str:
    """Return the text without NUL characters, and with a question mark for each half of a surrogate pair."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
