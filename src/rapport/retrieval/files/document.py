"""Define the result of reading a file, the limits of reading it, the formats, and safe file names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

MAX_TITLE_CHARACTERS = 200
_MAX_SHOWN_CHARACTERS = 60
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text, with headings as `#` lines, list items as `- ` lines and table rows as `a | b`."""

    title: str
    text: str
    format_name: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of reading one file."""

    seconds: float = 20.0
    memory_mb: int = 512
    """Address space of the process that reads it."""
    max_characters: int = 500_000
    max_bytes: int = 20_000_000


@dataclass(frozen=True, slots=True)
class NoteFormat:
    """A file format that notes can be made from."""

    name: str
    """The suffix that the stored file name gets; the first of `suffixes`."""
    label: str
    """The format in a sentence: "a Word document"."""
    suffixes: tuple[str, ...]
    """The suffixes of its files, in lower case and without the dot."""
    parser: str | None = None
    """The module that reads it, in a limited child process; None for plain text, which the server decodes itself."""
    find_title: Callable[[str], str] | None = None
    """Finds a title in plain text. A parser returns the title itself."""
    signatures: tuple[bytes, ...] = ()
    """The first bytes of its files; empty for a text format, which may begin with anything but another format's."""
    signature_within_bytes: int = 0
    """The largest offset at which a signature may begin."""
    encryption_mark: bytes = b""
    """Bytes that are in an encrypted file of this format only, where encryption hides the signature."""
    no_text: str = "has no visible text in it."
    """The end of the sentence that refuses a file without text."""

    def has_signature(self, data: bytes) -> bool:
        """Return True if one of the format's signatures is at the beginning of the file."""
        return any(
            data.find(signature, 0, len(signature) + self.signature_within_bytes) >= 0 for signature in self.signatures
        )


@dataclass(frozen=True, slots=True)
class FileName:
    """The safe parts of a file name from outside."""

    stem: str
    suffix: str
    """In lower case and without the dot; empty if there is none."""
    shown: str
    """For error texts: one short line without invisible characters."""

    @classmethod
    def of(cls, name: str) -> FileName:
        """Return the parts of the last component only, so that a path has no effect."""
        last = fit_on_one_line(re.split(r"[/\\]", name[-5000:])[-1], limit=5000)
        stem, dot, suffix = last.rpartition(".")
        is_short = len(last) <= _MAX_SHOWN_CHARACTERS
        short_name = last if is_short else f"{last[: _MAX_SHOWN_CHARACTERS - 16]}…{last[-15:]}"
        return cls(
            stem=fit_on_one_line(stem if dot else last),
            suffix=suffix.lower() if dot else "",
            shown=short_name or "the file",
        )


def fit_on_one_line(text: str, *, limit: int = MAX_TITLE_CHARACTERS) -> str:
    """Return the text on one line of at most `limit` characters, without control, direction and unassigned characters."""
    visible = (
        " " if character.isspace() else character
        for character in text[: limit * 10]
        if character.isspace() or character in _JOINERS or not unicodedata.category(character).startswith("C")
    )
    line = " ".join("".join(visible).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
