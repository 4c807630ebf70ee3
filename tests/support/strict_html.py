"""Parse HTML strictly: accept only what the page may contain, and refuse everything else."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

# Exactly how tags are written by the sanitiser. A `<` that begins none of these, or a `>` outside of them, is an error.
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[a-z][a-z0-9]*)(?P<attributes>(?: [a-z-]+=\"[^\"<>]*\")*)>")
_ATTRIBUTE = re.compile(r" ([a-z-]+)=\"([^\"<>]*)\"")
_TEXT = re.compile(r"(?:[^<>&]|&(?:amp|lt|gt|quot|nbsp|#39);)*")

EMPTY = {"br", "hr"}
ALLOWED: dict[str, dict[str, re.Pattern[str]]] = {
    name: {}
    for name in ("blockquote", "br", "em", "h3", "h4", "h5", "h6", "hr", "p", "pre", "s", "strong", "table", "tbody",
                 "thead", "tr", "ul")
} | {
    "a": {
        "href": re.compile(r"(?:https?://|mailto:)[^\s]+|#source-[A-Za-z0-9_-]+", re.IGNORECASE),
        "class": re.compile(r"source|image"),
        "data-note": re.compile(r"[A-Za-z0-9_-]+"),
        "target": re.compile(r"_blank"),
        "rel": re.compile(r"noopener noreferrer nofollow"),
    },
    "code": {"class": re.compile(r"language-[A-Za-z0-9_+#.-]+")},
    "li": {"class": re.compile(r"task(?: done)?")},
    "ol": {"start": re.compile(r"[0-9]+")},
    "td": {"class": re.compile(r"left|center|right")},
    "th": {"class": re.compile(r"left|center|right")},
}  # fmt: skip


@dataclass(slots=True)
class Read:
    """The visible content of some HTML."""

    text: str = ""
    tags: list[str] = field(default_factory=list[str])
    links: list[str] = field(default_factory=list[str])
    sources: list[str] = field(default_factory=list[str])


def read(markup: str) -> Read:
    """Return its visible content. Raise AssertionError unless all tags, attributes and URLs are allowed and closed in order."""
    shown = Read()
    open_: list[str] = []
    position = 0
    while position < len(markup):
        if (words := _TEXT.match(markup, position)) and words.end() > position:
            shown.text += html.unescape(words[0])
            position = words.end()
            continue
        tag = _TAG.match(markup, position)
        assert tag is not None, f"neither a tag nor text: {markup[position : position + 60]!r}"
        _take(tag, open_, shown)
        position = tag.end()
    assert open_ == [], f"never closed: {open_}"
    return shown


def _take(tag: re.Match[str], open_: list[str], shown: Read) -> None:
    name = tag["name"]
    assert name in ALLOWED, f"a tag that is not allowed: {tag[0]!r}"
    if tag["close"]:
        assert not tag["attributes"]
        assert open_.pop() == name, f"closed out of order: {tag[0]!r}"
        return
    attributes = [(key, html.unescape(value)) for key, value in _ATTRIBUTE.findall(tag["attributes"])]
    assert len(dict(attributes)) == len(attributes), f"an attribute twice: {tag[0]!r}"
    for key, value in attributes:
        pattern = ALLOWED[name].get(key)
        assert pattern is not None, f"an attribute that is not allowed: {tag[0]!r}"
        assert pattern.fullmatch(value), f"a value that is not allowed: {tag[0]!r}"
    if name == "a":
        assert "a" not in open_, "a link in a link"
        assert dict(attributes).get("rel") == "noopener noreferrer nofollow"
        shown.links.append(dict(attributes)["href"])
        shown.sources += [dict(attributes)["data-note"]] if "data-note" in dict(attributes) else []
    shown.tags.append(name)
    if name not in EMPTY:
        open_.append(name)
