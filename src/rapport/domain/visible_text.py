"""Write characters that nobody sees as their numbers, where a person decides by what a text shows."""

from __future__ import annotations

import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"
"""Characters without a shape of their own that scripts and emojis need."""
_LINE_ENDS: Final = ("Zl", "Zp")


def make_visible(text: str) -> str:
    """Return the text with every character that shows nothing, or turns the text around it, written as its number."""
    return "".join(map(_make_visible, text.encode(errors="replace").decode().expandtabs(4)))


def _make_visible(character: str) -> str:
    category = unicodedata.category(character)
    is_seen = not category.startswith("C") and category not in _LINE_ENDS
    return character if is_seen or character == "\n" or character in _JOINERS else f"\\u{{{ord(character):x}}}"
