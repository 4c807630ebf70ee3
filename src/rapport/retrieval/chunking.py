"""Notes cut into passages along their own structure: headings, paragraphs, list items, tables, sentences, words."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from rapport.domain.note import Chunk
from rapport.retrieval.outline import Block, Section, Shape, clip_heading, outline_of

TARGET_TOKENS = 150
"""The size up to which neighbours are joined: some 450 characters of English. A vector of more is about too many things."""
LOOSE_TOKENS = 200
"""The maximum size of a paragraph before it is cut."""
MAX_TOKENS = 240
"""The estimated maximum of any chunk: the bundled embedder reads 256 tokens, headings and all."""
TINY_TOKENS = 40
"""A line that introduces or ends something stays with it, even over the target."""
OVERLAP = 120
"""The number of characters of the passage before are repeated where a paragraph or a table is cut."""
LEAD_TOKENS = 45
"""The maximum for the title and the headings before an embedded text."""

_TARGET, _LOOSE, _MAX, _TINY, _LEAD = (
    10 * tokens for tokens in (TARGET_TOKENS, LOOSE_TOKENS, MAX_TOKENS, TINY_TOKENS, LEAD_TOKENS)
)


POINT_TOKENS = 8
"""A sentence of fewer says too little by itself, and is embedded with the next one."""
_POINT = 10 * POINT_TOKENS


class _Weights(dict[str, int]):
    """Tenths of a token that a character takes, after MiniLM's tokenizer on a sentence each of fifteen languages."""

    def __missing__(self, character: str) -> int:
        code = ord(character)
        if code < 0x80:
            weight = 3 if character.isalpha() or character.isspace() else 5 if character.isdigit() else 9
        elif code < 0x250 or 0x1E00 <= code < 0x1F00:
            weight = 6  # Latin with accents
        elif 0x1100 <= code < 0x1200 or 0xAC00 <= code < 0xD7B0:
            weight = 18  # Hangul, which the tokenizer takes apart into its letters
        else:
            weight = 10
        self[character] = weight
        return weight


_WEIGHTS = _Weights()

_SENTENCE_END = re.compile(
    # The look-behind lets a run of marks be tried once, from its start: a megabyte of dots stays linear.
    r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+(?=\s)|[。！？｡]++["'”’」』）]*+"""
)
_NO_END = re.compile(
    r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|Nr|vs|cf|e\.g|i\.e|etc|approx|Fig|Art|Abs|Inc|Ltd|Co|bzw|ca|z\.B|d\.h)\.$"
)
_LINE = re.compile(r"\S[^\n]*")
_WORD = re.compile(r"\S+")
_SOMETHING = re.compile(r"\S")


class _Piece(NamedTuple):
    """A stretch of the note that is not cut further."""

    start: int
    end: int
    joins: bool = True
    """True if it may be joined to what stands before it: not where a cut has been made on purpose."""
    lead: str = ""
    """A table's head, repeated before rows that have been cut off from it."""


class _Unit(NamedTuple):
    start: int
    end: int
    whole: bool
    """A sentence or a line, not a part of one."""


def chunks_of(text: str, *, title: str = "") -> list[Chunk]:
    """Return the passages of a note, in order: every word is in one, none is over `MAX_TOKENS`, and no sentence is cut that fits.

    A first heading that only repeats the title is not in the paths: the title stands beside every chunk anyway.
    """
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    measured = _Measured(source)
    return [chunk for section in outline_of(source, title=title) for chunk in _chunks_of(measured, section)]


