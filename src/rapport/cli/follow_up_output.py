"""Show and mute follow-ups for every command that deals with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rapport.cli.output import escape_line, make_plain_line
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import Timer
from rapport.domain.follow_up_requests import FOREVER, MAX_MUTE_SECONDS, Permission, parse_duration

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from rapport.domain.agent_profile import AgentProfile
    from rapport.domain.conversation import Conversation
    from rapport.storage.database import Connection

_SET_BY = {"planner": "the agent", "user": "by hand"}
_SET_BY_IN_A_SENTENCE = {"planner": "by the agent", "user": "by hand"}
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
WIDE = 140
"""The minimal width of a terminal for a table with whole ids and texts. A narrower table would cut ids that other commands
need."""


async def mute(connection: Connection, owner_id: str, conversation_id: str, duration: str | None) -> Permission:
    """Mute a conversation for a duration, or permanently."""
    from rapport.storage.conversations.conversations import Conversations

    seconds = None if duration is None else parse_duration(duration)
    if seconds is not None and not 1 <= seconds <= MAX_MUTE_SECONDS:
        raise InvalidInput("Mute for 1 second to 10 years; without a duration it is for good.")
    return await Conversations(connection).mute(
        owner_id, conversation_id, until=FOREVER if seconds is None else seconds
    )


def describe_mute(permission: Permission) -> str:
    """Return whether follow-ups are muted, and how many reminders wait until the mute ends."""
    from rapport.reminders.texts import describe_held

    if permission.muted_until is None:
        return "Follow-ups are not muted."
    end = permission.muted_until
    duration = "for good" if end >= FOREVER else f"until {end.astimezone():%Y-%m-%d %H:%M}"
    return f"Follow-ups are muted {duration}. {describe_held(permission)}".rstrip()


def describe_obstacle(conversation: Conversation, permission: Permission, agent: AgentProfile) -> str:
    """Return why the owner's settings would suppress a follow-up that is due now; empty if they would not."""
    if agent.autonomy is None:
        return f"It will not be said: {conversation.agent_id} never follows up."
    if not conversation.traits.wants_follow_ups(permission.autonomy):
        return "It will not be said as long as follow-ups are off here: `rapport timers on CONVERSATION`"
    return "" if permission.muted_until is None else describe_mute(permission)


def describe_due_time(due_at: datetime, now: datetime | None = None) -> str:
    """Return a due time as a duration from now and as local time."""
    seconds = round((due_at - (now or datetime.now(UTC))).total_seconds())
    local = due_at.astimezone()
    if seconds <= 0:
        return f"now ({local:%H:%M:%S})"
    parts: list[str] = []
    for unit, length in _UNITS:
        count, seconds = divmod(seconds, length)
        if count and len(parts) < 2:
            parts.append(f"{count}{unit}")
    today = (now or datetime.now(UTC)).astimezone().date() == local.date()
    return f"in {' '.join(parts)} ({local:{'%H:%M:%S' if today else '%Y-%m-%d %H:%M'}})"


def render_pending(timers: Sequence[Timer], *, width: int) -> Table | Group:
    """Render pending follow-ups for a terminal of this width."""
    if width < WIDE:
        return render_pending_lines(timers)
    from rich.table import Column, Table

    table = Table(
        Column("conversation", no_wrap=True),  # the whole id, to be copied
        Column("timer", overflow="fold"),
        Column("type", no_wrap=True),
        Column("due", no_wrap=True),
        Column("set", no_wrap=True),
        Column("reason", overflow="fold"),
        box=None,
    )
    for timer in timers:
        table.add_row(
            timer.conversation_id,
            timer.timer_id,
            timer.trigger_type,
            describe_due_time(timer.due_at),
            _SET_BY[timer.origin],
            escape_line(timer.reason or ""),
        )
    return table


def render_pending_lines(timers: Sequence[Timer], *, with_conversation: bool = True) -> Group:
    """Render pending follow-ups, a few lines each."""
    return render_records(
        [
            f"{timer.conversation_id}  {timer.timer_id}" if with_conversation else timer.timer_id,
            f"{timer.trigger_type}, due {describe_due_time(timer.due_at)}, set {_SET_BY_IN_A_SENTENCE[timer.origin]}",
            make_plain_line(timer.reason or ""),
        ]
        for timer in timers
    )


def render_past(timers: Sequence[Timer], *, width: int) -> Table | Group:
    """Render fired follow-ups with their outcomes for a terminal of this width."""
    rows = [
        (
            timer.conversation_id,
            timer.timer_id,
            timer.trigger_type,
            f"{(timer.fired_at or timer.due_at).astimezone():%Y-%m-%d %H:%M:%S}",
            f"{timer.state}: {timer.gate}" if timer.gate else timer.state,
            make_plain_line(timer.reason or ""),
        )
        for timer in timers
    ]
    if width < WIDE:
        return render_records(
            [f"{conversation}  {name}", f"{kind}, {fired}, {outcome}", reason]
            for conversation, name, kind, fired, outcome, reason in rows
        )
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table(
        Column("conversation", no_wrap=True),
        Column("timer", overflow="fold"),
        Column("type", no_wrap=True),
        Column("fired", no_wrap=True),
        Column("became", no_wrap=True),
        Column("reason", overflow="fold"),
        box=None,
    )
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def render_records(records: Iterable[Sequence[str]]) -> Group:
    """Render each record as a first line with the others below it. Nothing is markup, and empty lines are left out."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(
        *(
            Group(
                Text(first, style="bold", overflow="fold"),
                *(Padding(Text(line, overflow="fold"), (0, 0, 0, 2), expand=False) for line in rest if line),
            )
            for first, *rest in records
        )
    )
