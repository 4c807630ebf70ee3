"""Check texts from outside before they are stored."""

from __future__ import annotations

import unicodedata

from rapport.domain.errors import InvalidInput, TooLarge

_CONTROL_CATEGORIES = frozenset({"Cc", "Zl", "Zp"})
_DIRECTIONS = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""Embeddings, overrides and isolates: text after them may be shown in another order than it has."""


def check_text(text: str, *, what: str, limit: int) -> str:
    """Return `text` if it can be stored and sent unchanged; raise InvalidInput with a sentence for the sender otherwise."""
    if len(text) > limit:
        raise TooLarge(f"`{what}` has {len(text):,} characters; the limit is {limit:,}.")
    if "\x00" in text:
        raise InvalidInput(f"`{what}` holds a NUL character, which can't be stored. Remove it and send again.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"`{what}` holds half of a surrogate pair at position {error.start}: it isn't valid Unicode text."
        ) from error
    return text


def is_plain_line(text: str) -> bool:
    """Return True if the text has no line break, no control character, and none that changes the direction of text."""
    return not any(
        unicodedata.category(character) in _CONTROL_CATEGORIES or character in _DIRECTIONS for character in text
    )


def has_visible_text(text: str) -> bool:
    """Return True if the text has a visible character."""
    return any(not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf") for character in text)
