"""Define the events that subscribers of a conversation receive as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rapport.domain.conversation import Message
from rapport.domain.memory import Memory

MemoryChangeKind: TypeAlias = Literal["created", "updated", "deleted"]
MessageRenderer: TypeAlias = Callable[[Message], Awaitable[bytes]]


@dataclass(frozen=True, slots=True, eq=False)
class MessageStored:
    """A message was stored or changed. `seq` rises: a client that reconnects sends the last one it knows."""

    seq: int
    message: Message
    _rendered: dict[MessageRenderer, bytes] = field(default_factory=dict[MessageRenderer, bytes])
    _render_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def render(self, by: MessageRenderer) -> bytes:
        """Return the message as `by` renders it. It is rendered once for all subscribers."""
        async with self._render_lock:
            if (rendered := self._rendered.get(by)) is None:
                rendered = self._rendered[by] = await by(self.message)
            return rendered


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn in this process has started to answer that message."""

    message_id: str


@dataclass(frozen=True, slots=True)
class TextStreamed:
    """The next text of that answer, or all text so far for a new subscriber."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """That turn has ended with a stored reply, or without one: then it is tried again, in any process."""

    message_id: str
    reply_id: str | None


@dataclass(frozen=True, slots=True)
class TimersChanged:
    """A timer or a reminder of the conversation was set, moved or cancelled, has fired or has ended."""


@dataclass(frozen=True, slots=True)
class ApprovalsChanged:
    """The agent asks about a tool call, a person has decided, or the call was made. Every subscription of a conversation with
    such calls begins with it."""


@dataclass(frozen=True, slots=True)
class MemoryChanged:
    """A memory about the owner was stored, changed or deleted; a deleted one has no `memory`."""

    change: MemoryChangeKind
    memory_id: str
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """A key or session of the owner has ended, or a first key was created: subscribers must authenticate again."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """No event has happened for a while."""


LiveEvent: TypeAlias = (
    MessageStored
    | TurnStarted
    | TextStreamed
    | TurnEnded
    | TimersChanged
    | ApprovalsChanged
    | MemoryChanged
    | AccessChanged
    | KeepAlive
)
