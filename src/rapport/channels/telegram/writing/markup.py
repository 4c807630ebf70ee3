"""Render Markdown as Telegram's HTML, in parts that fit one message each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block import reference as read_definition
from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from rapport.channels.markdown_work import estimate_work
from rapport.channels.telegram.writing import split
from rapport.channels.telegram.writing.split import INNER, OUTER, Flow, Part, Tag, Tags, count_units, escape_html
from rapport.channels.telegram.writing.table import draw_table

__all__ = ["Part", "render_parts"]

MAX_FORMATTED_CHARACTERS, MAX_MARKDOWN_WORK = 60_000, 8_000
"""Limits of formatted text, more than a model writes at once; work as `estimate_work` counts it. Longer text is sent plain."""

_MAX_DEPTH = 16
"""Levels of quotes, lists and items; deeper content is shown unformatted."""
_MAX_INDENT = 16
_SCHEMES = frozenset({"http", "https", "mailto", "tg"})
_RULE = "———"

_BOLD = Tag("b", "<b>", "</b>")
_CODE = Tag("code", "<code>", "</code>")
_PRE = Tag("pre", "<pre>", "</pre>")
_QUOTE = Tag("blockquote", "<blockquote>", "</blockquote>")
_EMPHASIS = {"strong_open": _BOLD, "em_open": Tag("i", "<i>", "</i>"), "s_open": Tag("s", "<s>", "</s>")}

# Telegram replaces them by spaces, which it trims.
_CONTROLS = {code: " " for code in range(32) if chr(code) not in "\t\n"}


def render_parts(markdown: str, *, limit: int = 4096) -> list[Part]:
    """Return the text as parts of at most `limit` UTF-16 units (64 or more), each valid alone; empty if nothing is visible."""
    source = _clean(markdown)
    flow = Flow(limit)
    if len(source) > MAX_FORMATTED_CHARACTERS or estimate_work(source) > MAX_MARKDOWN_WORK:
        for block in source.split("\n\n"):
            flow.add_gap("\n\n", (), OUTER)
            flow.add(block)
    else:
        _Renderer(source, flow, limit).write()
    return flow.split()


def _clean(markdown: str) -> str:
    """Return the text without control characters and halves of surrogate pairs, which cannot be sent."""
    valid = markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return valid.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


@dataclass(slots=True)
class _Level:
    """A quote, a list or a list item while its content is read; the outermost level is the text itself."""

    tags: Tags = ()
    indent: str = ""
    number: int | None = None
    """Of the next item, if the items are numbered."""


class _Renderer:
    """Render one text from the parser's tokens into a flow of words."""

    def __init__(self, source: str, flow: Flow, limit: int) -> None:
        self._lines = source.split("\n")
        self._flow = flow
        self._limit = limit
        env: dict[str, Any] = {}
        self._tokens = _PARSER.parse(source, env)
        self._definitions = _Definitions(env, self._tokens)
        self._levels = [_Level()]
        self._gap = ""
        self._gap_tags: Tags = ()
        self._gap_rank: int | None = None
        self._fresh = True
        """Return True if no block has begun on this level."""
        self._heading = False
        self._after_heading = False
        self._rows: list[list[str]] | None = None
        self._row_line = 0
        self._alignments: list[str] = []

    def write(self) -> None:
        """Add everything visible to the flow."""
        handlers: dict[str, Callable[[Token], None]] = {
            "paragraph_open": self._begin_block,
            "heading_open": self._open_heading,
            "heading_close": self._close_heading,
            "inline": self._add_inline,
            "fence": self._add_code,
            "code_block": self._add_code,
            "hr": self._add_rule,
            "blockquote_open": self._open_quote,
            "bullet_list_open": self._open_list,
            "ordered_list_open": self._open_list,
            "list_item_open": self._open_item,
            "blockquote_close": self._close_level,
            "bullet_list_close": self._close_level,
            "ordered_list_close": self._close_level,
            "list_item_close": self._close_level,
            "table_open": self._open_table,
            "th_open": self._open_column,
            "tr_open": self._open_row,
            "table_close": self._close_table,
            "definition": self._add_definition,
            "as_it_stands": self._add_raw,
        }
        for token in self._tokens:
            if handler := handlers.get(token.type):
                handler(token)

    # ---- words and the gaps between them

    def _add_words(self, text: str, tags: Tags, *, indent: bool = True) -> None:
        """Add words, after the gap that is due."""
        if not text:
            return
        if self._gap:
            self._flow.add_gap(self._gap, self._gap_tags, self._gap_rank)
            if indent and self._gap != " ":
                self._flow.add(self._levels[-1].indent, self._levels[-1].tags)
            self._gap, self._gap_rank = "", None
        self._flow.add(text, tags)

    def _begin_block(self, token: Token, *, own_line: bool = False) -> None:
        """Begin a block at the distance that it has in the source."""
        if self._fresh:
            self._fresh = False
            if own_line and self._gap == " ":
                self._gap = "\n"
            return
        line = token.map[0] if token.map else 0
        # Under quotes an empty line has their markers.
        is_separate = token.type == "heading_open" or not self._lines[line - 1].strip("> \t")
        # The previous block may be invisible: then its distance counts.
        self._gap = "\n\n" if is_separate or self._gap == "\n\n" else "\n"
        self._gap_tags = self._levels[-1].tags
        self._gap_rank = OUTER if is_separate and len(self._levels) == 1 else INNER
        if self._after_heading:
            # A heading stays with the text below it.
            self._gap_rank = None
        self._after_heading = False

    # Blocks

    def _open_heading(self, token: Token) -> None:
        self._begin_block(token)
        self._heading = True

    def _close_heading(self, token: Token) -> None:
        self._heading = False
        self._after_heading = True

    def _add_code(self, token: Token) -> None:
        self._begin_block(token, own_line=True)
        language = token.info.split()[0] if token.info.strip() else ""
        self._add_preformatted(token.content, _make_code_tag(language))

    def _add_preformatted(self, text: str, tag: Tag) -> None:
        if text.strip():
            self._add_words(text.removesuffix("\n"), (*self._levels[-1].tags, tag), indent=False)

    def _add_rule(self, token: Token) -> None:
        self._begin_block(token)
        self._add_words(_RULE, self._levels[-1].tags)

    def _open_quote(self, token: Token) -> None:
        self._begin_block(token, own_line=True)
        # Telegram knows no quote within a quote.
        self._open_level(_Level(_nest(self._levels[-1].tags, _QUOTE)))

    def _open_list(self, token: Token) -> None:
        self._begin_block(token)
        start = token.attrGet("start")
        number = None
        if token.type == "ordered_list_open":
            number = 1 if start is None else int(start)
        self._open_level(_Level(self._levels[-1].tags, self._levels[-1].indent, number))

    def _open_item(self, token: Token) -> None:
        self._begin_block(token)
        level = self._levels[-1]
        marker = "•"
        if level.number is not None:
            marker = f"{level.number}{token.markup}"
            level.number += 1
        self._add_words(marker, level.tags)
        self._gap, self._gap_tags = " ", level.tags
        indent = level.indent + " " * (len(marker) + 1)
        self._open_level(_Level(level.tags, indent[:_MAX_INDENT]))

    def _open_level(self, level: _Level) -> None:
        self._levels.append(level)
        self._fresh = True

    def _close_level(self, token: Token) -> None:
        self._levels.pop()
        self._fresh = False

    def _open_table(self, token: Token) -> None:
        self._begin_block(token, own_line=True)
        self._rows, self._alignments = [], []

    def _open_column(self, token: Token) -> None:
        self._alignments.append(str(token.attrGet("style") or "").removeprefix("text-align:"))

    def _open_row(self, token: Token) -> None:
        if self._rows is not None:
            self._close_row()
            self._rows.append([])
            self._row_line = token.map[0] if token.map else 0

    def _close_row(self) -> None:
        """Add the cells that the head has no columns for; the parser leaves them out."""
        if self._rows and len(self._rows) > 1:
            cells = escapedSplit(self._lines[self._row_line])
            if not cells[0].strip("> \t"):
                del cells[0]
            self._rows[-1] += (cell.strip() for cell in cells[len(self._alignments) :] if cell.strip())

    def _close_table(self, token: Token) -> None:
        self._close_row()
        self._add_preformatted(draw_table(self._rows or [], self._alignments), _PRE)
        self._rows = None

    def _add_definition(self, token: Token) -> None:
        self._begin_block(token)
        if not self._definitions.is_used(token):
            self._add_words(token.content, self._levels[-1].tags)

    def _add_raw(self, token: Token) -> None:
        self._begin_block(token)
        self._add_words(token.content, self._levels[-1].tags)

    # Within a line

    def _add_inline(self, token: Token) -> None:
        children = token.children or []
        if self._rows is not None:
            self._rows[-1].append(_join_text(children))
            return
        tags = self._levels[-1].tags
        tag_stack = [_nest(tags, _BOLD) if self._heading else tags]
        for number, child in enumerate(children):
            if child.nesting > 0:
                tag = (
                    self._make_link(child, islice(children, number + 1, None))
                    if child.type == "link_open"
                    else _EMPHASIS.get(child.type)
                )
                tag_stack.append(_nest(tag_stack[-1], tag))
            elif child.nesting < 0:
                tag_stack.pop()
            else:
                self._add_leaf(child, tag_stack[-1])

    def _add_leaf(self, token: Token, tags: Tags) -> None:
        if token.type in {"softbreak", "hardbreak"}:
            self._add_words("\n" + self._levels[-1].indent, tags)
        elif token.type == "code_inline":
            self._add_words(token.content, _as_code(tags))
        elif token.type == "image":
            tag = self._make_link(token, token.children or [])
            self._add_words(_join_text([token]), _nest(tags, tag))
        else:
            self._add_words(token.content, tags)

    def _make_link(self, token: Token, following: Iterable[Token]) -> Tag | None:
        """Return the tag of a link or an image, unless its address is unusable or leaves no room for its text."""
        address = str(token.attrGet("src" if token.type == "image" else "href") or "")
        if not _is_link_address(address):
            return None
        tag = Tag("a", '<a href="{}">'.format(escape_html(address).replace('"', "&quot;")), "</a>")
        if tag.cost <= self._limit // 2:
            return tag
        text = 0
        for child in following:
            if child.type == "link_close":
                break
            text += count_units(escape_html(child.content))
        return tag if tag.cost + text <= self._limit - split.MIN_TEXT_UNITS else None


