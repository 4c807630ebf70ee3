"""Split a note into its structure: sections under headings, and in them paragraphs, list items, tables and fenced code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

HEADING_CHARACTERS = 80
"""The maximal length of a heading in a path. A longer one is also the first text of its section, so that no word is lost."""
UNDERLINED_CHARACTERS = 120
"""A longer line above a row of dashes is no heading but a paragraph above a rule."""

_LINE = re.compile(r"\S[^\n]*")
_MARK = re.compile(r"(#{1,6})(?:\s|$)")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])\s")


class Shape(Enum):
    """How a block may be cut."""

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
    """The end of a table's head, if it has one."""


@dataclass(frozen=True, slots=True)
class Section:
    """The blocks between two headings, and the headings above them, outermost first."""

    path: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list["Block"])


def read_outline(text: str, *, title: str = "") -> list[Section]:
    """Return the non-empty sections of a note in order; a heading without content becomes a text."""
    return _Outline(text, title).read()


def clip_heading(name: str) -> str:
    """Return a heading, shortened for a path."""
    return name if len(name) <= HEADING_CHARACTERS else name[: HEADING_CHARACTERS - 1].rstrip() + "…"


class _Line(NamedTuple):
    """A line that is not blank, without the white space around it."""

    start: int
    end: int
    kind: _Kind
    apart: bool
    """True if there is a blank line above it."""


class _Heading(NamedTuple):
    level: int
    name: str
    start: int
    end: int
    hidden: bool
    """True if it repeats the title, so that paths leave it out."""


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
        """Read the block or heading that begins at this line; return the number of the next line."""
        line = self._lines[number]
        if line.kind is _Kind.HEADING:
            return self._read_marked_heading(number)
        if line.kind is _Kind.FENCE:
            return self._fence(number)
        if line.kind is _Kind.UNDERLINE:
            return self._block(number, number + 1)  # a rule: no single line above it
        if line.kind is _Kind.ROW or ("|" in self._get_line(number) and _is_delimiter(self._get_line(number + 1))):
            return self._table(number)
        return self._paragraph(number)

    def _get_line(self, number: int) -> str:
        """Return the text of a line; an empty string if there is no such line."""
        if number >= len(self._lines):
            return ""
        line = self._lines[number]
        return self._text[line.start : line.end]

    def _goes_on(self, number: int) -> bool:
        """Return True if this line follows the one before it without a blank line."""
        return number < len(self._lines) and not self._lines[number].apart

    def _block(self, first: int, end: int, shape: Shape = Shape.PROSE, head: int = 0) -> int:
        block = Block(self._lines[first].start, self._lines[end - 1].end, shape, head)
        self._sections[-1].blocks.append(block)
        return end

    def _paragraph(self, number: int) -> int:
        end = number + 1
        while self._goes_on(end) and self._lines[end].kind is _Kind.TEXT:
            end += 1
        if end == number + 1 and self._is_underlined(number):
            self._enter(1 if self._get_line(end)[0] == "=" else 2, self._get_line(number), self._lines[number].start)
            return end + 1
        return self._block(number, end)

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
        """Read fenced code up to the closing mark, or to the end of the note."""
        opening = self._get_line(number)
        mark = opening[0]
        least = len(opening) - len(opening.lstrip(mark))
        end = number + 1
        while end < len(self._lines):
            text = self._get_line(end)
            end += 1
            if len(text) >= least and not text.strip(mark):
                break
        return self._block(number, end, Shape.CODE)

    def _table(self, number: int) -> int:
        end = number + 1
        while self._goes_on(end) and "|" in self._get_line(end):
            end += 1
        has_head = end > number + 1 and _is_delimiter(self._get_line(number + 1))
        return self._block(number, end, Shape.TABLE, self._lines[number + 1].end if has_head else 0)

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
        repeats_title = level == 1 and len(self._sections) == 1 and not self._sections[0].blocks
        repeats_title = repeats_title and _words(name) == self._title
        self._above.append(_Heading(level, " ".join(name.split()), start, end, repeats_title))
        self._sections.append(Section(self._path()))
        if len(self._above[-1].name) > HEADING_CHARACTERS:
            self._sections[-1].blocks.append(Block(start, end))

    def _leave(self, level: int) -> None:
        """Close the headings of this level and below; one without content becomes a text below its parents."""
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
            kind = _Kind.TEXT  # with this indent it is code or a part of a list
        lines.append(_Line(start, start + len(bare), kind, text.count("\n", above, start) > 1))
        above = start + len(bare)
    return lines


def _kind_of(text: str) -> _Kind:
    first = text[0]
    if first.isalpha():
        return _Kind.TEXT
    if first == "|":
        return _Kind.ROW
    if first == "#":
        return _Kind.HEADING if _MARK.match(text) else _Kind.TEXT
    if _is_fence(text):
        return _Kind.FENCE
    if len(text) > 1 and first in "-=" and not text.strip(first):
        return _Kind.UNDERLINE
    return _Kind.ITEM if _ITEM.match(text) else _Kind.TEXT


def _is_fence(text: str) -> bool:
    return text.startswith("~~~") or (text.startswith("```") and "`" not in text.lstrip("`"))


def _is_delimiter(text: str) -> bool:
    """Return True if it is the line below a table's head."""
    return "-" in text and "|" in text and not text.strip("|:- \t")


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", name.casefold())
