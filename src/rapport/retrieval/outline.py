"""Split a note into its structure: sections under headings, and in them paragraphs, list items, tables and fenced code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

HEADING_CHARACTERS = 80
"""Says what a heading may have in a path; a longer one is also the first text of its section, so that no word is lost."""
UNDERLINED_CHARACTERS = 120
"""A longer line above a row of dashes is a paragraph above a rule."""

_LINE = re.compile(r"\S[^\n]*")
_MARK = re.compile(r"(#{1,6})(?:\s|$)")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])\s")


class Shape(Enum):
    """Describe how a block may be cut."""

    PROSE = auto()
    CODE = auto()
    TABLE = auto()


class _Kind(Enum):
    TEXT = auto()
    HEADING = auto()
    UNDERLINE = auto()
    FENCE = auto()
    ITEM = auto()
    ROW = auto()


class Block(NamedTuple):
    """A paragraph, a list item, a table or a fence: where it starts and ends in the note."""

    start: int
    end: int
    shape: Shape = Shape.PROSE
    head: int = 0
    """Says where a table's head ends, if it has one."""


@dataclass(frozen=True, slots=True)
class Section:
    """Hold what stands between two headings, and the headings above it, outermost first."""

    path: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list["Block"])


def outline_of(text: str, *, title: str = "") -> list[Section]:
    """Return the sections of a note in order, each with something in it; a heading over nothing is its own text."""
    return _Outline(text, title).read()


def clip_heading(name: str) -> str:
    """Return a heading as it stands in a path."""
    return name if len(name) <= HEADING_CHARACTERS else name[: HEADING_CHARACTERS - 1].rstrip() + "…"


class _Line(NamedTuple):
    """A line that is not blank, without the white space around it."""

    start: int
    end: int
    kind: _Kind
    apart: bool
    """There is a blank line above it."""


class _Heading(NamedTuple):
    level: int
    name: str
    start: int
    end: int
    hidden: bool
    """It says what the title says, so paths go without it."""