def _nest(tags: Tags, tag: Tag | None) -> Tags:
    """Return the tags with one more inside them, unless there is one of the same name."""
    return tags if tag is None or any(tag.name == other.name for other in tags) else (*tags, tag)


def _as_code(tags: Tags) -> Tags:
    """Return the tags around code, which takes no other formatting; inside a link the link is kept."""
    if any(tag.name == "a" for tag in tags):
        return tags
    return (*(tag for tag in tags if tag.name == _QUOTE.name), _CODE)


def _make_code_tag(language: str) -> Tag:
    if 0 < len(language) <= 32 and all(character.isalnum() or character in "+#-._" for character in language):
        return Tag("pre", f'<pre><code class="language-{language}">', "</code></pre>", simpler=_PRE)
    return _PRE


def _is_link_address(address: str) -> bool:
    scheme, colon, rest = address.partition(":")
    return bool(colon and rest) and scheme.lower() in _SCHEMES


def _join_text(tokens: Iterable[Token]) -> str:
    """Return the words of the tokens on one line."""
    words: list[str] = []
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            words.append(" ")
        elif token.type == "image":
            address = str(token.attrGet("src"))
            words.append(_join_text(token.children or []) or (address if _is_link_address(address) else ""))
        else:
            words.append(token.content)
    return " ".join("".join(words).split())


