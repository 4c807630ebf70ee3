"""Make readable ids for notes from the name of a file or the title of a text."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from rapport.retrieval.files.registry import index_by_suffix

MAX_ID_CHARACTERS = 60

_SUFFIXES = "|".join(map(re.escape, index_by_suffix()))
_FILE = re.compile(rf"(?:.*[/\\])?([^/\\]*)\.(?:{_SUFFIXES})", re.IGNORECASE | re.DOTALL)
# Letters that Unicode does not split into an ASCII letter and a mark; casefolding has already turned `ß` into `ss`.
_LATIN = str.maketrans({"ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_APOSTROPHES = re.compile("['’`]")


def make_note_id(name: str) -> str:
    """Return an id of `[A-Za-z0-9_-]`, 1 to 60 characters, the same for the same name, with no `-` at its ends."""
    file = _FILE.fullmatch(name)
    words = (file.group(1) if file else name).casefold().translate(_LATIN)
    ascii_only = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", words)).encode("ascii", "ignore").decode()
    readable = re.sub(r"[^a-z0-9_]+", "-", ascii_only.casefold()).strip("-_")[:MAX_ID_CHARACTERS].strip("-_")
    return readable or f"note-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
