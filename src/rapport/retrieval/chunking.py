"""Cut notes into passages along their structure: headings, paragraphs, list items, tables, sentences, words."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from rapport.domain.note import Chunk
from rapport.retrieval.outline import Block, Section, Shape, clip_heading, read_outline

TARGET_TOKENS = 150
"""The size up to which neighbours are joined: about 450 characters of English. The vector of a longer text is too vague."""
LOOSE_TOKENS = 200
"""The maximum size of a paragraph before it is cut."""
MAX_TOKENS = 240
"""The estimated maximum of any chunk: the bundled embedder reads 256 tokens, headings included."""
TINY_TOKENS = 40
"""A line of at most this size that introduces or ends a part stays with it, even above the target."""
OVERLAP = 120
"""The part of the previous passage that is repeated where a paragraph or a table is cut."""
LEAD_TOKENS = 45
"""The maximum for the title and the headings before an embedded text."""

_TARGET, _LOOSE, _MAX, _TINY, _LEAD = (
    10 * tokens for tokens in (TARGET_TOKENS, LOOSE_TOKENS, MAX_TOKENS, TINY_TOKENS, LEAD_TOKENS)
)


MIN_SENTENCE_TOKENS = 8
"""A shorter sentence says too little alone and is embedded with the next one."""
_POINT = 10 * MIN_SENTENCE_TOKENS


class _Weights(dict[str, int]):
    """Tenths of a token per character, measured with MiniLM's tokenizer on one sentence in each of fifteen languages."""

    def __missing__(self, character: str) -> int:
        code = ord(character)
        if code < 0x80:
            weight = 3 if character.isalpha() or character.isspace() else 5 if character.isdigit() else 9
        elif code < 0x250 or 0x1E00 <= code < 0x1F00:
            weight = 6  # Latin with accents
        elif 0x1100 <= code < 0x1200 or 0xAC00 <= code < 0xD7B0:
            weight = 18  # Hangul, which the tokenizer splits into letters
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
    """A part of the note that is not cut further."""

    start: int
    end: int
    joins: bool = True
    """True if it may be joined to the part before it; False after an intended cut."""
    lead: str = ""
    """A table's head, repeated before rows that were separated from it."""


class _Unit(NamedTuple):
    start: int
    end: int
    whole: bool
    """A sentence or a line, not a part of one."""


def split_chunks(text: str, *, title: str = "") -> list[Chunk]:
    """Return the passages of a note, in order: every word is in one, none is over `MAX_TOKENS`, and no sentence is cut that fits.

    A first heading that only repeats the title is not in the paths: every chunk has the title anyway.
    """
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    measured = _Measured(source)
    return [chunk for section in read_outline(source, title=title) for chunk in _chunks_of(measured, section)]


