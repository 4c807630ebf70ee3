"""Take the pictures out of a prompt for a model that can't read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage

NOT_SEEN = "[picture that you can't see]"
"""Stands for a picture: the model can say that it does not see it."""


def has_pictures(messages: Sequence[BaseMessage]) -> bool:
    """Return True if one of the messages has content other than text."""
    return any(_is_picture(block) for message in messages for block in _get_blocks(message))


def count_pictures(message: BaseMessage) -> int:
    """Return the number of blocks of a message that are no text."""
    return sum(map(_is_picture, _get_blocks(message)))


def drop_pictures(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages with a text in place of each picture."""
    return [_drop_pictures(message) for message in messages]


def _drop_pictures(message: BaseMessage) -> BaseMessage:
    blocks = _get_blocks(message)
    if not any(_is_picture(block) for block in blocks):
        return message
    texts = [NOT_SEEN if _is_picture(block) else str(block["text"]) for block in blocks]
    return message.model_copy(update={"content": "\n".join(texts)})


def _get_blocks(message: BaseMessage) -> list[dict[str, Any]]:
    content = cast("str | list[Any]", message.content)  # pyright: ignore[reportUnknownMemberType]
    return [] if isinstance(content, str) else [block for block in content if isinstance(block, dict)]


def _is_picture(block: dict[str, Any]) -> bool:
    return block.get("type") not in ("text", "tool_use", "thinking")
