"""What goes out through a channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press under a notice; pressing it hands `data` back."""

    label: str
    data: str


@dataclass(frozen=True, slots=True)
class Notice:
    """What a channel itself has to say, such as the answer to a command: nobody's message, and in no history."""

    text: str
    """Markdown."""
    reply_to_platform_id: str | None = None
    thread_id: str | None = None
    buttons: Sequence[Button] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Something to send: what the agent has said, or a notice."""

    conversation_id: str
    id: str
    """The message's, or the notice's own."""
    text: str
    """Markdown."""
    reply_to_platform_id: str | None = None
    """What the platform calls the message that this one answers."""
    thread_id: str | None = None
    """The forum topic it belongs to, as the platform names it."""
    buttons: Sequence[Button] = ()
    arrived_ids: Sequence[str] = ()
    """What the platform calls the parts of it that have arrived already."""
