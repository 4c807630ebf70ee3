"""Define messages and notices that are sent through a channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapport.domain.tool_call import ToolCall


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a notice; pressing it returns `data`."""

    label: str
    data: str
    row: int = 0
    """The row of buttons that it stands in."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A text of the channel itself, such as the answer to a command. It is no message and in no history."""

    text: str
    """Markdown."""
    reply_to_platform_id: str | None = None
    thread_id: str | None = None
    buttons: Sequence[Button] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message of the agent or a notice, to be sent."""

    conversation_id: str
    id: str
    """The id of the message or of the notice."""
    text: str
    """Markdown."""
    reply_to_platform_id: str | None = None
    """The platform's id of the message that this one answers."""
    thread_id: str | None = None
    """The platform's id of its forum topic."""
    buttons: Sequence[Button] = ()
    questions: Sequence[ToolCall] = ()
    """The questions about tool calls that the text asks, in its order, with their state now. A channel that can take answers passes
    them to `core.approvals.decide`; others ignore them."""
    reminder_id: str | None = None
    """The reminder that the text delivers. A channel with buttons may offer to snooze it (`core.reminders`)."""
    arrived_ids: Sequence[str] = ()
    """The platform's ids of the parts that have arrived already."""
