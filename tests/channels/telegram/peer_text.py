"""Parse text as Telegram does: its HTML rules, entities in UTF-16 units, and the entities that it finds by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

MAX_LENGTH = 4096
MAX_ENTITIES = 100
"""More than that is dropped without a word."""

TYPES = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "span": "spoiler",
    "tg-emoji": "custom_emoji",
    "a": "text_link",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
}
_VERBATIM = {"code", "pre"}
_QUOTES = {"blockquote", "expandable_blockquote"}

_START = re.compile(r"<([^\s>]*)")
_END = re.compile(r"</([^\s>]*)\s*(>?)")
_ATTRIBUTE = re.compile(r"""\s*([^\s=>]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9.\-]*)(?=[\s>]))""")
_EXPANDABLE = re.compile(r"\s*expandable(?=[\s>])")
_REFERENCE = re.compile(r"&(?:#x([0-9a-fA-F]{1,6})|#([0-9]{1,7})|(lt|gt|amp|quot)(?![A-Za-z]));?")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_LINK = re.compile(r"(?:https?|tg|ton|tonsite)://\S+|[\w-]+(?:\.[\w-]+)+(?:[:/?#]\S*)?", re.IGNORECASE)
_SOMEBODY = re.compile(r"tg://user\?id=(\d+)")

_URL = re.compile(r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]]")
_FOUND = (
    # Names of less than four characters are nobody's: "@bot" stays plain text.
    ("mention", re.compile(r"(?<![\w@/])@[A-Za-z0-9_]{4,32}(?!\w)")),
    ("hashtag", re.compile(r"(?<![\w&#])#(?!\d+\b)\w{1,256}")),
    ("bot_command", re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>])")),
)


class Unparsable(ValueError):
    """The reason why a text does not match its parse mode."""


def utf16(text: str) -> int:
    """The length of a text as Telegram counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def entity_text(text: str, entity: Json) -> str:
    """The part of a text that an entity is about."""
    start = entity["offset"] * 2
    return text.encode("utf-16-le")[start : start + entity["length"] * 2].decode("utf-16-le")


def found_entities(text: str) -> list[Json]:
    """Return the entities that Telegram finds in any text: links, names, tags and commands."""
    links = [(match.start(), match.end()) for match in _URL.finditer(text)]
    spans = [("url", start, end) for start, end in links]
    for kind, pattern in _FOUND:
        spans += [
            (kind, match.start(), match.end())
            for match in pattern.finditer(text)
            if not any(start < match.end() and match.start() < end for start, end in links)
        ]
    spans.sort(key=lambda span: span[1])
    return [
        {"offset": utf16(text[:start]), "length": utf16(text[start:end]), "type": kind} for kind, start, end in spans
    ]


def written(text: str, parse_mode: str | None) -> tuple[str, list[Json]]:
    """Return the text as the chat shows it, without tags and trimmed, and its entities."""
    text = re.sub(r"[\x00-\x09\x0b-\x1f]", " ", text.replace("\r", ""))
    entities: list[Json] = []
    if (parse_mode or "").lower() == "html":
        text, entities = parse_html(text)
    elif parse_mode:
        raise Unparsable(f"this peer reads no {parse_mode}")
    text, entities = _trimmed(text, entities)
    taken = [one for one in entities if one["type"] in _VERBATIM | {"text_link", "text_mention"}]
    entities += [one for one in found_entities(text) if not any(_overlap(one, other) for other in taken)]
    entities.sort(key=lambda one: (one["offset"], -one["length"]))
    return text, entities[:MAX_ENTITIES]


def parse_html(text: str) -> tuple[str, list[Json]]:
    """Read HTML as strictly as Telegram does. Raises Unparsable with its words."""
    reader = _Reader(text)
    position = 0
    while position < len(text):
        position = reader.read(position)
    if reader.opened:
        raise Unparsable(f'Can\'t find end tag corresponding to start tag "{reader.opened[-1].tag}"')
    return "".join(reader.out), _settled(reader.entities)


