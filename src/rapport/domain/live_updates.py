"""What whoever watches a conversation is told, as it happens."""

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
    """A message that was stored or changed. `seq` rises: whoever comes back says up to where everything is known."""

    seq: int
    message: Message
    _rendered: dict[MessageRenderer, bytes] = field(default_factory=dict[MessageRenderer, bytes])
    _render_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def render(self, by: MessageRenderer) -> bytes:
        """The message as this function shows it: made once, however many watch."""
        async with self._render_lock:
            if (shown := self._rendered.get(by)) is None:
                shown = self._rendered[by] = await by(self.message)
            return shown


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """In this process a turn has begun to answer that message."""

    message_id: str


@dataclass(frozen=True, slots=True)
class TextStreamed:
    """The next words of that answer, or all of them so far for who has just come."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """That turn is over, with a reply that is stored, or without: then it is tried again, here or elsewhere."""

    message_id: str
    reply_id: str | None


@dataclass(frozen=True, slots=True)
class TimersChanged:
    """A follow-up of the conversation was set, moved or cancelled, has fired or has ended."""


@dataclass(frozen=True, slots=True)
class MemoryChanged:
    """What an agent remembers about the owner has changed; `memory` is unset of one that is gone."""

    change: MemoryChangeKind
    memory_id: str
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """A key or a session of the owner has ended, or a first key was made: who watches must show again who they are."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Nothing has happened for a while."""


LiveEvent: TypeAlias = (
    MessageStored | TurnStarted | TextStreamed | TurnEnded | TimersChanged | MemoryChanged | AccessChanged | KeepAlive
)
