"""What commands say about follow-ups, and do to them, whichever command it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rapport.domain.errors import InvalidInput
from rapport.domain.followups import Timer
from rapport.domain.timing import FOREVER, LONGEST_MUTE, Permission, duration_of

if TYPE_CHECKING:
    from rich.table import Table

    from rapport.domain.conversation import Conversation
    from rapport.storage.database import Connection

_SET_BY = {"planner": "the agent", "user": "by hand"}
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


async def mute(connection: Connection, owner_id: str, conversation_id: str, duration: str | None) -> Permission:
    """Mute a conversation for so long, or for good."""
    from rapport.storage.conversations import Conversations

    seconds = None if duration is None else duration_of(duration)
    if seconds is not None and not 1 <= seconds <= LONGEST_MUTE:
        raise InvalidInput("Mute for 1 second to 10 years; without a duration it is for good.")
    return await Conversations(connection).mute(
        owner_id, conversation_id, until=FOREVER if seconds is None else seconds
    )


def muted_words(permission: Permission) -> str:
    if permission.muted_until is None:
        return "Follow-ups are not muted."
    if permission.muted_until >= FOREVER:
        return "Follow-ups are muted for good."
    return f"Follow-ups are muted until {permission.muted_until.astimezone():%Y-%m-%d %H:%M}."


def held_back_words(conversation: Conversation, permission: Permission) -> str:
    """Why a follow-up would not be said if it were due now, as far as its owner has a say in it; empty if it would."""
    from rapport.domain.agents import AGENTS

    agent = AGENTS.get(conversation.agent_id)
    if agent is None or agent.autonomy is None:
        return f"It will not be said: {conversation.agent_id} never follows up."
    allowed = conversation.kind == "direct" if permission.autonomy is None else permission.autonomy
    if not allowed:
        return "It will not be said as long as follow-ups are off here: `rapport timers on CONVERSATION`"
    return "" if permission.muted_until is None else muted_words(permission)


def due_words(due_at: datetime, now: datetime | None = None) -> str:
    """When something is due, from now and by the clock on the wall."""
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


def waiting_table(timers: Sequence[Timer], *, with_conversation: bool = True) -> Table:
    """Follow-ups that wait."""
    from rich.table import Column, Table

    table = Table(
        *([Column("conversation", no_wrap=True)] if with_conversation else []),  # whole, to be copied
        Column("timer", overflow="fold"),
        Column("type", no_wrap=True),
        Column("due", no_wrap=True),
        Column("set", no_wrap=True),
        Column("reason", overflow="fold"),
        box=None,
    )
    for timer in timers:
        table.add_row(
            *([timer.conversation_id] if with_conversation else []),
            timer.timer_id,
            timer.trigger_type,
            due_words(timer.due_at),
            _SET_BY[timer.origin],
            _shown(timer.reason or ""),
        )
    return table


def past_table(timers: Sequence[Timer]) -> Table:
    """Follow-ups that fired, and what became of each."""
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
    for timer in timers:
        fired_at = timer.fired_at or timer.due_at
        table.add_row(
            timer.conversation_id,
            timer.timer_id,
            timer.trigger_type,
            f"{fired_at.astimezone():%Y-%m-%d %H:%M:%S}",
            f"{timer.state}: {timer.gate}" if timer.gate else timer.state,
            _shown(timer.reason or ""),
        )
    return table


def _shown(text: str) -> str:
    """Somebody's text as one line that a terminal shows and doesn't obey."""
    from rich.markup import escape

    from rapport.knowledge.files.document import one_line

    return escape(one_line(text, limit=500))
