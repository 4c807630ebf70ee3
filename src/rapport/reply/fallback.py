"""What people read when the model can't answer (RES-4)."""

from __future__ import annotations

from collections.abc import Sequence

START = "Temporary issue generating response. Here are the relevant documents summary: "


def fallback_text(snippets: Sequence[str] = ()) -> str:
    """The same words for the same snippets, every time."""
    if not snippets:
        return START + "there are none for this message. Your message is kept; please send it again in a moment."
    return START + " ".join(snippets)
