"""Render Markdown as HTML that is safe to put into a page: it runs no script, loads nothing and hides nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from rapport.channels.markdown_work import estimate_work
from rapport.domain.addresses import find_addresses

MAX_FORMATTED_CHARACTERS = 20_000
"""Longer text is shown without formatting. Several times the length of a model's reply."""
MAX_WORK = 4_000
"""Work as `estimate_work` counts it: line breaks and markup characters, up to 15 µs each. Ordinary text has far fewer."""

_MAX_EXPANSION = 20
"""Maximum characters of HTML per character of text: a wide table could expand one to thousands."""
_MAX_CELLS = 20_000
"""The most cells of tables, estimated as lines times the widest line."""
_MAX_DEPTH = 20
"""Levels of quotes, lists and items; the parser drops deeper content."""

_SOURCES_LINE = re.compile(r"Sources: ([\w-]+(?:, [\w-]+)*)", re.ASCII)
_SOURCE_TAG = re.compile(r"\[source:\s*([\w-]+(?:\s*,\s*[\w-]+)*)\s*\]", re.ASCII)
_NOT_ID = re.compile(r"(?<!\s)\s*+,\s*+")
_LINKED = re.compile(r"(?:https?://|mailto:)[^\s<>\"`]+", re.IGNORECASE)
_TASK = re.compile(r"\[([ xX])\][ \t]+(?=\S)")
_LANGUAGE = re.compile(r"language-[\w+#.-]{1,40}", re.ASCII)
_ALIGNMENTS = {"text-align:left": "left", "text-align:center": "center", "text-align:right": "right"}
_CLASSES = {
    "a": frozenset({"source", "image"}),
    "li": frozenset({"task", "task done"}),
    "th": frozenset(_ALIGNMENTS.values()),
    "td": frozenset(_ALIGNMENTS.values()),
}


def render_html(text: str, *, sources: Collection[str] = (), links: Collection[str] | None = None) -> str:
    """Return the text as HTML. A `[source: id]` tag becomes a link to a note if the id is one of `sources`.

    With `links` an address becomes a link only if it is one of them; the others are shown as text.
    """
    if len(text) <= MAX_FORMATTED_CHARACTERS and estimate_work(text) <= MAX_WORK and _cells(text) <= _MAX_CELLS:
        known = None if links is None else frozenset(_PARSER.normalizeLink(address) for address in links)
        env: dict[str, Any] = {"sources": frozenset(sources), "links": known, "is_too_deep": False}
        html = _PARSER.render(text, env)
        if not env["is_too_deep"] and len(html) <= _MAX_EXPANSION * len(text) + 10_000:
            return _CLEANER.clean(html)
    return render_plain(text)


def _cells(text: str) -> int:
    lines = text.splitlines()
    return len(lines) * max((line.count("|") for line in lines), default=0)


def render_plain(text: str) -> str:
    """Return the text as HTML without formatting; paragraphs and line breaks stay."""
    paragraphs = (part.strip("\n") for part in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")))
    return _CLEANER.clean("".join(f"<p>{escape(part).replace(chr(10), '<br>')}</p>\n" for part in paragraphs if part))


class _Parser(MarkdownIt):
    """CommonMark with tables, strikethrough and hard line breaks. HTML in the text is shown as text."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False, "breaks": True, "maxNesting": _MAX_DEPTH})
        self.enable(["table", "strikethrough"])
        self.disable("reference")  # it would swallow lines such as "[1]: as agreed"
        self.inline.ruler.before("link", "source", _read_source)
        self.core.ruler.push("chat", _for_a_chat)
        self.add_render_rule("source", _show_source)

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        """Return True if an address may be a link: only http, https and mailto, never a relative address."""
        return _LINKED.fullmatch(url) is not None


def _read_source(state: StateInline, silent: bool) -> bool:
    """Parse a citation of one of the reply's sources; other tags are left to the other rules."""
    if not state.src.startswith("[source:", state.pos) or state.linkLevel:
        return False
    match = _SOURCE_TAG.match(state.src, state.pos, min(state.posMax, state.pos + 2_000))
    ids = _NOT_ID.split(match[1]) if match else []
    source_ids: frozenset[str] = state.env["sources"]
    if match is None or not source_ids.intersection(ids):
        return False
    if not silent:
        for id_ in ids:
            _push_source(state, id_, is_known=id_ in source_ids)
    state.pos = match.end()
    return True


def _push_source(state: StateInline, id_: str, *, is_known: bool) -> None:
    token = state.push("source" if is_known else "text", "", 0)
    token.content = id_ if is_known else f"[source: {id_}]"


def _show_source(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: dict[str, Any]
) -> str:
    id_ = escape(tokens[index].content)
    return f'<a class="source" data-note="{id_}" href="#source-{id_}">{id_}</a>'


def _for_a_chat(state: StateCore) -> None:
    """Adapt the parsed text for a chat: heading levels, table classes, tasks, links and sources."""
    for number, token in enumerate(state.tokens):
        state.env["is_too_deep"] |= token.nesting == 1 and token.level >= _MAX_DEPTH - 1
        match token.type:
            case "heading_open" | "heading_close":
                token.tag = f"h{min(int(token.tag[1:]) + 2, 6)}"  # h1 and h2 belong to the page
            case "th_open" | "td_open":
                token.attrs = {"class": aligned} if (aligned := _ALIGNMENTS.get(str(token.attrGet("style")))) else {}
            case "list_item_open":
                _mark_task(token, state.tokens[number + 1 : number + 3])
            case "inline":
                token.children = list(_for_a_line(token.children or [], state.env["links"]))
            case _:
                pass
    _link_sources(state)


def _mark_task(item: Token, inside: Sequence[Token]) -> None:
    """Turn `- [x] done` into an item with a box."""
    if [token.type for token in inside] != ["paragraph_open", "inline"] or not inside[1].children:
        return
    first = inside[1].children[0]
    if first.type != "text" or (match := _TASK.match(first.content)) is None:
        return
    is_done = match[1] != " "
    item.attrSet("class", "task done" if is_done else "task")
    first.content = ("☑ " if is_done else "☐ ") + first.content[match.end() :]


def _for_a_line(tokens: Iterable[Token], links: Collection[str] | None) -> Iterator[Token]:
    """Turn known addresses and images into links, and show other addresses: opening a chat loads nothing from other servers."""
    opened: list[tuple[str, list[str]]] = []
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrGet("href") or "")
            opened.append((address, []))
            if _is_known(address, links):
                token.attrSet("target", "_blank")
                yield token
        elif token.type == "link_close":
            address, words = opened.pop()
            if _is_known(address, links):
                yield token
            elif "".join(words) != address:
                yield _text(f" ({address})")
        elif token.type == "image":
            yield from _image(token, links, linked=bool(opened))
        elif token.type == "text" and not opened:
            yield from _with_links(token, links)
        else:
            if opened:
                opened[-1][1].append(token.content)
            yield token