@dataclass(slots=True)
class _Opened:
    tag: str
    argument: str
    offset: int
    began: int


@dataclass(slots=True)
class _Reader:
    """The position of the parser, and the tags that are open there."""

    text: str
    out: list[str] = field(default_factory=list[str])
    length: int = 0
    opened: list[_Opened] = field(default_factory=list[_Opened])
    entities: list[Json] = field(default_factory=list[Json])

    def read(self, position: int) -> int:
        """Read a tag or some text; where the next one begins."""
        if self.text.startswith("</", position):
            return self._end(position)
        if self.text[position] == "<":
            return self._start(position)
        if self.text[position] == "&":
            match = _REFERENCE.match(self.text, position)
            self._add("&" if match is None else _meant(match))
            return position + 1 if match is None else match.end()
        end = min((at for at in (self.text.find("<", position), self.text.find("&", position)) if at >= 0), default=-1)
        end = len(self.text) if end < 0 else end
        self._add(self.text[position:end])
        return end

    def _add(self, text: str) -> None:
        self.out.append(text)
        self.length += utf16(text)

    def _at(self, position: int) -> int:
        return len(self.text[:position].encode())

    def _start(self, position: int) -> int:
        match = _START.match(self.text, position)
        assert match is not None
        tag, end = match[1].lower(), match.end()
        if end == len(self.text):
            raise Unparsable(f"Unclosed start tag at byte offset {self._at(position)}")
        if tag not in TYPES:
            raise Unparsable(f'Unsupported start tag "{tag}" at byte offset {self._at(position)}')
        argument, end = self._arguments(tag, position, end)
        if tag == "span" and argument != "tg-spoiler":
            raise Unparsable(f'Tag "span" must have class "tg-spoiler" at byte offset {self._at(position)}')
        self.opened.append(_Opened(tag, argument, self.length, len(self.out)))
        return end

    def _arguments(self, tag: str, position: int, end: int) -> tuple[str, int]:
        """The one attribute of a tag that means something; where the tag ends."""
        wanted = {"a": "href", "code": "class", "span": "class", "tg-emoji": "emoji-id"}.get(tag)
        argument = ""
        while not (closed := re.compile(r"\s*>").match(self.text, end)):
            if tag == "blockquote" and (match := _EXPANDABLE.match(self.text, end)):
                argument = "expandable"
            elif match := _ATTRIBUTE.match(self.text, end):
                if match[1] == wanted:
                    value = next((one for one in match.groups()[1:] if one is not None), "")
                    argument = _REFERENCE.sub(_meant, value)
            elif ">" not in self.text[end:]:
                raise Unparsable(f"Unclosed start tag at byte offset {self._at(position)}")
            else:
                raise Unparsable(
                    f'Expected equal sign in declaration of an attribute of the tag "{tag}" at byte offset '
                    f"{self._at(position)}"
                )
            end = match.end()
        return argument, closed.end()

    def _end(self, position: int) -> int:
        if not self.opened:
            raise Unparsable(f"Unexpected end tag at byte offset {self._at(position)}")
        match = _END.match(self.text, position)
        assert match is not None
        if not match[2]:
            raise Unparsable(f"Unclosed end tag at byte offset {self._at(position)}")
        opened = self.opened.pop()
        if match[1].lower() not in ("", opened.tag):
            raise Unparsable(
                f'Unmatched end tag at byte offset {self._at(position)}, expected "</{opened.tag}>", '
                f'found "</{match[1].lower()}>"'
            )
        if self.length > opened.offset:
            self._mark(opened)
        return match.end()

    def _mark(self, opened: _Opened) -> None:
        entity: Json = {"offset": opened.offset, "length": self.length - opened.offset, "type": TYPES[opened.tag]}
        if opened.tag == "a":
            url = opened.argument or "".join(self.out[opened.began :])
            if somebody := _SOMEBODY.fullmatch(url):
                entity |= {"type": "text_mention", "user": {"id": int(somebody[1]), "is_bot": False, "first_name": ""}}
            elif _LINK.fullmatch(url):
                entity["url"] = url
            else:
                return  # a link to nowhere is no error, and no link
        elif opened.tag == "code" and opened.argument.startswith("language-"):
            entity["language"] = opened.argument.removeprefix("language-")
        elif opened.tag == "tg-emoji":
            if not opened.argument.isdecimal() or not int(opened.argument):
                raise Unparsable("Invalid custom emoji identifier specified")
            entity["custom_emoji_id"] = opened.argument
        elif opened.argument == "expandable":
            entity["type"] = "expandable_blockquote"
        self.entities.append(entity)


