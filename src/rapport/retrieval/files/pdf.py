"""Read PDFs as text: line by line, joined to paragraphs where the layout shows them."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, LimitReachedError

from rapport.retrieval.files.paragraphs import Line, join_pages
from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile

_MEANINGLESS_TITLE = re.compile(
    r"microsoft (word|powerpoint|excel)\b.*|untitled.*|\(?anonymous\)?|(document|slide|title|unnamed)\s*\d*"
    r"|.*\.(docx?|dotx?|indd|tex|dvi|qxd|pptx?|xlsx?|pdf|rtf|odt|html?|ps|txt)|(https?|file):.*|\W*",
    re.IGNORECASE | re.DOTALL,
)


def read(data: bytes, *, limit: int) -> tuple[str, str]:
    """Return the title, if the file has a usable one, and the text; an unreadable page is replaced by a remark."""
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise UnreadableFile(ReadFault.PASSWORD)
        return _read_title(reader), _read_text(reader, limit)
    except DependencyError as error:
        raise UnreadableFile(ReadFault.CIPHER) from error
    except LimitReachedError as error:
        raise UnreadableFile(ReadFault.BOMB) from error


def _read_title(reader: PdfReader) -> str:
    try:
        title = (reader.metadata.title if reader.metadata else None) or ""
    except Exception:  # noqa: BLE001 - broken metadata is no reason to refuse the pages
        return ""
    return "" if _MEANINGLESS_TITLE.fullmatch(title.strip()) else title


def _read_text(reader: PdfReader, limit: int) -> str:
    pages: list[list[Line]] = []
    length = failed = 0
    for number, page in enumerate(reader.pages, start=1):
        try:
            lines = _read_lines(page)
        except (UnreadableFile, DependencyError, LimitReachedError, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - one page that its author's software got wrong should not cost the others
            failed += 1
            lines = [Line(f"[Page {number} could not be read.]", None, 0.0)]
        pages.append(lines)
        length += sum(len(line.text) for line in lines)
        if length > limit:
            raise UnreadableFile(ReadFault.TOO_MUCH_TEXT)
    if failed == len(pages):
        raise UnreadableFile(ReadFault.DAMAGED)
    return join_pages(pages)


def _read_lines(page: Any) -> list[Line]:
    """Return the lines of a page with their vertical position, if it is known."""
    lines: list[Line] = []
    pieces: list[str] = []
    place: list[tuple[float, float]] = []

    def see(text: str, cm: list[float], tm: list[float], _font: Any, size: float) -> None:
        first, *further_lines = text.split("\n")
        _add(first, cm, tm, size)
        for line in further_lines:
            _end_line()
            _add(line, cm, tm, size)

    def _add(text: str, cm: list[float], tm: list[float], size: float) -> None:
        pieces.append(text)
        if text.strip() and not place:
            height = tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
            place.append((height, abs(size * (tm[3] or 1) * (cm[3] or 1))))

    def _end_line() -> None:
        text = " ".join("".join(pieces).split())
        height, size = place[0] if place else (None, 0.0)
        lines.append(Line(text, height, size))
        pieces.clear()
        place.clear()

    page.extract_text(visitor_text=see)
    _end_line()
    return lines
