"""Show Markdown of agents and people in a terminal, without losing what looks like HTML."""

from __future__ import annotations

from markdown_it import MarkdownIt
from rich.markdown import Markdown

_PARSER = MarkdownIt().enable(["strikethrough", "table"]).disable(["html_block", "html_inline"])


def render_markdown(text: str) -> Markdown:
    """Return the text for rich to print. HTML is shown as it is written: rich's own parser drops it."""
    rendered = Markdown("")
    rendered.markup, rendered.parsed = text, _PARSER.parse(text)
    return rendered
