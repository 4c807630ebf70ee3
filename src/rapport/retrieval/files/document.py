"""What a file becomes, what it may cost, and what its name is good for."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["txt", "md", "html", "pdf", "docx"]

EXTENSIONS: Final[dict[str, Kind]] = {
    "txt": "txt",
    "text": "txt",
    "md": "md",
    "markdown": "md",
    "html": "html",
    "htm": "html",
    "pdf": "pdf",
    "docx": "docx",
}
MAX_TITLE = 200
_MAX_SHOWN = 60
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text, with headings as `#` lines, list items as `- ` lines and table rows as `a | b`."""

    title: str
    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading one file may cost."""

    seconds: float = 20.0
    memory_mb: int = 512
    """Address space of the process that reads it."""
    max_characters: int = 500_000
    max_bytes: int = 20_000_000


@dataclass(frozen=True, slots=True)
class FileName:
    """The harmless parts of a name that somebody else chose."""

    stem: str
    kind: Kind | None
    shown: str
    """For error texts: one short line without anything invisible."""

    @classmethod
    def of(cls, name: str) -> FileName:
        """Only the last component counts, so a path leads nowhere."""
        last = one_line(re.split(r"[/\\]", name[-5000:])[-1], limit=5000)
        stem, dot, extension = last.rpartition(".")
        shown = last if len(last) <= _MAX_SHOWN else f"{last[: _MAX_SHOWN - 16]}…{last[-15:]}"
        return cls(
            stem=one_line(stem if dot else last),
            kind=EXTENSIONS.get(extension.lower()) if dot else None,
            shown=shown or "the file",
        )


def one_line(text: str, *, limit: int = MAX_TITLE) -> str:
    """The text on one line of at most `limit` characters, without control, direction and unassigned characters."""
    kept = (
        " " if character.isspace() else character
        for character in text[: limit * 10]
        if character.isspace() or character in _JOINERS or not unicodedata.category(character).startswith("C")
    )
    line = " ".join("".join(kept).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
