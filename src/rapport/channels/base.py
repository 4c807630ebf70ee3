"""Define the parts of a channel and what the server gives it. The guide is docs/extending/a-channel.md.

A channel is a folder with a function `open_channel`, listed in `channels/registry.py`. It provides an `OutgoingChannel`
(sends), and where it receives messages a `MessageSource` (polls) or routers (webhooks).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from rapport.domain.channel import MessageSource, NotYet, OutcomeUnknown, OutgoingChannel, Unreachable

if TYPE_CHECKING:  # listing the channels must not import the whole server
    from fastapi import APIRouter

    from rapport.core.core import Core
    from rapport.domain.outgoing import Notice
    from rapport.storage.database import Database

__all__ = [
    "Channel",
    "ChannelServices",
    "MessageSource",
    "NotYet",
    "OpenChannel",
    "OutcomeUnknown",
    "OutgoingChannel",
    "PostNotice",
    "Unreachable",
]


class PostNotice(Protocol):
    """Queues a notice for sending, once per `name`."""

    async def __call__(
        self, owner_id: str, conversation_id: str, notice: Notice, *, name: str, channel: str
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """The parts of the server that a channel uses."""

    core: Core
    """Accepts messages; reads and writes conversations."""
    post_notice: PostNotice
    database: Database
    """For tables of the channel's own."""
    autonomy: bool
    """True if this server sends follow-ups."""


@dataclass(frozen=True, slots=True)
class Channel:
    """An open channel. Conversations belong to it by its name (`conversations.channel`)."""

    name: str
    outgoing: OutgoingChannel
    source: MessageSource | None = None
    routers: Sequence[APIRouter] = ()
    """Routes that the platform calls. They authenticate their caller themselves."""


SettingsT = TypeVar("SettingsT")

OpenChannel: TypeAlias = Callable[[SettingsT, ChannelServices], AbstractAsyncContextManager["Channel | None"]]
"""Opens a channel for the lifetime of the process; returns None if the settings do not configure it."""
