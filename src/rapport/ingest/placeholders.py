"""Render attachments as a line of text, the same for live and imported messages."""

from __future__ import annotations

from collections.abc import Iterable


def render_placeholder(what: str, *details: object) -> str:
    """Return `[photo]`, or `[file: plan.pdf]` with details; always one line."""
    text = " – ".join(line for part in details if part is not None and (line := join_lines(str(part))))
    return f"[{what}: {text}]" if text else f"[{what}]"


def render_list(what: str, about: object, items: Iterable[str]) -> str:
    """Return a placeholder and its items, one per line: a poll and its answers."""
    return "\n".join([render_placeholder(what, about), *(f"- {join_lines(item)}" for item in items)])


def join_lines(text: str) -> str:
    """Return the text on one line."""
    return " ".join(text.split())
