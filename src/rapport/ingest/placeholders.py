"""How something that isn't words is told: the same line, whether it was heard or comes from an export."""

from __future__ import annotations

from collections.abc import Iterable


def render_placeholder(what: str, *about: object) -> str:
    """`[photo]`, or `[file: plan.pdf]` with what is known about it; always on one line."""
    told = " – ".join(line for part in about if part is not None and (line := join_lines(str(part))))
    return f"[{what}: {told}]" if told else f"[{what}]"


def render_list(what: str, about: object, items: Iterable[str]) -> str:
    """A placeholder with what it holds, one in a line: a poll and its answers."""
    return "\n".join([render_placeholder(what, about), *(f"- {join_lines(item)}" for item in items)])


def join_lines(text: str) -> str:
    """The text without line breaks: what stands in a line with others must not begin one of its own."""
    return " ".join(text.split())
