"""Decode bytes as text: UTF-8, UTF-16 with a byte order mark, and Windows-1252 if the result is plausible."""

from __future__ import annotations

import codecs
import re

from rapport.retrieval.files.document import fit_on_one_line
from rapport.retrieval.files.read_errors import ReadFault, UnreadableFile

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark begins with the same bytes
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NEWLINES = re.compile("\r\n|[\r\f\v\x85\u2028\u2029]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_CONTROL_SHARE = 0.01
_HIGH_SHARE = 0.3
_BROKEN_SHARE = 0.2
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#*)?[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")


def decode_text(data: bytes, *, declared_encoding: str | None = None) -> str:
    """Return the text with `\\n` line ends and without control characters; raise UnreadableFile if it isn't text.

    `declared` is the encoding to use if the bytes are not UTF-8.
    """
    text = _decode_bytes(data, declared_encoding)
    if "\x00" in text:
        raise UnreadableFile(ReadFault.NUL)
    text = unify_newlines(text)
    visible, controls = _CONTROLS.subn("", text)
    if controls > len(text) * _CONTROL_SHARE + 2:
        raise UnreadableFile(ReadFault.NOT_TEXT)
    return visible


def unify_newlines(text: str) -> str:
    """Return the text with every line and page end as `\\n`."""
    return _NEWLINES.sub("\n", text)


def clean_text(text: str) -> str:
    """Return extracted text without control characters and halves of surrogate pairs, so that it can be stored."""
    cleaned = _CONTROLS.sub("", unify_newlines(text))
    try:
        cleaned.encode()
    except UnicodeEncodeError:
        cleaned = cleaned.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cleaned


def find_markdown_title(text: str) -> str:
    """Return the first heading outside of code, as a line; empty if there is none."""
    fence, previous = "", ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark.group(1).startswith(fence)):
            fence = "" if fence else mark.group(1)[:3]
        if fence:
            previous = ""
            continue
        if (heading := _HEADING.fullmatch(line)) and (title := _strip_markup(heading.group(1))):
            return title
        if previous and _UNDERLINE.fullmatch(line):
            return _strip_markup(previous)
        previous = line.strip()
    return ""


def _strip_markup(heading: str) -> str:
    return fit_on_one_line(_LINK.sub(r"\1", heading)).strip("*_` ")


def _decode_bytes(data: bytes, declared: str | None) -> str:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decode_strictly(data[len(bom) :], encoding)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if b"\x00" in data:
            raise UnreadableFile(ReadFault.NUL) from None
    if declared:
        return _decode_strictly(data, declared)
    repaired = data.decode("utf-8", "replace")
    if repaired.count("\ufffd") <= sum(character > "\x7f" for character in repaired) * _BROKEN_SHARE:
        return repaired  # damaged UTF-8: a few replacement characters are better than two letters for every umlaut
    text = _decode_strictly(data, "cp1252")
    # Western European text has few letters beyond ASCII; text in another encoding has almost only those.
    if sum(character > "\x7f" for character in text) > len(text) * _HIGH_SHARE:
        raise UnreadableFile(ReadFault.NOT_TEXT)
    return text


def _decode_strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableFile(ReadFault.NOT_TEXT) from error