def _is_known(address: str, links: Collection[str] | None) -> bool:
    return links is None or _PARSER.normalizeLink(address) in links


def _image(token: Token, links: Collection[str] | None, *, linked: bool) -> Iterator[Token]:
    address = str(token.attrGet("src") or "")
    words = " ".join(token.content.split())
    if linked or not address:
        yield _text(words or address)
        return
    shown = f"{words} ({address})" if words else address
    if _is_known(address, links):
        yield from _link(address, shown, kind="image")
    else:
        yield _text(shown)


def _with_links(token: Token, links: Collection[str] | None) -> Iterator[Token]:
    end = 0
    for start, address in find_addresses(token.content):
        if not _is_known(address, links):
            continue
        if start > end:
            yield _text(token.content[end:start])
        yield from _link(address, address)
        end = start + len(address)
    if end == 0:
        yield token
    elif end < len(token.content):
        yield _text(token.content[end:])


def _link(address: str, words: str, *, kind: str = "") -> Iterator[Token]:
    attributes: dict[str, str | int | float] = {"class": kind} if kind else {}
    yield Token("link_open", "a", 1, attrs={**attributes, "href": address, "target": "_blank"})
    yield _text(words)
    yield Token("link_close", "a", -1)


def _text(words: str) -> Token:
    return Token("text", "", 0, content=words)


def _link_sources(state: StateCore) -> None:
    """Link the ids of a closing line `Sources: a, b`, if it lists only sources of the reply."""
    last = state.tokens[-2] if len(state.tokens) > 1 else None
    if last is None or last.type != "inline" or not last.content.startswith("Sources: "):
        return
    line = last.content.rpartition("\n")[2]
    match = _SOURCES_LINE.fullmatch(line) if line == last.content else None
    ids = match[1].split(", ") if match else []
    if not ids or not state.env["sources"].issuperset(ids):
        return
    children: list[Token] = [_text("Sources: ")]
    for number, id_ in enumerate(ids):
        children += [_text(", ")] if number else []
        children.append(Token("source", "", 0, content=id_))
    last.children = children


def _keep_attribute(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute that the parser writes; None removes any other."""
    match name:
        case "href":
            is_source = value.startswith("#source-") and value[8:].replace("-", "").replace("_", "").isalnum()
            return value if is_source or _LINKED.fullmatch(value) else None
        case "class":
            is_allowed = _LANGUAGE.fullmatch(value) if tag == "code" else value in _CLASSES.get(tag, ())
            return value if is_allowed else None
        case _:
            return value


_CLEANER = nh3.Cleaner(
    tags={
        "a", "blockquote", "br", "code", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "strong",
        "table", "tbody", "td", "th", "thead", "tr", "ul",
    },
    clean_content_tags={"script", "style"},
    attributes={
        "*": set(),  # the default allows `title` and `lang`
        "a": {"href", "class", "data-note", "target"},
        "code": {"class"},
        "li": {"class"},
        "ol": {"start"},
        "td": {"class"},
        "th": {"class"},
    },
    attribute_filter=_keep_attribute,
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
    strip_comments=True,
)  # fmt: skip
_PARSER = _Parser()