def size_of(text: str) -> int:
    """About how many tokens a text has, rounded up; never wildly low, whatever the script."""
    return -(-_weight(text) // 10)


def make_embedding_text(title: str, chunk: Chunk, text: str) -> str:
    """Return what is embedded for some text of a chunk: where it stands, in a few words, and the text.

    Of a long path the innermost headings stay, and a title is left out whose words the headings say already.
    """
    said = set(_words(chunk.heading))
    names = [name for name in chunk.heading.split(" > ") if name]
    if not said.issuperset(_words(title)):
        names.insert(0, clip_heading(" ".join(title.split())))
    kept: list[str] = []
    room = _LEAD
    for name in reversed(names):
        room -= _weight(name)
        if kept and room < 0:
            break
        kept.insert(0, name)
    return f"{' > '.join(kept)}\n{text}" if kept else text


def points_of(chunk: Chunk) -> list[str]:
    """Return what a passage says, point by point: each is embedded for itself.

    A question is about one sentence more often than about a whole passage, whose vector is about everything in it.
    """
    found: list[str] = []
    for line in _spans(_LINE, chunk.text, 0, len(chunk.text)):
        for start, end in _sentences(chunk.text, *line):
            text = chunk.text[start:end].strip()
            if found and _weight(found[-1]) < _POINT:
                found[-1] = f"{found[-1]} {text}"
            else:
                found.append(text)
    if len(found) > 1 and _weight(found[-1]) < _POINT:
        last = found.pop()
        found[-1] = f"{found[-1]} {last}"
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _weight(text: str) -> int:
    return sum(map(_WEIGHTS.__getitem__, text))


class _Measured:
    """A text that can tell in constant time how much any stretch of it weighs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._before = array("Q", accumulate(map(_WEIGHTS.__getitem__, text), initial=0))

    def weight(self, start: int, end: int) -> int:
        return self._before[end] - self._before[start]

    def reach(self, start: int, end: int, limit: int) -> int:
        """Return how far from `start` the limit lasts: at least one character, at most to `end`."""
        low, high = start + 1, end
        while low < high:
            middle = (low + high + 1) // 2
            if self.weight(start, middle) <= limit:
                low = middle
            else:
                high = middle - 1
        return low


def _chunks_of(source: _Measured, section: Section) -> Iterator[Chunk]:
    heading = " > ".join(section.path)
    for piece in _join_pieces(source, [piece for block in section.blocks for piece in _pieces(source, block)]):
        text = source.text[piece.start : piece.end].strip()
        yield Chunk(heading, f"{piece.lead}\n{text}" if piece.lead else text)


# ---- joining what is small


def _join_pieces(source: _Measured, pieces: list[_Piece]) -> list[_Piece]:
    """Neighbours together up to the target; a tiny one with what follows it, and a tiny last one with what precedes."""
    joined: list[_Piece] = []
    for number, piece in enumerate(pieces, 1):
        if joined and _belongs(source, joined[-1], piece, last=number == len(pieces)):
            before = joined[-1]
            joined[-1] = _Piece(before.start, piece.end, before.joins, before.lead)
        else:
            joined.append(piece)
    return joined


def _belongs(source: _Measured, before: _Piece, piece: _Piece, *, last: bool) -> bool:
    if not piece.joins:
        return False
    together = source.weight(before.start, piece.end) + _weight(before.lead)
    if together <= _TARGET:
        return True
    if source.weight(before.start, before.end) <= _TINY:
        return together <= _MAX
    return last and source.weight(piece.start, piece.end) <= _TINY and together <= _LOOSE


# ---- cutting what is large


def _pieces(source: _Measured, block: Block) -> list[_Piece]:
    weight = source.weight(block.start, block.end)
    if weight <= (_LOOSE if block.shape is Shape.PROSE else _MAX):
        return [_Piece(block.start, block.end)]
    if block.shape is Shape.TABLE:
        return _rows(source, block)
    units = list(_units(source, block.start, block.end, prose=block.shape is Shape.PROSE))
    # Even parts rather than full ones and a scrap.
    goal = weight // max(2, round(weight / _TARGET))
    return _pack_units(source, units, goal=goal, overlap=block.shape is Shape.PROSE)


def _rows(source: _Measured, block: Block) -> list[_Piece]:
    """Return the rows in parts, each with the table's head before it, so that its cells still have names."""
    units = list(_units(source, block.start, block.end, prose=False))
    head = source.text[block.start : block.head].rstrip()
    pieces = _pack_units(source, units, goal=_TARGET, overlap=False)
    if not head or len(head) > OVERLAP:
        return pieces
    room = _MAX - _weight(head) - _WEIGHTS["\n"]
    return pieces[:1] + [
        _Piece(piece.start, piece.end, joins=False, lead=head if source.weight(piece.start, piece.end) <= room else "")
        for piece in pieces[1:]
    ]


def _pack_units(source: _Measured, units: list[_Unit], *, goal: int, overlap: bool) -> list[_Piece]:
    """Units one after another, as many to a piece as the goal allows."""
    pieces: list[_Piece] = []
    first = 0  # of the units of the piece at hand
    start = units[0].start  # of its text: earlier than its first unit where it repeats a sentence
    for number in range(1, len(units) + 1):
        if number < len(units) and source.weight(start, units[number].end) <= goal:
            continue
        pieces.append(_Piece(start, units[number - 1].end, joins=not pieces))
        if number < len(units):
            start = units[number].start
            if overlap and number - first > 1 and _repeats(source, units[number - 1], units[number]):
                start = units[number - 1].start
            first = number
    return pieces


def _repeats(source: _Measured, last: _Unit, following: _Unit) -> bool:
    """Return whether the last sentence of a passage is said again in the next one."""
    return last.whole and last.end - last.start <= OVERLAP and source.weight(last.start, following.end) <= _MAX


def _units(source: _Measured, start: int, end: int, *, prose: bool) -> Iterator[_Unit]:
    """Yield what stays whole: sentences (or lines); of one that is too long its lines, its words, and at last its characters."""
    for unit in _sentences(source.text, start, end) if prose else _spans(_LINE, source.text, start, end):
        if source.weight(*unit) <= _MAX:
            yield _Unit(*unit, whole=True)
            continue
        for line in _spans(_LINE, source.text, *unit):
            if source.weight(*line) <= _MAX:
                yield _Unit(*line, whole=prose)
            else:
                yield from _words_of(source, *line)


def _words_of(source: _Measured, start: int, end: int) -> Iterator[_Unit]:
    for first, last in _spans(_WORD, source.text, start, end):
        while source.weight(first, last) > _MAX:
            cut = source.reach(first, last, _TARGET)
            yield _Unit(first, cut, whole=False)
            first = cut
        yield _Unit(first, last, whole=False)


def _spans(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return (match.span() for match in pattern.finditer(text, start, end))


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _SENTENCE_END.finditer(text, start, end):
        stop = match.end()
        if stop >= end or _ends(text, match.start(), stop):
            if stop > start:
                yield start, stop
            start = _past_space(text, stop, end)
    if start < end:
        yield start, end


def _ends(text: str, mark: int, stop: int) -> bool:
    """Return whether a mark ends a sentence, and not an abbreviation or a number."""
    if text[mark] != ".":
        return True
    following = text[stop : stop + 12].lstrip()[:1]
    return not following.islower() and _NO_END.search(text, max(0, mark - 8), mark + 1) is None


def _past_space(text: str, position: int, end: int) -> int:
    match = _SOMETHING.search(text, position, end)
    return match.start() if match else end
