"""Make text for models of what a server answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import orjson

from rapport.domain.tool import ToolResult

MAX_RESULT_CHARACTERS: Final = 20_000
MAX_BLOCKS: Final = 1_000
_NOT_KEPT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_LABEL_CHARACTERS: Final = 200


def clean_text(text: str) -> str:
    """Return the text without control characters but tabs and line ends, and without halves of surrogate pairs."""
    return _NOT_KEPT.sub("", text)


def read_result(result: Mapping[str, Any], redact: Callable[[str], str]) -> ToolResult:
    """Return the answer of `tools/call` as text: texts and structured content, and a line for each other block."""
    is_error = result.get("isError") is True
    content = result.get("content")
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    parts = [_read_block(block) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        parts.append(f"[{len(blocks) - MAX_BLOCKS:,} more parts were left out.]")
    structured = result.get("structuredContent")
    if structured is not None and not any(_is_same(part, structured) for part in parts):
        parts.append(orjson.dumps(structured).decode())
    text = _cut("\n".join(part for part in parts if part), redact)
    return ToolResult(text or ("The tool failed without a message." if is_error else "Done."), is_error=is_error)


def _cut(text: str, redact: Callable[[str], str]) -> str:
    """Return the clean text, at most MAX_RESULT_CHARACTERS; a note says how much is missing."""
    cleaned = redact(clean_text(text[: 2 * MAX_RESULT_CHARACTERS]))
    missing = max(len(text) - 2 * MAX_RESULT_CHARACTERS, 0)
    if len(cleaned) + missing <= MAX_RESULT_CHARACTERS:
        return cleaned
    kept = MAX_RESULT_CHARACTERS - 100
    return f"{cleaned[:kept]}\n[The result was cut: {len(cleaned) - kept + missing:,} more characters.]"


def _read_block(block: object) -> str:
    if not isinstance(block, Mapping):
        return ""
    fields = cast("Mapping[str, Any]", block)
    kind, text = fields.get("type"), fields.get("text")
    if kind == "text":
        return text if isinstance(text, str) else ""
    if kind in ("image", "audio"):
        return f"[{kind}: {_label(fields.get('mimeType'))}, {_count_bytes(fields.get('data'))}; not shown]"
    if kind == "resource_link":
        return f"[link to a resource: {_label(fields.get('name'))}, {_label(fields.get('uri'))}]"
    if kind == "resource":
        inner = fields.get("resource")
        resource = cast("Mapping[str, Any]", inner if isinstance(inner, Mapping) else {})
        name = f"{_label(resource.get('uri'))}, {_label(resource.get('mimeType'))}"
        return f"[embedded resource: {name}; not shown]"
    return f"[{_label(kind)}: not shown]"


def _label(value: object) -> str:
    text = " ".join(clean_text(value[:_MAX_LABEL_CHARACTERS]).split()) if isinstance(value, str) else ""
    return text or "without a name"


def _count_bytes(data: object) -> str:
    return f"{len(data) * 3 // 4:,} bytes" if isinstance(data, str) else "no data"


def _is_same(text: str, structured: object) -> bool:
    """Return True if a text block repeats the structured content: as JSON, as the protocol recommends, or its only field."""
    if isinstance(structured, dict) and [*cast("dict[str, object]", structured).values()] == [text]:
        return True
    if len(text) > 10 * MAX_RESULT_CHARACTERS:
        return False
    try:
        return json.loads(text) == structured
    except (ValueError, RecursionError):
        return False
