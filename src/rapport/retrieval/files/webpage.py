"""Read web pages as text: the visible text; nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

from rapport.retrieval.files.blocks import BlockWriter
from rapport.retrieval.files.plain import decode_text

_HIDDEN_TAGS = {"script", "style", "template", "noscript", "iframe"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = {"ul", "ol", "menu"}
# fmt: off
_PARAGRAPHS = {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "legend", "li", "main", "nav",
    "option", "p", "section", "summary",
}
# fmt: on
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*+=\s*+[\"']?\s*+([A-Za-z0-9_-]{2,20})", re.IGNORECASE)
_TRUSTED_ENCODINGS = re.compile(
    r"iso-8859-\d{1,2}|latin-?\d|windows-125\d|cp125\d|koi8-[ru]|shift_jis|sjis|euc-(jp|kr)|gbk|gb2312|gb18030|big5"
)


def read(data: bytes, *, limit: int) -> tuple[str, str]:
    """Return the title, if the page has one, and the text."""
    page = _PageParser(limit)
    page.feed(decode_text(data, declared_encoding=_find_declared_encoding(data)))
    page.close()
    text = page.blocks.to_text()
    return "".join(page.title).strip() or page.blocks.first_heading, text


def _find_declared_encoding(data: bytes) -> str | None:
    match = _CHARSET.search(data, 0, 4096)
    name = match.group(1).decode("ascii").lower() if match else ""
    return name if _TRUSTED_ENCODINGS.fullmatch(name) else None


class _PageParser(HTMLParser):
    def __init__(self, limit: int) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks = BlockWriter(limit)
        self.title: list[str] = []
        self._in_title = False
        self._unseen = 0
        self._lists = 0
        self._starts: dict[str, Callable[[], None]] = {
            "title": self._start_title,
            "br": self.blocks.break_line,
            "pre": lambda: self.blocks.begin("code"),
            "table": self.blocks.open_table,
            "tr": self.blocks.open_row,
            "td": self.blocks.open_cell,
            "th": self.blocks.open_cell,
            "li": lambda: self.blocks.begin("item", max(self._lists - 1, 0)),
        }
        self._ends: dict[str, Callable[[], None]] = {
            "title": self._end_title,
            "pre": self.blocks.end,
            "table": self.blocks.close_table,
            "tr": self.blocks.close_row,
            "td": self.blocks.end,
            "th": self.blocks.end,
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN_TAGS:
            self._unseen += 1
        if self._unseen:
            return
        if tag in self._starts:
            self._starts[tag]()
        elif tag in _HEADINGS:
            self.blocks.begin("heading", _HEADINGS[tag])
        elif tag in _LISTS:
            self.blocks.end()
            self._lists += 1
        elif tag in _PARAGRAPHS:
            self.blocks.begin()

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN_TAGS:
            self._unseen = max(self._unseen - 1, 0)
        elif self._unseen:
            return
        elif tag in self._ends:
            self._ends[tag]()
        elif tag in _LISTS:
            self.blocks.end()
            self._lists = max(self._lists - 1, 0)
        elif tag in _PARAGRAPHS or tag in _HEADINGS:
            self.blocks.end()

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._in_title:
            self.title.append(data)
        else:
            self.blocks.write(data)

    def _start_title(self) -> None:
        # A drawing in the page may have a title too; the first one is the page's.
        self._in_title = not self.title

    def _end_title(self) -> None:
        self._in_title = False