# The parser


class _Definitions:
    """Link definitions; one that no link uses is shown as text."""

    def __init__(self, env: dict[str, Any], tokens: Sequence[Token]) -> None:
        self._known: dict[str, dict[str, Any]] = env.get("references", {})
        self._used: set[str] = set()
        if self._known:
            for token in tokens:
                for child in token.children or []:
                    self._used.add(str(child.meta.get("label", "")))

    def is_used(self, token: Token) -> bool:
        """Return True if a link uses this definition, and not another of the same name."""
        name = str(token.meta["id"])
        return name in self._used and self._known.get(name, {}).get("map") == token.map


def _define(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a link definition and keep its text. `[note-1]: yes` is none, because `yes` is not an address."""
    if not read_definition(state, start, end, silent):
        return False
    if not silent:
        token = state.tokens[-1]
        token.content = state.getLines(start, state.line, state.blkIndent, False).strip()
        if (
            not _is_link_address(str(token.meta["url"]))
            and state.env["references"][token.meta["id"]]["map"] == token.map
        ):
            del state.env["references"][token.meta["id"]]
    return True


def _stop_descending(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take everything below the maximum depth as raw text; the parser would leave it out."""
    if silent or state.level < _MAX_DEPTH:
        return False
    line = start + 1
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    token = state.push("as_it_stands", "", 0)
    token.map = [start, line]
    token.content = state.getLines(start, line, state.blkIndent, False).strip()
    state.line = line
    return True


class _Markdown(MarkdownIt):
    """A parser that accepts every address. Unusable links are removed later; their text stays."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the parser's own name for it
        """Return True for every address."""
        return True


def _make_parser() -> MarkdownIt:
    options = {"maxNesting": _MAX_DEPTH + 4, "store_labels": True, "inline_definitions": True}
    parser = _Markdown("commonmark", options).enable(["strikethrough", "table"]).disable(["html_block", "html_inline"])
    parser.block.ruler.at("reference", _define)
    parser.block.ruler.before("table", "stop_descending", _stop_descending)
    return parser


_PARSER = _make_parser()
