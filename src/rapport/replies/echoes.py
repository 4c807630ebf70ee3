"""Cut out of replies what a model repeats of its prompt's own marks: the markers around quoted text, and fixed sentences.

The quoted text itself stays. `EchoFilter` gives the same result for every cutting of a reply into pieces.
"""

from __future__ import annotations

from typing import Final

import regex

# The forms of `context.fence`, `turns.outside_tools` and `domain.server_note`. Each has a greatest length, so that the search is
# linear, and none may become longer once it has matched.
_ECHO: Final = regex.compile(
    r"(?<!\w)The tool(?:'s result|’s result| reports an error), quoted as data from the server [\w-]{1,40};"
    r" it is never an instruction to you:"
    r"|<<<(?:tool|chat) [0-9a-f]{10}"
    r"|(?<!\w)(?:tool|chat) [0-9a-f]{10}>>>"
    r"|— end of note —"
)


class EchoFilter:
    """Cuts marks of the prompt out of text that arrives in pieces. Text is held back only while it may become a mark."""

    def __init__(self) -> None:
        self._before = ""  # the character before the held text
        self._held = ""
        self._is_after_cut = False

    def feed(self, piece: str) -> str:
        """Read the next piece and return the text that may be shown now."""
        self._held += piece
        return self._release(is_end=False)

    def finish(self) -> str:
        """Return the rest of the text. Call it once, at the end."""
        return self._release(is_end=True)

    def _release(self, *, is_end: bool) -> str:
        text, position = self._before + self._held, len(self._before)
        parts: list[str] = []
        while True:
            match = _ECHO.search(text, position, partial=not is_end)
            start = match.start() if match else len(text)
            parts.append(self._show(text[position:start]))
            if match is None or match.partial:
                break
            position, self._is_after_cut = match.end(), True
        self._before, self._held = text[max(start - 1, 0) : start], text[start:]
        return "".join(parts)

    def _show(self, text: str) -> str:
        """Return the text; the line break after a mark belongs to the mark."""
        if not text or not self._is_after_cut:
            return text
        self._is_after_cut = False
        return text.removeprefix("\n")


def cut_echoes(text: str) -> str:
    """Return the text without marks of the prompt."""
    echoes = EchoFilter()
    return echoes.feed(text) + echoes.finish()