class _Outline:
    def __init__(self, text: str, title: str) -> None:
        self._text = text
        self._lines = _lines_of(text)
        self._title = _words(title)
        self._above: list[_Heading] = []
        self._sections: list[Section] = [Section(())]

    def read(self) -> list[Section]:
        number = 0
        while number < len(self._lines):
            number = self._take(number)
        self._leave(0)
        return [section for section in self._sections if section.blocks]

    def _take(self, number: int) -> int:
        """Take in what begins at this line; says which line is next."""
        line = self._lines[number]
        if line.kind is _Kind.HEADING:
            return self._read_marked_heading(number)
        if line.kind is _Kind.FENCE:
            return self._fence(number)
        if line.kind is _Kind.UNDERLINE:
            return self._block(number, number + 1)  # a rule: there was no single line for it to underline
        if line.kind is _Kind.ROW or ("|" in self._get_line(number) and _is_delimiter(self._get_line(number + 1))):
            return self._table(number)
        return self._paragraph(number)

    def _get_line(self, number: int) -> str:
        """Return the text of a line; nothing if there is no such line."""
        if number >= len(self._lines):
            return ""
        line = self._lines[number]
        return self._text[line.start : line.end]

    def _goes_on(self, number: int) -> bool:
        """Return whether this line follows the one before it without a blank one between them."""
        return number < len(self._lines) and not self._lines[number].apart

    def _block(self, first: int, after: int, shape: Shape = Shape.PROSE, head: int = 0) -> int:
        block = Block(self._lines[first].start, self._lines[after - 1].end, shape, head)
        self._sections[-1].blocks.append(block)
        return after

    def _paragraph(self, number: int) -> int:
        after = number + 1
        while self._goes_on(after) and self._lines[after].kind is _Kind.TEXT:
            after += 1
        if after == number + 1 and self._is_underlined(number):
            self._enter(1 if self._get_line(after)[0] == "=" else 2, self._get_line(number), self._lines[number].start)
            return after + 1
        return self._block(number, after)

    def _is_underlined(self, number: int) -> bool:
        line = self._lines[number]
        return (
            line.kind is _Kind.TEXT
            and self._goes_on(number + 1)
            and self._lines[number + 1].kind is _Kind.UNDERLINE
            and line.end - line.start <= UNDERLINED_CHARACTERS
            and bool(_words(self._get_line(number)))
        )

    def _fence(self, number: int) -> int:
        """Up to the mark that closes it, or to the end."""
        opening = self._get_line(number)
        mark = opening[0]
        least = len(opening) - len(opening.lstrip(mark))
        after = number + 1
        while after < len(self._lines):
            text = self._get_line(after)
            after += 1
            if len(text) >= least and not text.strip(mark):
                break
        return self._block(number, after, Shape.CODE)

    def _table(self, number: int) -> int:
        after = number + 1
        while self._goes_on(after) and "|" in self._get_line(after):
            after += 1
        has_head = after > number + 1 and _is_delimiter(self._get_line(number + 1))
        return self._block(number, after, Shape.TABLE, self._lines[number + 1].end if has_head else 0)

    # ---- headings

    def _read_marked_heading(self, number: int) -> int:
        text = self._get_line(number)
        name = text.lstrip("#").strip()
        closed = name.rstrip("#")
        if closed != name and (not closed or closed[-1].isspace()):
            name = closed.rstrip()
        if not _words(name):
            return self._block(number, number + 1)
        level = len(text) - len(text.lstrip("#"))
        self._enter(level, name, self._lines[number].start + text.index(name, level))
        return number + 1

    def _enter(self, level: int, name: str, start: int) -> None:
        self._leave(level)
        end = start + len(name)
        hidden = level == 1 and len(self._sections) == 1 and not self._sections[0].blocks
        hidden = hidden and _words(name) == self._title
        self._above.append(_Heading(level, " ".join(name.split()), start, end, hidden))
        self._sections.append(Section(self._path()))
        if len(self._above[-1].name) > HEADING_CHARACTERS:
            self._sections[-1].blocks.append(Block(start, end))

    def _leave(self, level: int) -> None:
        """Close the headings of this level and below; one over nothing becomes a text under those above it."""
        if self._above and level <= self._above[-1].level and not self._sections[-1].blocks:
            last = self._above[-1]
            del self._above[-1]
            self._sections.append(Section(self._path(), [Block(last.start, last.end)]))
        while self._above and level <= self._above[-1].level:
            del self._above[-1]

    def _path(self) -> tuple[str, ...]:
        return tuple(clip_heading(heading.name) for heading in self._above if not heading.hidden)


def _lines_of(text: str) -> list[_Line]:
    lines: list[_Line] = []
    above = 0
    for match in _LINE.finditer(text):
        start = match.start()
        bare = match.group().rstrip()
        kind = _kind_of(bare)
        if kind is _Kind.HEADING and start - 1 - text.rfind("\n", above, start) > 3:
            kind = _Kind.TEXT  # set in so far, it is code or a part of a list
        lines.append(_Line(start, start + len(bare), kind, text.count("\n", above, start) > 1))
        above = start + len(bare)
    return lines


def _kind_of(bare: str) -> _Kind:
    first = bare[0]
    if first.isalpha():
        return _Kind.TEXT
    if first == "|":
        return _Kind.ROW
    if first == "#":
        return _Kind.HEADING if _MARK.match(bare) else _Kind.TEXT
    if _is_fence(bare):
        return _Kind.FENCE
    if len(bare) > 1 and first in "-=" and not bare.strip(first):
        return _Kind.UNDERLINE
    return _Kind.ITEM if _ITEM.match(bare) else _Kind.TEXT


def _is_fence(bare: str) -> bool:
    return bare.startswith("~~~") or (bare.startswith("```") and "`" not in bare.lstrip("`"))


def _is_delimiter(bare: str) -> bool:
    """Return the line under a table's head."""
    return "-" in bare and "|" in bare and not bare.strip("|:- \t")


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", name.casefold())
