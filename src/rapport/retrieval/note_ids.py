"""Readable ids for notes, derived from what a file or a text is called."""

from __future__ import annotations

import hashlib
import re
import unicodedata

MAX_LENGTH = 60

_FILE = re.compile(r"(?:.*[/\\])?([^/\\]*)\.(?:txt|text|md|markdown|html?|pdf|docx)", re.IGNORECASE | re.DOTALL)
# Letters that Unicode does not take apart into an ASCII letter and a mark; casefolding has already made `ß` to `ss`.
_LATIN = str.maketrans({"ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_APOSTROPHES = re.compile("['’`]")


def readable_id(name: str) -> str:
    """An id of `[A-Za-z0-9_-]`, 1 to 60 characters, the same for the same name, with no `-` at its ends."""
    file = _FILE.fullmatch(name)
    words = (file.group(1) if file else name).casefold().translate(_LATIN)
    ascii_only = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", words)).encode("ascii", "ignore").decode()
    readable = re.sub(r"[^a-z0-9_]+", "-", ascii_only.casefold()).strip("-_")[:MAX_LENGTH].strip("-_")
    return readable or f"note-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