def _meant(match: re.Match[str]) -> str:
    if match[3]:
        return _NAMED[match[3]]
    code = int(match[1], 16) if match[1] else int(match[2])
    if not 0 < code < 0x10FFFF:
        return match[0]
    if 0xD800 <= code <= 0xDFFF:
        raise Unparsable(
            "Text contains invalid Unicode characters after decoding HTML entities, check for unmatched surrogate "
            "code units"
        )
    return chr(code)


def _overlap(one: Json, other: Json) -> bool:
    return one["offset"] < other["offset"] + other["length"] and other["offset"] < one["offset"] + one["length"]


def _within(one: Json, other: Json) -> bool:
    return (
        one is not other
        and other["offset"] <= one["offset"]
        and one["offset"] + one["length"] <= other["offset"] + other["length"]
    )


def _settled(entities: list[Json]) -> list[Json]:
    """Without what Telegram drops: anything in code, and a quotation in a quotation."""
    blocks = [one for one in entities if one["type"] == "pre"]
    for block in blocks:
        for one in entities:
            if one["type"] == "code" and "language" in one and _span(one) == _span(block):
                block["language"] = one["language"]
    kept: list[Json] = []
    verbatim = [
        one for one in entities if one["type"] in _VERBATIM and not any(_within(one, block) for block in blocks)
    ]
    quotes = [one for one in entities if one["type"] in _QUOTES]
    for one in entities:
        if one["type"] in _VERBATIM:
            if one in verbatim:
                kept.append({key: value for key, value in one.items() if key != "language" or one["type"] == "pre"})
        elif one["type"] in _QUOTES:
            if not any(_within(one, other) for other in quotes):
                kept.append(one)
        else:
            kept += _without(one, verbatim)
    return sorted(kept, key=lambda one: (one["offset"], -one["length"]))


def _span(entity: Json) -> tuple[int, int]:
    return entity["offset"], entity["length"]


def _without(entity: Json, others: list[Json]) -> list[Json]:
    """Return the part of an entity outside of code; links stay whole."""
    if entity["type"] == "text_link":
        return [] if any(_within(entity, other) and _span(entity) != _span(other) for other in others) else [entity]
    pieces: list[Json] = []
    start, end = entity["offset"], entity["offset"] + entity["length"]
    for other in sorted(others, key=lambda one: one["offset"]):
        if _overlap(entity, other):
            if other["offset"] > start:
                pieces.append(entity | {"offset": start, "length": other["offset"] - start})
            start = max(start, other["offset"] + other["length"])
    return [*pieces, entity | {"offset": start, "length": end - start}] if end > start else pieces


def _trimmed(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    """Without white space at its ends; what an entity begins with stays."""
    text = text.rstrip()
    end = utf16(text)
    first = min((one["offset"] for one in entities), default=end)
    cut = 0
    while cut < len(text) and cut < first and text[cut].isspace():
        cut += 1
    kept: list[Json] = []
    for one in entities:
        length = min(one["offset"] + one["length"], end) - one["offset"]
        if length > 0:
            kept.append(one | {"offset": one["offset"] - cut, "length": length})
    return text[cut:], kept
