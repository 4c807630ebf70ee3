"""Define reminders: what a person asked to be told, when, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

ReminderState: TypeAlias = Literal["waiting", "held", "done", "cancelled"]
"""`held`: it was due, and its conversation is muted or can't be reached."""

MAX_TEXT_CHARACTERS = 2_000
MAX_REMINDERS = 10_000
"""The number of reminders of one owner that may wait at once."""
MAX_YEARS_AHEAD = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a reminder is due: a time of the person's clock, or a moment; once, or by a rule."""

    local: datetime
    """The time on the clock of `zone`, without an offset. Of a rule: its next occurrence."""
    zone: str | None = None
    """The name of the time zone; None: the person's own, which may change."""
    moment: datetime | None = None
    """Set if the person named a moment ("in two hours"): it stays when the zone changes."""
    rule: str | None = None
    """A recurrence rule of RFC 5545; None: once."""
    ends_at: datetime | None = None
    """The last occurrence of the rule on the clock of `zone`; None: it has no end."""


@dataclass(frozen=True, slots=True)
class NewReminder:
    """A reminder to be stored."""

    id: str
    text: str
    schedule: Schedule
    due_at: datetime
    author_id: str | None = None
    author_name: str | None = None
    is_personal: bool = False


@dataclass(frozen=True, slots=True)
class Reminder:
    """A stored reminder."""

    id: str
    conversation_id: str
    owner_id: str
    text: str
    schedule: Schedule
    due_at: datetime
    """When it is sent next. Later than its occurrence if that is in quiet hours, or after a snooze."""
    state: ReminderState
    created_at: datetime
    author_id: str | None = None
    """Who asked for it, in a group."""
    author_name: str | None = None
    is_personal: bool = False
    """True if it is for its author alone, in a group."""
    sent_at: datetime | None = None
    """When it was last sent."""
    message_id: str | None = None
    """The message that was last sent."""
