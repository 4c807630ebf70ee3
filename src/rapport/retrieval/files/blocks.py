"""Build a text from blocks, so that headings, lists and tables keep their form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile

Shape: TypeAlias = Literal["paragraph", "heading", "item", "row", "code"]
_TIGHT = ("item", "row")
_MAX_CELL_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the document, as text."""

    shape: Shape
    text: str


@dataclass(slots=True)
class _Table:
    row: list[list[Block]] = field(default_factory=list[list[Block]])
    """The cells of the row being read, each with its blocks."""


class BlockWriter:
    """Collects a document from start to end; raises UnreadableFile when it is longer than `limit` characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = 0
        self._done: list[Block] = []
        self._tables: list[_Table] = []
        self._shape: Shape = "paragraph"
        self._level = 0
        self._lines: list[list[str]] = [[]]
        self.first_heading = ""

    def begin(self, shape: Shape = "paragraph", level: int = 0) -> None:
        """Start a block and end the open one. A paragraph at the start of a list item is the item itself."""
        if shape == "paragraph" and self._shape == "item" and not self._has_text():
            return
        self.end()
        self._shape, self._level = shape, level

    def write(self, text: str) -> None:
        """Add to the open block."""
        if self._shape == "code":
            first, *further_lines = text.split("\n")
            self._lines[-1].append(first)
            self._lines += [[line] for line in further_lines]
        else:
            self._lines[-1].append(text)

    def break_line(self) -> None:
        """Continue on a new line of the same block."""
        self._lines.append([])

    def end(self) -> None:
        """End the open block; a block without text is dropped."""
        text = self._render() if self._has_text() else ""
        if text:
            self._add(Block(self._shape, text))
        self._shape, self._level, self._lines = "paragraph", 0, [[]]

    def open_table(self) -> None:
        """Begin a table, which may be inside a cell of another one."""
        self.end()
        self._tables.append(_Table())

    def open_row(self) -> None:
        """Begin a row, and finish one that is still open in this table."""
        if not self._tables:
            self.open_table()
        self.close_row()

    def open_cell(self) -> None:
        """Begin a cell in the current row."""
        if not self._tables:
            self.open_table()
        self.end()
        self._tables[-1].row.append([])

    def close_row(self) -> None:
        """End the current row: as `a | b`, or block by block if the table is only layout."""
        self.end()
        if not self._tables:
            return
        cells, self._tables[-1].row = self._tables[-1].row, []
        if _is_layout(cells):
            for block in (block for cell in cells for block in cell):
                self._place(block)
        elif any(cells):
            self._place(Block("row", " | ".join(_join_cell(cell) for cell in cells).strip()))

    def close_table(self) -> None:
        """Finish the innermost table."""
        self.close_row()
        if self._tables:
            self._tables.pop()

    def to_text(self) -> str:
        """End everything that is open and return the whole document."""
        self.end()
        while self._tables:
            self.close_table()
        parts: list[str] = []
        for number, block in enumerate(self._done):
            if number:
                before = self._done[number - 1].shape
                parts.append("\n" if block.shape == before and before in _TIGHT else "\n\n")
            parts.append(block.text)
        return "".join(parts)

    def _has_text(self) -> bool:
        return any(piece.strip() for line in self._lines for piece in line)

    def _render(self) -> str:
        if self._shape == "code":
            lines = ["".join(line).rstrip() for line in self._lines]
            ticks = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
            fence = "`" * max(3, ticks + 1)
            return "\n".join([fence, *_strip_empty_lines(lines), fence])
        lines = [" ".join("".join(line).split()) for line in self._lines]
        if self._shape == "heading":
            title = " ".join(filter(None, lines))
            self.first_heading = self.first_heading or title
            return f"{'#' * min(max(self._level, 1), 6)} {title}"
        text = "\n".join(_strip_empty_lines(lines))
        if self._shape == "item":
            indent = "  " * min(self._level, 8)
            return f"{indent}- " + text.replace("\n", f"\n{indent}  ")
        return text

    def _add(self, block: Block) -> None:
        self._length += len(block.text)
        if self._length > self._limit:
            raise UnreadableFile(ReadFault.TOO_MUCH_TEXT)
        if self._tables and self._tables[-1].row:
            self._tables[-1].row[-1].append(block)
        else:
            # Captions are inside a table but in no cell: they belong to the text around the table.
            self._place(block)

    def _place(self, block: Block) -> None:
        outer = next((table.row for table in reversed(self._tables[:-1]) if table.row), None)
        (outer[-1] if outer else self._done).append(block)


def _is_layout(cells: list[list[Block]]) -> bool:
    filled = [cell for cell in cells if cell]
    return len(filled) == 1 or any(
        len(cell) > _MAX_CELL_BLOCKS or any(block.shape in ("heading", "code") for block in cell) for cell in filled
    )


def _join_cell(cell: list[Block]) -> str:
    return " ".join(" ".join(block.text.split()) for block in cell)


def _strip_empty_lines(lines: list[str]) -> list[str]:
    first = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    last = next((number for number in range(len(lines), first, -1) if lines[number - 1].strip()), first)
    return lines[first:last]
