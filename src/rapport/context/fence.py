"""Quote text by others in a prompt: between markers that it can neither end nor imitate."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

MAX_ANCHOR_CHARACTERS = 1_500
"""The longest quotation of a replied-to message."""

# Invisible characters that change how text looks: bidirectional controls, invisible letters, control characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_ANCHOR_LIKE = "replyingtothisspecificmessage:"
_NOT_LETTERS = re.compile("[^a-z:]+")
# Characters that look like a letter of the sentence or like a colon, but that Unicode does not normalise to it.
_LETTERS = "\u0430\u0435\u043e\u0440\u0441\u0443\u0456\u0455\u04bb\u03bf\u03b9\u0261\u0131"
_COLONS = "\u02d0\u02f8\u0589\u05c3\u0703\u0704\u0903\u0a83\u16ec\u1803\u1809\u205a\u2236\u2982\ua4fd\ua789\ufe30"
_LOOKS_LIKE = str.maketrans(_LETTERS + _COLONS, "aeopcyishoigi" + ":" * len(_COLONS))
_SEPARATOR = "\x00"
"""Separates two texts; neither of them contains it."""
_ELLIPSIS_CHARACTERS = 40
"""The longest mark for omitted text."""
_NOT_IN_NAMES = frozenset('[](){}<>:;,|#`*_=~\\/"“”„‟«»‹›')


def escape_fence(text: str) -> str:
    """Return the text without markers that could end its fence."""
    return text.replace("<<<", "‹‹‹").replace(">>>", "›››")


def sanitize(text: str) -> str:
    """Return the text without the prompt's own markers, and without characters that hide or reorder text."""
    return sanitize_all([text])[0]


def sanitize_all(texts: Sequence[str]) -> list[str]:
    """Sanitize consecutive texts so that no marker begins in one and ends in another."""
    seen = (escape_fence(_UNSEEN.sub("", text)) for text in texts)
    return _defuse_anchor(_SEPARATOR.join(seen)).split(_SEPARATOR)


def _defuse_anchor(text: str) -> str:
    """Return the text without the colon of an anchor sentence, also if other or invisible characters are in between."""
    letters = _fold_letters(text)
    if _ANCHOR_LIKE not in letters:
        return text
    positions = [position for position, character in enumerate(text) for _ in _fold_character(character)]
    characters = list(text)
    start = letters.find(_ANCHOR_LIKE)
    while start >= 0:
        end = start + len(_ANCHOR_LIKE)
        characters[positions[end - 1]] = " (quoted)"
        start = letters.find(_ANCHOR_LIKE, end)
    return "".join(characters)


def _fold_letters(text: str) -> str:
    """Return the visible form of the text, as lower-case letters and colons only."""
    plain = unicodedata.normalize("NFKD", text.translate(_LOOKS_LIKE)).casefold().translate(_LOOKS_LIKE)
    return _NOT_LETTERS.sub("", plain)


_fold_character = lru_cache(maxsize=4_096)(_fold_letters)
"""The same for one character, cached."""


def fence(body: str, *, seed: str, label: str = "chat") -> str:
    """Return the text between two markers. Their code depends on the whole text, so the text cannot contain it."""
    tries = 0
    while (code := _hash_body(seed, tries, body)) in body:
        tries += 1
    return f"<<<{label} {code}\n{body}\n{label} {code}>>>"


def _hash_body(seed: str, tries: int, body: str) -> str:
    return blake2b(f"{seed}\n{tries}\n{body}".encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()


def build_anchor_sentence(words: str) -> str:
    """Return the sentence that quotes the replied-to message (CTX-3): one line, which the quotation cannot end early."""
    short = clip(" ".join(words.split()), MAX_ANCHOR_CHARACTERS)
    line = " ".join(sanitize(short).replace("'", "’").split())
    return f"User is replying to this specific message: '{line}'"


def indent(text: str) -> str:
    """Return the text with every line but the first indented: only a speaker begins a line, so no text can imitate one."""
    return "\n  ".join(text.splitlines())


def clip(text: str, limit: int) -> str:
    """Return at most that many characters: the beginning and the end, with a mark for the omitted text."""
    if len(text) <= limit:
        return text
    head, tail = (limit - _ELLIPSIS_CHARACTERS) * 2 // 3, (limit - _ELLIPSIS_CHARACTERS) // 3
    return f"{text[:head].rstrip()} […{len(text) - head - tail:,} characters left out…] {text[-tail:].lstrip()}"


def clean_name(name: str, *, limit: int = 40) -> str:
    """Return a name as one short run of words, without the prompt's markers. It may be empty."""
    seen = (" " if character in _NOT_IN_NAMES else character for character in unicodedata.normalize("NFKC", name))
    characters = (
        " " if _is_space(one) else one for one in seen if _is_space(one) or unicodedata.category(one)[0] != "C"
    )
    return " ".join("".join(characters).split())[:limit].strip()


def _is_space(character: str) -> bool:
    return character.isspace() or unicodedata.category(character)[0] == "Z"
