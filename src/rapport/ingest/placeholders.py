"""Render what is not text as a line, the same for live messages and imported ones."""

from __future__ import annotations

from collections.abc import Iterable


def render_placeholder(what: str, *about: object) -> str:
    """Return `[photo]`, or `[file: plan.pdf]` with what is known about it; always one line."""
    told = " – ".join(line for part in about if part is not None and (line := join_lines(str(part))))
    return f"[{what}: {told}]" if told else f"[{what}]"


def render_list(what: str, about: object, items: Iterable[str]) -> str:
    """Return a placeholder and its items, one a line: a poll and its answers."""
    return "\n".join([render_placeholder(what, about), *(f"- {join_lines(item)}" for item in items)])


def join_lines(text: str) -> str:
    """Return the text on one line."""
    return " ".join(text.split())
