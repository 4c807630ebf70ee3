"""Lines as they were drawn on a page, put back together to the paragraphs they came from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_PARAGRAPH_GAP_RATIO = 1.35
"""Lines further apart than this many times the usual distance belong to different paragraphs."""
_FONT_SIZE_RATIO = 1.12
_MIN_GAPS = 8
"""A page with fewer lines says less about itself than the rest of the document does."""
_FULL_LINE_SHARE = 0.7
_MIN_WIDTH_CHARACTERS = 40
"""If no line is longer, they are the rows of a table or a list: nothing says that one goes on in the next."""

_BULLET = re.compile(r"[•‣▪●◦∙·■□–*-]\s+(?=\S)")
_NUMBERED = re.compile(r"\(?((\d{1,3}|[a-z])[.)]|\d{1,2}(\.\d{1,2})+)\s")
_LEADERS = re.compile(r"(?:\s?\.){4,}\s?")
"""The dots of a table of contents."""
_SENTENCE_END = (".", "!", "?", ":", ";", "”", '"', "。", "！", "？")
_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]++-[^\W\d_]+")
_LAST_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?=-$)")
_FIRST_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page."""

    text: str
    height: float | None
    """Its distance from the bottom of the page, if known."""
    size: float
    """The size of its letters; 0 if unknown."""


def join_pages(pages: list[list[Line]]) -> str:
    """Return the text of all pages, with blank lines between paragraphs; one that goes on over the turn of a page is one."""
    everywhere = _find_usual_gap([_measure_gaps(page) for page in pages])
    text: list[str] = []
    for page in pages:
        gaps = _measure_gaps(page)
        found = _join_lines(page, _find_usual_gap([gaps]) if len(gaps) >= _MIN_GAPS else everywhere)
        if text and found and found[0][:1].islower() and not text[-1].endswith(_SENTENCE_END):
            text[-1] = _append_line(text[-1], found.pop(0), is_full_line=True, compounds=set())
        text += found
    return "\n\n".join(text)


def _join_lines(lines: list[Line], usual: float | None) -> list[str]:
    """Return the paragraphs of one page. What may be a table keeps its lines; a word cut at a line's end is whole again."""
    compounds = {word.lower() for line in lines for word in _COMPOUND.findall(line.text)}
    width = _measure_width(lines)
    found: list[str] = []
    before: Line | None = None
    apart = True
    for line in lines:
        text = _LEADERS.sub(" … ", _BULLET.sub("- ", line.text, count=1) if _BULLET.match(line.text) else line.text)
        if not text:
            apart = True
            continue
        if apart or before is None or _starts_paragraph(before, line, usual):
            found.append(text)
        else:
            found[-1] = _append_line(
                found[-1], text, is_full_line=len(before.text) >= _FULL_LINE_SHARE * width, compounds=compounds
            )
        before, apart = line, False
    return [paragraph for one in found for paragraph in one.split("\n\n")]


def _measure_gaps(lines: list[Line]) -> list[float]:
    heights = [line.height for line in lines if line.text and line.height is not None]
    return [above - below for above, below in pairwise(heights) if above > below]


def _find_usual_gap(gaps: list[list[float]]) -> float | None:
    """Return how far apart the lines of a paragraph are: wherever there are paragraphs, a third of all lines is in one."""
    ordered = sorted(gap for page in gaps for gap in page)
    return ordered[len(ordered) // 3] if ordered else None


def _measure_width(lines: list[Line]) -> float:
    lengths = sorted(len(line.text) for line in lines if line.text)
    width = lengths[int(len(lengths) * 0.9)] if lengths else 0
    return width if width >= _MIN_WIDTH_CHARACTERS else float("inf")


def _starts_paragraph(above: Line, below: Line, usual: float | None) -> bool:
    """Return whether the page shows that a new paragraph begins."""
    if above.size and below.size and not 1 / _FONT_SIZE_RATIO < above.size / below.size < _FONT_SIZE_RATIO:
        return True
    if usual is None or above.height is None or below.height is None:
        return False
    gap = above.height - below.height
    return gap > _PARAGRAPH_GAP_RATIO * usual or gap < -usual / 2


def _append_line(text: str, line: str, *, is_full_line: bool, compounds: set[str]) -> str:
    """`line` put behind `text`, which it follows on the page without a visible gap."""
    if line.startswith("- ") or _NUMBERED.match(line):
        return f"{text}\n{line}"
    first, second = _LAST_WORD.search(text), _FIRST_WORD.match(line)
    if first and second:
        compound = f"{first.group()}-{second.group()}".lower() in compounds
        return text + line if compound or not line[0].islower() else text[:-1] + line
    if text.endswith("\u00ad"):
        return text[:-1] + line
    if is_full_line:
        return f"{text} {line}"
    ends = text.endswith(_SENTENCE_END) and not line[0].islower()
    return f"{text}\n\n{line}" if ends else f"{text}\n{line}"
