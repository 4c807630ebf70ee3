"""What channels need of the core; the runtime provides it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from rapport.domain.conversation import Incoming, Message
from rapport.domain.event import Accepted


class Ticket(Protocol):
    """A stored message and, if it is to be answered, a way to wait for that."""

    @property
    def accepted(self) -> Accepted: ...

    def tokens(self) -> AsyncIterator[str]:
        """Empty strings among them are signs of life."""
        ...

    async def reply(self) -> Message: ...

    def close(self) -> None:
        """Nobody waits any more."""
        ...


class Core(Protocol):
    """The way in."""

    async def accept(self, incoming: Incoming, *, listen: bool = False) -> Ticket: ...

    async def cancel(self, owner_id: str, conversation_id: str, message_id: str | None = None) -> bool:
        """Stop what runs there; with a message's id only what answers that one, also if it has not begun yet."""
        ...

    async def erase(self, owner_id: str, conversation_id: str) -> None: ...