def estimate_size(text: str) -> int:
    """Return the estimated number of tokens of a text, rounded up; never much too low in any script."""
    return -(-_weight(text) // 10)


def make_embedding_text(title: str, chunk: Chunk, text: str) -> str:
    """Return the text to embed for a text of a chunk: title and headings, shortened, and the text.

    Of a long path the innermost headings stay. A title whose words are all in the headings is left out.
    """
    heading_words = set(_words(chunk.heading))
    names = [name for name in chunk.heading.split(" > ") if name]
    if not heading_words.issuperset(_words(title)):
        names.insert(0, clip_heading(" ".join(title.split())))
    headings: list[str] = []
    weight_left = _LEAD
    for name in reversed(names):
        weight_left -= _weight(name)
        if headings and weight_left < 0:
            break
        headings.insert(0, name)
    return f"{' > '.join(headings)}\n{text}" if headings else text


def split_sentences(chunk: Chunk) -> list[str]:
    """Return the sentences of a passage; each is embedded separately.

    A question is mostly about one sentence, while the vector of a whole passage mixes everything in it.
    """
    points: list[str] = []
    for line in _spans(_LINE, chunk.text, 0, len(chunk.text)):
        for start, end in _sentences(chunk.text, *line):
            text = chunk.text[start:end].strip()
            if points and _weight(points[-1]) < _POINT:
                points[-1] = f"{points[-1]} {text}"
            else:
                points.append(text)
    if len(points) > 1 and _weight(points[-1]) < _POINT:
        last = points.pop()
        points[-1] = f"{points[-1]} {last}"
    return points


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _weight(text: str) -> int:
    return sum(map(_WEIGHTS.__getitem__, text))


class _Measured:
    """A text that returns the weight of any part of it in constant time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._before = array("Q", accumulate(map(_WEIGHTS.__getitem__, text), initial=0))

    def weight(self, start: int, end: int) -> int:
        return self._before[end] - self._before[start]

    def reach(self, start: int, end: int, limit: int) -> int:
        """Return the end of the part from `start` that fits the limit: at least one character, at most to `end`."""
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


# ---- joining small parts


def _join_pieces(source: _Measured, pieces: list[_Piece]) -> list[_Piece]:
    """Join neighbours up to the target; a tiny part with the next one, and a tiny last part with the one before."""
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


# ---- cutting large parts


def _pieces(source: _Measured, block: Block) -> list[_Piece]:
    weight = source.weight(block.start, block.end)
    if weight <= (_LOOSE if block.shape is Shape.PROSE else _MAX):
        return [_Piece(block.start, block.end)]
    if block.shape is Shape.TABLE:
        return _rows(source, block)
    units = list(_units(source, block.start, block.end, is_prose=block.shape is Shape.PROSE))
    # Parts of equal size rather than full ones and a small rest.
    target = weight // max(2, round(weight / _TARGET))
    return _pack_units(source, units, target=target, overlap=block.shape is Shape.PROSE)


def _rows(source: _Measured, block: Block) -> list[_Piece]:
    """Return the rows in parts, each with the table's head before it, so that its cells still have names."""
    units = list(_units(source, block.start, block.end, is_prose=False))
    head = source.text[block.start : block.head].rstrip()
    pieces = _pack_units(source, units, target=_TARGET, overlap=False)
    if not head or len(head) > OVERLAP:
        return pieces
    weight_left = _MAX - _weight(head) - _WEIGHTS["\n"]
    return pieces[:1] + [
        _Piece(
            piece.start,
            piece.end,
            joins=False,
            lead=head if source.weight(piece.start, piece.end) <= weight_left else "",
        )
        for piece in pieces[1:]
    ]


def _pack_units(source: _Measured, units: list[_Unit], *, target: int, overlap: bool) -> list[_Piece]:
    """Return pieces of consecutive units, each as large as the target allows."""
    pieces: list[_Piece] = []
    first = 0  # the first unit of the current piece
    start = units[0].start  # the start of its text: before its first unit where a sentence is repeated
    for number in range(1, len(units) + 1):
        if number < len(units) and source.weight(start, units[number].end) <= target:
            continue
        pieces.append(_Piece(start, units[number - 1].end, joins=not pieces))
        if number < len(units):
            start = units[number].start
            if overlap and number - first > 1 and _repeats(source, units[number - 1], units[number]):
                start = units[number - 1].start
            first = number
    return pieces


def _repeats(source: _Measured, last: _Unit, following: _Unit) -> bool:
    """Return True if the last sentence of a passage is repeated in the next one."""
    return last.whole and last.end - last.start <= OVERLAP and source.weight(last.start, following.end) <= _MAX


def _units(source: _Measured, start: int, end: int, *, is_prose: bool) -> Iterator[_Unit]:
    """Yield units that are not cut: sentences or lines; a unit that is too long is split into lines, words or characters."""
    for unit in _sentences(source.text, start, end) if is_prose else _spans(_LINE, source.text, start, end):
        if source.weight(*unit) <= _MAX:
            yield _Unit(*unit, whole=True)
            continue
        for line in _spans(_LINE, source.text, *unit):
            if source.weight(*line) <= _MAX:
                yield _Unit(*line, whole=is_prose)
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
    """Return True if a mark ends a sentence, and not an abbreviation or a number."""
    if text[mark] != ".":
        return True
    following = text[stop : stop + 12].lstrip()[:1]
    return not following.islower() and _NO_END.search(text, max(0, mark - 8), mark + 1) is None


def _past_space(text: str, position: int, end: int) -> int:
    match = _SOMETHING.search(text, position, end)
    return match.start() if match else end
