"""What a message may be: checked once, at the door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rapport.domain.conversation import Content, text_of
from rapport.domain.errors import InvalidInput, TooLarge
from rapport.domain.text import checked_text

MAX_CHARACTERS = 32_000
MAX_BLOCKS = 32
MAX_IMAGE_CHARACTERS = 1_000_000
"""Of one image's data or address, as it stands in the request."""

# What a block may carry into storage and to the model; everything else a client sends is dropped with a clear error.
_IMAGE_CARRIERS = ("url", "base64", "data", "image_url", "file_id")
_IMAGE_KEYS = frozenset({"type", "mime_type", "source_type", "id", *_IMAGE_CARRIERS})


def checked_content(content: Content, *, limit: int = MAX_CHARACTERS) -> Content:
    """The content, proven storable and within limits; raises InvalidInput with a sentence for the sender."""
    if isinstance(content, str):
        checked_text(content, what="content", limit=limit)
        if not content.strip():
            raise InvalidInput("The message is empty: `content` needs at least one visible character.")
        return content
    if not content:
        raise InvalidInput("The message is empty: `content` needs at least one block.")
    if len(content) > MAX_BLOCKS:
        raise TooLarge(f"The message has {len(content)} blocks; at most {MAX_BLOCKS} are accepted.")
    blocks = [_checked_block(block, limit=limit) for block in content]
    checked_text(text_of(blocks), what="content", limit=limit)
    if not text_of(blocks).strip() and all(block["type"] == "text" for block in blocks):
        raise InvalidInput("The message is empty: its text blocks have no visible character.")
    return blocks


def _checked_block(block: Mapping[str, Any], *, limit: int) -> Mapping[str, Any]:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        if not isinstance(text, str) or set(block) - {"type", "text"}:
            raise InvalidInput('A text block is `{"type": "text", "text": "…"}` and nothing else.')
        return {"type": "text", "text": checked_text(text, what="content", limit=limit)}
    if kind == "image" or kind == "image_url":
        return _checked_image(block)
    raise InvalidInput("A content block has the type `text` or `image`.")


def _checked_image(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := set(block) - _IMAGE_KEYS:
        raise InvalidInput(f"An image block has no field {sorted(unknown)[0][:40]!r}.")
    for text in _strings(block):
        checked_text(text, what="content", limit=MAX_IMAGE_CHARACTERS)
    if not any(_strings(block.get(name)) for name in _IMAGE_CARRIERS if block.get(name)):
        raise InvalidInput("An image block needs its image: a `url`, `base64` data or a `file_id`.")
    return dict(block)


def _strings(value: object, *, depth: int = 2) -> list[str]:
    """Every string inside an image block, which has one level of nesting at most (`{"image_url": {"url": …}}`)."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping) and depth:
        found: list[str] = []
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            found += [*_strings(key, depth=0), *_strings(inner, depth=depth - 1)]  # pyright: ignore[reportUnknownArgumentType]
        return found
    raise InvalidInput("The fields of an image block are strings.")
