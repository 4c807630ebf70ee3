"""Test how a terminal shows Markdown."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from rapport.cli.markdown import render_markdown


def show(text: str) -> str:
    console = Console(file=StringIO(), width=80, color_system=None)
    with console.capture() as capture:
        console.print(render_markdown(text))
    return "\n".join(line.rstrip() for line in capture.get().split("\n")).strip()


def test_what_looks_like_html_is_shown_as_it_is_written() -> None:
    text = "Run cp <source> <target>; a List<int>; <b>bold</b> <!-- and this -->"
    assert show(text) == text
    assert show("<div>\na block\n</div>").split() == ["<div>", "a", "block", "</div>"]


def test_markdown_is_still_rendered() -> None:
    assert show("**strong** ~~gone~~ `<code>`") == "strong gone <code>"
    assert "|" not in show("| a | b |\n|---|---|\n| 1 | 2 |")
