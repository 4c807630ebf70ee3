"""`rapport timers`: manage follow-ups."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rapport.cli import follow_up_output as followups
from rapport.cli.owner_option import owner_option
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import TRIGGER_TYPES, Timer, find_trigger_type
from rapport.domain.follow_up_requests import (
    Permission,
    Preference,
    check_delay,
    check_preference,
    check_reason,
    check_timer_id,
    parse_duration,
    parse_time_of_day,
)
from rapport.settings import Settings

if TYPE_CHECKING:
    from rapport.domain.follow_up_outcomes import OutcomeCount, Outcomes
    from rapport.storage.database import Connection

T = TypeVar("T")

PAST_SHOWN = 200
STATS_COLUMNS = ("fired", "delivered", "suppressed", "superseded", "leaked", "failed", "expired", "answered", "rate")
STATS_WIDE = 110
"""The width of the table of outcomes."""

app = typer.Typer(
    help="Follow-ups: list, set, postpone, cancel, mute, unmute, on, off, quiet, stats.", no_args_is_help=True
)

User = Annotated[str, owner_option("The owner; `local` is the user of a server without keys.")]
Where = Annotated[str, typer.Argument(metavar="CONVERSATION", help="The conversation's id or a prefix of it.")]
Which = Annotated[str, typer.Argument(metavar="TIMER", help="The timer's name or a prefix of it.")]
Duration = Annotated[str, typer.Argument(metavar="DURATION", help="90s, 10m, 2h, 1d or 1h30m, from now.")]


@app.command("list")
def list_(
    conversation: Annotated[str | None, typer.Option(help="Only those of this conversation.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also fired ones, with their outcomes.")] = False,
    user: User = LOCAL_USER,
) -> None:
    """List pending follow-ups, the next first."""
    from rich.console import Console

    from rapport.storage.conversations.conversations import Conversations
    from rapport.storage.followups.timers import Timers

    async def job(connection: Connection) -> tuple[list[Timer], list[Timer]]:
        conversation_id = (
            None if conversation is None else (await Conversations(connection).get_by_prefix(user, conversation)).id
        )
        timers = Timers(connection)
        past = await timers.list_past(user, conversation_id, limit=PAST_SHOWN) if every else []
        return await timers.list_pending(user, conversation_id), past

    pending, past = _in_database(job)
    console = Console(highlight=False)
    console.print(followups.render_pending(pending, width=console.width) if pending else "No follow-up waits.")
    if every:
        console.print()
        console.print(followups.render_past(past, width=console.width) if past else "None has fired yet.")


@app.command("set")
def set_(
    conversation: Where,
    trigger_type: Annotated[str, typer.Argument(metavar="TYPE", help=", ".join(TRIGGER_TYPES))],
    delay: Duration,
    reason: Annotated[str | None, typer.Option(help="A reason, for people: no model reads it.")] = None,
    name: Annotated[str | None, typer.Option(help="A name; setting the same name again moves the timer.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """Set a follow-up: the agent sends it if nobody writes before it is due."""
    from rapport.agents.directory import read_profile
    from rapport.agents.profiles import COMPANION
    from rapport.domain.ids import new_id
    from rapport.storage.agents import Agents
    from rapport.storage.conversations.conversations import Conversations
    from rapport.storage.followups.timers import Timers

    async def job(connection: Connection) -> tuple[Timer, str]:
        kind = find_trigger_type(trigger_type)
        if kind is None:
            raise InvalidInput(f"There is no type {trigger_type[:40]!r}; there are {', '.join(TRIGGER_TYPES)}.")
        found_conversation = await Conversations(connection).get_by_prefix(user, conversation)
        timer = await Timers(connection).set(
            user,
            found_conversation.id,
            timer_id=new_id() if name is None else check_timer_id(name),
            trigger_type=kind,
            delay=check_delay(parse_duration(delay)),
            reason=check_reason(reason or "") or None,
        )
        assert timer is not None
        permission = await Conversations(connection).get_permission(user, found_conversation.id)
        stored = await Agents(connection).find(user, found_conversation.agent_id)
        agent = COMPANION if stored is None else read_profile(stored)
        return timer, followups.describe_obstacle(found_conversation, permission, agent)

    timer, why_not = _in_database(job)
    typer.echo(f"{timer.timer_id} is due {followups.describe_due_time(timer.due_at)}.")
    if why_not:
        typer.secho(why_not, fg="yellow")


@app.command()
def postpone(conversation: Where, timer: Which, delay: Duration, user: User = LOCAL_USER) -> None:
    """Postpone a follow-up to a time from now."""
    from rapport.storage.followups.timers import Timers, no_such_timer

    async def job(connection: Connection) -> Timer:
        seconds = check_delay(parse_duration(delay))
        conversation_id, timer_name = await _find_timer(connection, user, conversation, timer)
        changed = await Timers(connection).change(user, conversation_id, timer_name, delay=seconds)
        if changed is None:
            raise no_such_timer(timer)
        return changed

    changed = _in_database(job)
    typer.echo(f"{changed.timer_id} is due {followups.describe_due_time(changed.due_at)}.")


@app.command()
def cancel(conversation: Where, timer: Which, user: User = LOCAL_USER) -> None:
    """Cancel a pending follow-up."""
    from rapport.storage.followups.timers import Timers, no_such_timer

    async def job(connection: Connection) -> str:
        conversation_id, timer_name = await _find_timer(connection, user, conversation, timer)
        if not await Timers(connection).cancel(user, conversation_id, timer_name):
            raise no_such_timer(timer)
        return timer_name

    typer.echo(f"Cancelled {_in_database(job)}.")


@app.command()
def mute(
    conversation: Where,
    duration: Annotated[str | None, typer.Argument(help="8h, 2d, …; permanently without it.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """Mute the follow-ups of a conversation. Messages are still answered."""

    from rapport.storage.conversations.conversations import Conversations

    async def job(connection: Connection) -> Permission:
        return await followups.mute(
            connection, user, (await Conversations(connection).get_by_prefix(user, conversation)).id, duration
        )

    typer.echo(followups.describe_mute(_in_database(job)))


@app.command()
def unmute(conversation: Where, user: User = LOCAL_USER) -> None:
    """Unmute the follow-ups of a conversation."""
    from rapport.storage.conversations.conversations import Conversations

    async def job(connection: Connection) -> Permission:
        found_conversation = await Conversations(connection).get_by_prefix(user, conversation)
        return await Conversations(connection).mute(user, found_conversation.id, until=None)

    typer.echo(followups.describe_mute(_in_database(job)))


@app.command()
def on(conversation: Where, user: User = LOCAL_USER) -> None:
    """Turn follow-ups on in a conversation. In groups they are off by default."""
    _allow(conversation, user, True)
    typer.echo("Follow-ups are on.")


@app.command()
def off(conversation: Where, user: User = LOCAL_USER) -> None:
    """Turn follow-ups off in a conversation."""
    _allow(conversation, user, False)
    typer.echo("Follow-ups are off.")


def _allow(conversation: str, user: str, allowed: bool) -> None:
    from rapport.storage.conversations.conversations import Conversations

    async def job(connection: Connection) -> None:
        found_conversation = await Conversations(connection).get_by_prefix(user, conversation)
        await Conversations(connection).set_followups_enabled(user, found_conversation.id, allowed)

    _in_database(job)


@app.command()
def quiet(
    begin: Annotated[str | None, typer.Argument(help="The start: 22:00. Or `off`.")] = None,
    end: Annotated[str | None, typer.Argument(help="The end: 08:00.")] = None,
    zone: Annotated[str | None, typer.Option(help="The time zone: Europe/Berlin. UTC until one is set.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """Set the time zone and the hours without follow-ups; without arguments, show them. Reminders move with them."""
    from dataclasses import replace

    from rapport.core.reminders import reschedule
    from rapport.followups.gates import check_time_zone
    from rapport.storage.followups.preferences import Preferences

    async def job(connection: Connection) -> Preference:
        preferences = Preferences(connection)
        new_preference = before = await preferences.get(user)
        if begin == "off" and end is None:
            new_preference = replace(new_preference, quiet_from=None, quiet_to=None)
        elif begin is not None:
            new_preference = replace(
                new_preference, quiet_from=parse_time_of_day(begin), quiet_to=end and parse_time_of_day(end)
            )
        if zone is not None:
            new_preference = replace(new_preference, time_zone=check_time_zone(zone))
        if new_preference != before:
            await preferences.put(user, check_preference(new_preference))
            await reschedule(connection, user, new_preference)
        return new_preference

    stored = _in_database(job)
    if stored.quiet_from is None or stored.quiet_to is None:
        typer.echo(f"There are no quiet hours. The time zone is {stored.time_zone}.")
    else:
        typer.echo(f"It is quiet from {stored.quiet_from:%H:%M} to {stored.quiet_to:%H:%M}, {stored.time_zone}.")


@app.command()
def stats(days: Annotated[int, typer.Option(min=1, max=3_660)] = 30, user: User = LOCAL_USER) -> None:
    """Count the outcomes of follow-ups, and how many were answered within an hour."""
    from rich.console import Console
    from rich.table import Column, Table

    from rapport.domain.follow_up_outcomes import (
        count_outcomes,
        count_outcomes_by_type,
        count_outcomes_by_variant,
    )
    from rapport.storage.followups.follow_up_turns import FollowUpTurns

    async def job(connection: Connection) -> list[OutcomeCount]:
        return await FollowUpTurns(connection).count_outcomes(user, days=days)

    counts = _in_database(job)
    total = count_outcomes(counts)
    rows = {kind: _figures(outcomes) for kind, outcomes in (*count_outcomes_by_type(counts).items(), ("all", total))}
    console = Console(highlight=False)
    if console.width < STATS_WIDE:
        console.print(followups.render_records([kind, _nonzero(figures)] for kind, figures in rows.items()))
    else:
        table = Table(
            Column("type", no_wrap=True), *(Column(name, justify="right") for name in STATS_COLUMNS), box=None
        )
        for kind, figures in rows.items():
            table.add_row(kind, *figures)
        console.print(table)
    if total.suppressed:
        gates = ", ".join(f"{gate} {count:,}" for gate, count in sorted(total.suppressed.items()))
        console.print(f"Held back by: {gates}.", soft_wrap=True)
    if variants := count_outcomes_by_variant(counts):
        console.print("\nPrompts, with 95 % intervals of the answer rate:")
        console.print(
            followups.render_records(
                [
                    f"{each.agent_id}: {each.trigger_type}, {each.variant}",
                    f"{each.fired:,} fired, {each.rate.describe()}",
                ]
                for each in variants
            )
        )


def _nonzero(figures: Sequence[str]) -> str:
    """Return the figures in one line, for terminals without room for a table."""
    parts = [f"{name} {figure}" for name, figure in zip(STATS_COLUMNS, figures, strict=True) if figure not in {"", "0"}]
    return ", ".join(parts) or "none"


def _figures(outcomes: Outcomes) -> list[str]:
    rate = outcomes.response_rate
    return [
        *(
            f"{count:,}"
            for count in (
                outcomes.fired,
                outcomes.delivered,
                sum(outcomes.suppressed.values()),
                outcomes.superseded,
                outcomes.leaked,
                outcomes.failed,
                outcomes.expired,
                outcomes.answered,
            )
        ),
        "" if rate is None else f"{rate:.0%}",
    ]


def _in_database(job: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    """Run a job on the migrated database in one transaction."""
    from rapport.cli.main import start

    async def on_database(settings: Settings) -> T:
        from rapport.cli.database import open_migrated_database

        async with open_migrated_database(settings) as database, database.transaction() as connection:
            return await job(connection)

    return start(on_database, level="warning")


async def _find_timer(connection: Connection, user: str, conversation: str, timer: str) -> tuple[str, str]:
    """Return the id of a conversation and the name of a pending timer, each found by a prefix."""
    from rapport.storage.conversations.conversations import Conversations
    from rapport.storage.followups.timers import Timers, no_such_timer

    found_conversation = await Conversations(connection).get_by_prefix(user, conversation)
    names = [pending.timer_id for pending in await Timers(connection).list_pending(user, found_conversation.id)]
    matches = [timer] if timer in names else [name for name in names if timer and name.startswith(timer)]
    if len(matches) > 1:
        raise InvalidInput(f"Several follow-ups begin with {timer[:64]!r}: {', '.join(matches[:5])}.")
    if not matches:
        raise no_such_timer(timer)
    return found_conversation.id, matches[0]
