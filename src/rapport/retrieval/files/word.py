"""Word documents as text: paragraphs, headings, lists and tables in document order, footnotes last."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from posixpath import normpath

from rapport.retrieval.files.blocks import BlockWriter
from rapport.retrieval.files.office_zip import OfficeZip, XmlHandler, strip_namespace
from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile

_HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)
_BODY_LEVEL = 9
_MAX_ANCESTORS = 20
_ROOTS = {"document", "footnotes", "endnotes"}
_HIDDEN_ELEMENTS = {"Fallback", "moveFrom", "del", "pPrChange", "rPrChange"}
"""Skipped elements: `Fallback` repeats its neighbour's text, and the others hold the earlier state of tracked changes."""


def read(data: bytes, *, limit: int) -> tuple[str, str]:
    """Return the title, if the document has one, and the text."""
    archive = OfficeZip(data)
    relations = _Relations()
    archive.feed("_rels/.rels", relations)
    folder = relations.main.rpartition("/")[0]
    styles = _Styles()
    archive.feed(f"{folder}/styles.xml", styles)
    body = _Body(BlockWriter(limit), styles)
    if not archive.feed(relations.main, body):
        raise UnreadableFile(ReadFault.NOT_WORD)
    for notes in ("footnotes", "endnotes"):
        archive.feed(f"{folder}/{notes}.xml", body)
    core = _CoreProperties()
    archive.feed("docProps/core.xml", core)
    text = body.blocks.to_text()
    return core.title.strip() or body.blocks.first_heading, text


@lru_cache(1024)
def _get_known_name(tag: str) -> str:
    """Return the name of an element that this module knows by name, else empty: drawings have a `p` and a `t` of their own."""
    namespace, _, name = tag.rpartition("}")
    is_known = "wordprocessingml" in namespace or namespace.endswith(("/math", "/markup-compatibility/2006"))
    return name if is_known else ""


def _get_value(attributes: dict[str, str]) -> str:
    return next((value for name, value in attributes.items() if strip_namespace(name) == "val"), "")


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


class _Relations(XmlHandler):
    """Finds the path of the main document part."""

    def __init__(self) -> None:
        self.main = "word/document.xml"

    def start(self, tag: str, attributes: dict[str, str], /) -> None:
        if attributes.get("Type", "").endswith("/officeDocument"):
            self.main = normpath(attributes.get("Target", "").lstrip("/"))


class _CoreProperties(XmlHandler):
    """Finds the title among the document's properties."""

    def __init__(self) -> None:
        self.title = ""
        self._inside = False

    def start(self, tag: str, attributes: dict[str, str], /) -> None:
        self._inside = strip_namespace(tag) == "title"

    def end(self, tag: str, /) -> None:
        self._inside = False

    def data(self, text: str, /) -> None:
        if self._inside:
            self.title += text


@dataclass(slots=True)
class _Style:
    name: str = ""
    based_on: str = ""
    outline: int | None = None
    item: bool | None = None


class _Styles(XmlHandler):
    """The paragraph styles: heading level and list item, with Word's inheritance."""

    def __init__(self) -> None:
        self._styles: dict[str, _Style] = {}
        self._open = _Style()

    def start(self, tag: str, attributes: dict[str, str], /) -> None:
        name = _get_known_name(tag)
        if name == "style":
            self._open = _Style()
            identity = next((value for key, value in attributes.items() if strip_namespace(key) == "styleId"), "")
            self._styles[identity] = self._open
        elif name == "name":
            self._open.name = _get_value(attributes)
        elif name == "basedOn":
            self._open.based_on = _get_value(attributes)
        elif name == "outlineLvl":
            self._open.outline = _parse_number(_get_value(attributes))
        elif name == "numId":
            self._open.item = _get_value(attributes) != "0"

    def get_heading_level(self, identity: str) -> int:
        """Return the heading level from 1 on; 0 for other styles."""
        for style in self._list_ancestry(identity):
            if match := _HEADING_NAME.fullmatch(style.name):
                return int(match.group(1))
            if style.name.lower() == "title":
                return 1
            if style.outline is not None:
                return style.outline + 1 if style.outline < _BODY_LEVEL else 0
        return 0

    def is_list_item(self, identity: str) -> bool:
        """Return True if a paragraph of this style is a list item."""
        return next((style.item for style in self._list_ancestry(identity) if style.item is not None), False)

    def _list_ancestry(self, identity: str) -> list[_Style]:
        ancestry: list[_Style] = []
        while (style := self._styles.get(identity)) and len(ancestry) < _MAX_ANCESTORS:
            ancestry.append(style)
            identity = style.based_on
        return ancestry


@dataclass(slots=True)
class _ParagraphProperties:
    """A paragraph's own properties, which override its style."""

    style: str = ""
    outline: int | None = None
    item: bool | None = None
    level: int = 0


class _Body(XmlHandler):
    """Turns the elements of the document into blocks."""

    def __init__(self, blocks: BlockWriter, styles: _Styles) -> None:
        self.blocks = blocks
        self._styles = styles
        self._depth = 0
        self._hidden = 0
        self._text = False
        self._properties: _ParagraphProperties | None = None
        self._starts: dict[str, Callable[[], None]] = {
            "p": blocks.begin,
            "tbl": blocks.open_table,
            "tr": blocks.open_row,
            "tc": blocks.open_cell,
            "br": blocks.break_line,
            "cr": blocks.break_line,
            "tab": lambda: blocks.write(" "),
            "noBreakHyphen": lambda: blocks.write("-"),
        }
        self._ends: dict[str, Callable[[], None]] = {
            "p": blocks.end,
            "tbl": blocks.close_table,
            "tr": blocks.close_row,
            "pPr": self._begin_block,
        }

    def start(self, tag: str, attributes: dict[str, str], /) -> None:
        name = _get_known_name(tag)
        if self._depth == 0 and name not in _ROOTS:
            raise UnreadableFile(ReadFault.NOT_WORD)
        self._depth += 1
        if self._hidden or name in _HIDDEN_ELEMENTS:
            self._hidden += 1
        elif self._properties is not None:
            self._read_property(name, attributes)
        elif name == "pPr":
            self._properties = _ParagraphProperties()
        elif name == "t":
            self._text = True
        elif name in self._starts:
            self._starts[name]()

    def end(self, tag: str, /) -> None:
        self._depth -= 1
        name = _get_known_name(tag)
        if self._hidden:
            self._hidden -= 1
        elif name == "t":
            self._text = False
        elif name in self._ends:
            self._ends[name]()

    def data(self, text: str, /) -> None:
        if self._text and not self._hidden:
            self.blocks.write(text)

    def _read_property(self, name: str, attributes: dict[str, str]) -> None:
        properties = self._properties
        if properties is None:
            return
        value = _get_value(attributes)
        if name == "pStyle":
            properties.style = value
        elif name == "outlineLvl":
            properties.outline = _parse_number(value)
        elif name == "numId":
            properties.item = value != "0"
        elif name == "ilvl":
            properties.level = _parse_number(value)

    def _begin_block(self) -> None:
        properties, self._properties = self._properties or _ParagraphProperties(), None
        heading = self._styles.get_heading_level(properties.style)
        if properties.outline is not None:
            heading = properties.outline + 1 if properties.outline < _BODY_LEVEL else 0
        item = self._styles.is_list_item(properties.style) if properties.item is None else properties.item
        # A numbered heading is a heading.
        if heading:
            self.blocks.begin("heading", heading)
        elif item:
            self.blocks.begin("item", properties.level)
