"""Hold back the beginning of a reply whose model is known to end thoughts that it has not begun (ADR 99)."""

from __future__ import annotations

from typing import Final

from rapport.replies import machinery_forms as forms

MAX_HELD_THOUGHT_CHARACTERS: Final = 60_000
"""A beginning that is longer than this, without a closing tag, is taken for an answer."""
_MAX_TAG_CHARACTERS: Final = 160


class LeadingThought:
    """Reads a reply in pieces and withholds it until the tag that closes its thought. Work is linear in the reply's length."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._tail = ""
        self._is_over = False

    def feed(self, piece: str) -> str:
        """Return the text to go on with: nothing while it is withheld, then all from the closing tag on.

        All text is returned if it is no leading thought: a tag begins a thought first, or it is too long.
        """
        if self._is_over:
            return piece
        self._pieces.append(piece)
        self._length += len(piece)
        seen = self._tail + piece
        self._tail = seen[-_MAX_TAG_CHARACTERS:]
        closing = forms.CLOSES_THOUGHT.search(seen)
        opening = forms.OPENS_THOUGHT.search(seen, 0, closing.start() if closing else len(seen))
        if closing is not None and opening is None:
            self._is_over = True
            self._pieces.clear()
            return seen[closing.start() :]
        return self.finish() if opening is not None or self._length > MAX_HELD_THOUGHT_CHARACTERS else ""

    def finish(self) -> str:
        """Return the text that is still withheld."""
        self._is_over = True
        text = "".join(self._pieces)
        self._pieces.clear()
        return text
