"""Write messages for an export: JSONL for programs and for `rapport import`, Markdown for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date
from typing import Any

import orjson

from rapport.domain.chat_archive import select_portable_metadata
from rapport.domain.conversation import Block, Conversation, Message
from rapport.domain.synthetic import is_synthetic

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


@dataclass
class Transcript:
    """Turns messages, oldest first, into the parts of a file. Nothing in it refers to omitted messages."""

    conversation: Conversation
    include_synthetic: bool = False
    exported: int = 0
    filtered: int = 0
    """The number of omitted synthetic messages."""
    _hidden: set[str] = field(default_factory=set[str])

    def is_exported(self, message: Message) -> bool:
        """Return True if a message belongs to the export: a person or the agent wrote it, or everything is exported."""
        if is_synthetic(message) and not self.include_synthetic:
            self.filtered += 1
            self._hidden.add(message.id)
            return False
        if not message.text.strip() and isinstance(message.content, str):
            self._hidden.add(message.id)  # a reply that was cancelled before it began
            return False
        self.exported += 1
        return True

    def row(self, message: Message) -> dict[str, Any]:
        """Return the message as a row that `rapport import` reads."""
        values: dict[str, Any] = {
            "id": message.id,
            "conversation": self.conversation.id,
            "role": message.role,
            "author": message.author and {"id": message.author.id, "name": message.author.name},
            "text": message.text,
            "created_at": message.created_at,
        }
        if not isinstance(message.content, str):
            values["content"] = list(message.content)
        if message.reply_to_id is not None and message.reply_to_id not in self._hidden:
            values["reply_to"] = message.reply_to_id
        if message.mentions:
            values["mentions"] = list(message.mentions)
        if message.is_bot:
            values["is_bot"] = True
        for name in ("thread_id", "platform_id", "context_snapshot"):
            if (value := getattr(message, name)) is not None:
                values[name] = value
        if message.sources:
            values["sources"] = list(message.sources)
        if metadata := select_portable_metadata(message.role, message.metadata):
            values["metadata"] = metadata
        return values


def as_jsonl(transcript: Transcript) -> Callable[[Message], str]:
    """Return a function that writes a message as one line of JSON."""

    def line(message: Message) -> str:
        return orjson.dumps(transcript.row(message), option=orjson.OPT_UTC_Z).decode() + "\n"

    return line


def as_markdown(transcript: Transcript, *, agent_name: str) -> Callable[[Message], str]:
    """Return a function that writes messages with day headings, speakers and times. Texts are quoted, so that none looks like
    a heading or a speaker."""
    day: date | None = None

    def passage(message: Message) -> str:
        nonlocal day
        time = message.created_at.astimezone(UTC)
        parts: list[str] = []
        if day is None:
            title = transcript.conversation.title or f"Conversation with {agent_name}"
            parts.append(f"# {_plain(title)}\n\nTimes are in UTC.\n\n")
        if day != time.date():
            day = time.date()
            parts.append(f"## {time:%A}, {time.day} {time:%B %Y}\n\n")
        parts.append(f"**{_plain(_speaker(message, agent_name))}** · {time:%H:%M}{_remark(message)}\n\n")
        parts.append(f"{_quote(_words(message))}\n\n")
        if message.sources:
            sources = "\n".join(f"- {_plain(source['id'])}: {_plain(source['text'])}" for source in message.sources)
            parts.append(f"Sources:\n\n{sources}\n\n")
        return "".join(parts)

    return passage


def _speaker(message: Message, agent_name: str) -> str:
    if message.author is not None:
        return message.author.name
    return agent_name if message.role == "assistant" else "You"


def _remark(message: Message) -> str:
    if is_synthetic(message):
        return f" · made by the system ({_plain(str(message.metadata.get('trigger_type')))})"
    if message.metadata.get("autonomous") is True:
        return " · unasked"
    return " · cancelled" if message.metadata.get("cancelled") is True else ""


def _words(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n\n".join(_block(block) for block in message.content)


def _block(block: Block) -> str:
    return str(block.get("text", "")) if block.get("type") == "text" else "[image]"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _plain(text: str) -> str:
    """Return a line of text that Markdown shows unchanged."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
