"""Add the server's note for the model to the newest message; the note is not stored (ADR 37)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import BaseMessage

_START = "[Server note: "
_END = "]\n"
_BLOCK_START = "[Server note, up to the line “— end of note —”: "
_BLOCK_END = "\n— end of note —\n"
_NO_BRACKETS = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True)
class ServerNote:
    """The facts that the model needs for the newest message alone: those that change from turn to turn, and the task."""

    sentences: str = ""
    """Before the message, in one line: the time, the person."""
    block: str = ""
    """Before the message, in several lines: memories, passages of notes."""
    task: str = ""
    """After the message: what the model shall do now."""


NO_NOTE = ServerNote()


def add_note(message: BaseMessage, note: ServerNote) -> BaseMessage:
    """Return the message with the note around its text; without a note, the message itself.

    The note is part of the message because many chat templates refuse a system message, or two messages of one role, there.
    """
    if note == NO_NOTE:
        return message
    before, after = _render_before(note), f"\n\n({note.task})" if note.task else ""
    content = cast("str | list[Any]", message.content)  # pyright: ignore[reportUnknownMemberType]
    if isinstance(content, str):
        return message.model_copy(update={"content": f"{before}{content}{after}"})
    blocks = [*([_text(before)] if before else []), *content, *([_text(after.strip())] if after else [])]
    return message.model_copy(update={"content": blocks})


def strip_note(text: str) -> str:
    """Return the words of a message that `add_note` made, without the note before them."""
    return split_note(text)[1]


def split_note(text: str) -> tuple[str, str]:
    """Return the note before a message's words, and the words."""
    if text.startswith(_BLOCK_START) and _BLOCK_END in text:
        note, _, words = text.partition(_BLOCK_END)
    elif text.startswith(_START) and _END in text:
        note, _, words = text.partition(_END)
    else:
        return "", text
    return note, words.removeprefix("\n")


def _render_before(note: ServerNote) -> str:
    sentences = " ".join(note.sentences.split()).translate(_NO_BRACKETS)
    if note.block:
        block = note.block.replace(_BLOCK_END.strip(), "end of note")
        return f"{_BLOCK_START}{sentences}]\n{block}{_BLOCK_END}"
    return f"{_START}{sentences}{_END}" if sentences else ""


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
