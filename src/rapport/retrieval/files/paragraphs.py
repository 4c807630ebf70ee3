"""Join the lines of a page to paragraphs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_PARAGRAPH_GAP_RATIO = 1.35
"""Lines with more than this many times the usual distance belong to different paragraphs."""
_FONT_SIZE_RATIO = 1.12
_MIN_GAPS = 8
"""For a page with fewer gaps, the usual distance of the whole document is used."""
_FULL_LINE_SHARE = 0.7
_MIN_WIDTH_CHARACTERS = 40
"""If no line is longer, they may be rows of a table or a list, and are not joined."""

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
    """Return the text of all pages, with blank lines between paragraphs; a paragraph across two pages is joined."""
    document_gap = _find_usual_gap([_measure_gaps(page) for page in pages])
    text: list[str] = []
    for page in pages:
        gaps = _measure_gaps(page)
        paragraphs = _join_lines(page, _find_usual_gap([gaps]) if len(gaps) >= _MIN_GAPS else document_gap)
        if text and paragraphs and paragraphs[0][:1].islower() and not text[-1].endswith(_SENTENCE_END):
            text[-1] = _append_line(text[-1], paragraphs.pop(0), is_full_line=True, compounds=set())
        text += paragraphs
    return "\n\n".join(text)


def _join_lines(lines: list[Line], usual: float | None) -> list[str]:
    """Return the paragraphs of one page. A possible table keeps its lines; a hyphenated word is joined."""
    compounds = {word.lower() for line in lines for word in _COMPOUND.findall(line.text)}
    width = _measure_width(lines)
    blocks: list[str] = []
    before: Line | None = None
    is_new = True
    for line in lines:
        text = _LEADERS.sub(" … ", _BULLET.sub("- ", line.text, count=1) if _BULLET.match(line.text) else line.text)
        if not text:
            is_new = True
            continue
        if is_new or before is None or _starts_paragraph(before, line, usual):
            blocks.append(text)
        else:
            blocks[-1] = _append_line(
                blocks[-1], text, is_full_line=len(before.text) >= _FULL_LINE_SHARE * width, compounds=compounds
            )
        before, is_new = line, False
    return [paragraph for block in blocks for paragraph in block.split("\n\n")]


def _measure_gaps(lines: list[Line]) -> list[float]:
    heights = [line.height for line in lines if line.text and line.height is not None]
    return [upper - lower for upper, lower in pairwise(heights) if upper > lower]


def _find_usual_gap(gaps: list[list[float]]) -> float | None:
    """Return the usual distance of lines in a paragraph, assuming that a third of all lines is in paragraphs."""
    ordered = sorted(gap for page in gaps for gap in page)
    return ordered[len(ordered) // 3] if ordered else None


def _measure_width(lines: list[Line]) -> float:
    lengths = sorted(len(line.text) for line in lines if line.text)
    width = lengths[int(len(lengths) * 0.9)] if lengths else 0
    return width if width >= _MIN_WIDTH_CHARACTERS else float("inf")


def _starts_paragraph(previous: Line, line: Line, usual: float | None) -> bool:
    """Return True if the layout shows that a new paragraph begins."""
    if previous.size and line.size and not 1 / _FONT_SIZE_RATIO < previous.size / line.size < _FONT_SIZE_RATIO:
        return True
    if usual is None or previous.height is None or line.height is None:
        return False
    gap = previous.height - line.height
    return gap > _PARAGRAPH_GAP_RATIO * usual or gap < -usual / 2


def _append_line(text: str, line: str, *, is_full_line: bool, compounds: set[str]) -> str:
    """Return `text` with the line that follows it on the page without a visible gap."""
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
