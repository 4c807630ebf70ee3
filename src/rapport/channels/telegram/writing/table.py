"""Draw a table in characters of one width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len

_MAX_PADDING_CHARACTERS = 8_192
"""Characters; a table that would take more than this, and more than four times its words, is drawn unaligned."""


def draw_table(rows: Sequence[Sequence[str]], alignments: Sequence[str]) -> str:
    """Return the rows, the first one the head, in aligned columns; one line each, without trailing blanks."""
    if not rows:
        return ""
    sizes = [[cell_len(cell, "latest") for cell in row] for row in rows]
    widths = [max(column) for column in zip_longest(*sizes, fillvalue=0)]
    if len(rows) * sum(widths) > max(_MAX_PADDING_CHARACTERS, 4 * sum(map(sum, sizes))):
        widths = [0] * len(widths)
    aligned = [*alignments, *[""] * (len(widths) - len(alignments))]
    lines = [
        " | ".join(_pad(*cell) for cell in zip(row, size, widths, aligned, strict=False)).rstrip()
        for row, size in zip(rows, sizes, strict=True)
    ]
    rule = "-+-".join("-" * max(width, 1) for width in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def _pad(text: str, size: int, width: int, alignment: str) -> str:
    missing = max(width - size, 0)
    before = {"right": missing, "center": missing // 2}.get(alignment, 0)
    return " " * before + text + " " * (missing - before)
