"""List the file formats that notes can be made from. A new format is one more entry here (docs/extending/a-note-format.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rapport.retrieval.files.document import NoteFormat
from rapport.retrieval.files.plain import find_markdown_title

FORMATS: Final[tuple[NoteFormat, ...]] = (
    NoteFormat("txt", "plain text", ("txt", "text")),
    NoteFormat("md", "Markdown", ("md", "markdown"), find_title=find_markdown_title),
    NoteFormat(
        "html",
        "a web page",
        ("html", "htm"),
        parser="rapport.retrieval.files.webpage",
        no_text="has no visible text in it. A page that is built by scripts has to be saved after it was shown.",
    ),
    NoteFormat(
        "pdf",
        "a PDF",
        ("pdf",),
        parser="rapport.retrieval.files.pdf",
        signatures=(b"%PDF-",),
        signature_within_bytes=1019,
        no_text="has no text in it: its pages may be scanned pictures. Run text recognition (OCR) on it and upload the result.",
    ),
    NoteFormat(
        "docx",
        "a Word document",
        ("docx",),
        parser="rapport.retrieval.files.word",
        signatures=(b"PK\x03\x04", b"PK\x05\x06"),
        encryption_mark="EncryptedPackage".encode("utf-16-le"),
        no_text="has no visible text in it. If its pages are pictures, run text recognition (OCR) on them first.",
    ),
)


def index_by_suffix(formats: Iterable[NoteFormat] = FORMATS) -> dict[str, NoteFormat]:
    """Return each format by each of its suffixes; raise ValueError if two formats claim the same one."""
    by_suffix: dict[str, NoteFormat] = {}
    for note_format in formats:
        for suffix in note_format.suffixes:
            if suffix in by_suffix:
                raise ValueError(f"Two note formats claim .{suffix}: {by_suffix[suffix].name} and {note_format.name}.")
            by_suffix[suffix] = note_format
    return by_suffix
