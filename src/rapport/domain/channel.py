"""Define what the worker needs of a channel: how to send through it, and how to receive from it.

`channels/base.py` names all parts of a channel; docs/extending/a-channel.md is the guide.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from rapport.domain.errors import Permanent, Transient
from rapport.domain.outgoing import Outgoing


class OutcomeUnknown(Transient):
    """The send may or may not have arrived: repeating it could show the message twice."""


class NotYet(Transient):
    """Nothing has failed, but it can't be done yet: try again after `retry_after`, without backoff."""


class Unreachable(Permanent):
    """The chat was deleted, or the person has blocked the agent: send nothing more there."""


class OutgoingChannel(Protocol):
    """Sends messages to a platform."""

    def send(self, outgoing: Outgoing) -> AsyncIterator[str]:
        """Send the parts that have not arrived yet, and yield the platform's id of each part once it has arrived.

        Raises Transient (the part was not delivered), OutcomeUnknown, Unreachable or Permanent.
        """
        ...

    async def find_part(self, outgoing: Outgoing) -> str | None:
        """Return the platform's id of the next part, whose send had no answer; None if that part has not arrived.

        Raises OutcomeUnknown if the platform can't tell, Transient if it can't be asked now.
        """
        ...

    async def show_typing(self, conversation_id: str, message_id: str) -> None:
        """Show for some seconds that an answer to this message is being written. May raise anything."""
        ...


class MessageSource(Protocol):
    """Receives messages from a platform. One process at a time runs it: the leader for its name."""

    @property
    def name(self) -> str:
        """Return the name of the leader lock; it is equal in every process that receives from the same account."""
        ...

    @property
    def loops(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the coroutines that run concurrently while this process is the leader. None of them returns."""
        ...

    def wake(self) -> None:
        """Handle the hint that another process may have stored something for this source."""
        ...
