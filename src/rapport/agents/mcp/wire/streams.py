"""Define what the transports have in common: two streams of messages, in the types of the official package."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, cast

from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

Incoming: TypeAlias = SessionMessage | Exception
"""A message, or the error of something that is none."""


class Streams(NamedTuple):
    """The messages that come from a server and those that go to it."""

    incoming: MemoryObjectReceiveStream[Incoming]
    outgoing: MemoryObjectSendStream[SessionMessage]


class ConnectionLost(Exception):
    """The connection can't be made, or has ended. The text says why, without secrets of the configuration."""


def find_cause(error: BaseException) -> BaseException:
    """Return the ConnectionLost in a group of errors if there is one, and the first error otherwise."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    causes = [find_cause(each) for each in group.exceptions]
    return next((cause for cause in causes if isinstance(cause, ConnectionLost)), causes[0])
