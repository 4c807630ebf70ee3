"""Add the server's note for the model to the newest message; the note is not stored (ADR 37)."""

from __future__ import annotations

from typing import Any, cast

from langchain_core.messages import BaseMessage

_START = "[Server note: "
_END = "]\n"


def add_note(message: BaseMessage, note: str) -> BaseMessage:
    """Return the message with the note as its first line; without a note, the message itself.

    It is a line of the message because many chat templates refuse a system message, or two messages of one role, there.
    """
    if not note:
        return message
    line = f"{_START}{' '.join(note.split()).translate(_NO_BRACKETS)}{_END}"
    content = cast("str | list[Any]", message.content)  # pyright: ignore[reportUnknownMemberType]
    content_with_note = line + content if isinstance(content, str) else [{"type": "text", "text": line}, *content]
    return message.model_copy(update={"content": content_with_note})


def strip_note(text: str) -> str:
    """Return the words of a message that `add_note` made, without its note."""
    if not text.startswith(_START) or _END not in text:
        return text
    return text.partition(_END)[2].removeprefix("\n")


_NO_BRACKETS = str.maketrans("[]", "()")
