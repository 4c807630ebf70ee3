"""`rapport reminders`: manage what people ask to be told."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from rapport.cli.output import make_plain_line
from rapport.cli.owner_option import owner_option
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.follow_up_requests import Preference, parse_duration
from rapport.domain.reminder import MAX_REMINDERS, Reminder
from rapport.settings import Settings

if TYPE_CHECKING:
    from rich.console import Group

    from rapport.core.reminders import ReminderBook

T = TypeVar("T")

PAST_SHOWN = 200
RULES = {
    "daily": "FREQ=DAILY",
    "weekdays": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR",
    "weekly": "FREQ=WEEKLY",
    "monthly": "FREQ=MONTHLY",
}

app = typer.Typer(help="Reminders: list, add, snooze, skip, cancel, export.", no_args_is_help=True)

User = Annotated[str, owner_option("The owner; `local` is the user of a server without keys.")]
Which = Annotated[str, typer.Argument(metavar="REMINDER", help="The reminder's id or a prefix of it.")]


@app.command("list")
def list_(
    conversation: Annotated[str | None, typer.Option(help="Only those of this conversation.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were said or cancelled.")] = False,
    user: User = LOCAL_USER,
) -> None:
    """List the reminders that wait, the next first."""
    from rich.console import Console

    async def job(book: ReminderBook) -> tuple[Sequence[Reminder], Sequence[Reminder], Preference]:
        where = None if conversation is None else await _find_conversation(book, user, conversation)
        waiting, preference = await book.list(user, conversation_id=where)
        past, _ = await book.list(user, conversation_id=where, past=True, limit=PAST_SHOWN) if every else ((), None)
        return waiting, past, preference

    waiting, past, preference = _on_book(job)
    console = Console(highlight=False)
    console.print(render_reminders(waiting, preference) if waiting else "No reminder waits.")
    if every:
        console.print()
        console.print(render_reminders(past, preference) if past else "None was said or cancelled yet.")


@app.command()
def add(
    conversation: Annotated[str, typer.Argument(help="The conversation's id or a prefix of it.")],
    text: Annotated[str, typer.Argument(help="The words that it says.")],
    at: Annotated[str | None, typer.Option(help="2026-11-20T09:00, on the owner's clock; +01:00 or Z at its end makes it a moment.")] = None,
    after: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="90s, 10m, 2h, 1d or 1h30m, from now.")] = None,
    repeat: Annotated[Literal["daily", "weekdays", "weekly", "monthly"] | None, typer.Option(help="How often.")] = None,
    rrule: Annotated[str | None, typer.Option(help="How often, by a rule of RFC 5545: FREQ=WEEKLY;BYDAY=MO,FR")] = None,
    zone: Annotated[str | None, typer.Option(help="The clock that counts, instead of the owner's: Asia/Tokyo")] = None,
    user: User = LOCAL_USER,
) -> None:  # fmt: skip
    """Set a reminder: its words are said at its time, whatever is written meanwhile."""

    async def job(book: ReminderBook) -> tuple[Reminder, Preference]:
        if at is not None and after is not None:
            raise InvalidInput("Give --at or --in, not both.")
        if repeat is not None and rrule is not None:
            raise InvalidInput("Give --repeat or --rrule, not both.")
        rule = RULES[repeat] if repeat is not None else rrule
        if at is None and after is None and rule is None:
            raise InvalidInput("Say when: with --at, --in, --repeat or --rrule.")
        moment = parse_time(at) if at is not None else None if after is None else add_duration(book.now(), after)
        where = await _find_conversation(book, user, conversation)
        return await book.add(user, where, text=text, at=moment, rule=rule, zone=zone)

    stored, preference = _on_book(job)
    typer.echo(f"{stored.id} is set for {describe_when(stored, preference)}.")


@app.command()
def snooze(
    reminder: Which,
    until: Annotated[str, typer.Argument(metavar="DURATION|TIME", help="10m, 2h, 1d from now, or 2026-11-20T09:00.")],
    user: User = LOCAL_USER,
) -> None:
    """Say a reminder later, or again."""

    async def job(book: ReminderBook) -> tuple[Reminder, Preference]:
        end = parse_time(until) if "-" in until else add_duration(book.now(), until)
        return await book.snooze(user, await _find(book, user, reminder, past=True), until=end)

    snoozed, preference = _on_book(job)
    typer.echo(f"{snoozed.id} is due {describe_moment(snoozed.due_at, preference)}.")


@app.command()
def skip(reminder: Which, user: User = LOCAL_USER) -> None:
    """Leave out the next occurrence of a recurring reminder."""

    async def job(book: ReminderBook) -> tuple[Reminder, Preference]:
        return await book.skip(user, await _find(book, user, reminder))

    left, preference = _on_book(job)
    if left.state == "cancelled":
        typer.echo(f"That was the last one of {left.id}.")
    else:
        typer.echo(f"{left.id} comes next {describe_when(left, preference)}.")


@app.command()
def cancel(reminder: Which, user: User = LOCAL_USER) -> None:
    """Cancel a reminder with all its occurrences."""

    async def job(book: ReminderBook) -> str:
        found = await _find(book, user, reminder)
        await book.cancel(user, found)
        return found

    typer.echo(f"Cancelled {_on_book(job)}.")


@app.command()
def export(
    file: Annotated[Path | None, typer.Argument(help="Where to write it; without it, to the output.")] = None,
    user: User = LOCAL_USER,
) -> None:
    """Write the reminders that wait as an iCalendar file (.ics)."""
    from rapport.channels.http.rendering.reminder_views import write_calendar
    from rapport.cli.main import fail

    async def job(book: ReminderBook) -> tuple[Sequence[Reminder], Preference]:
        return await book.list(user, limit=MAX_REMINDERS)

    found, preference = _on_book(job)
    content = write_calendar(found, preference).encode()
    if file is None:
        typer.echo(content, nl=False)
        return
    try:
        file.write_bytes(content)
    except OSError as error:
        fail(f"{file} can't be written: {error.strerror}.")
    typer.echo(f"{'1 reminder is' if len(found) == 1 else f'{len(found):,} reminders are'} in {file}.")


def render_reminders(reminders: Sequence[Reminder], preference: Preference, *, with_conversation: bool = True) -> Group:
    """Render reminders, a few lines each. Nothing in their words is markup."""
    from rapport.cli.follow_up_output import render_records

    return render_records(
        [
            f"{each.conversation_id}  {each.id}" if with_conversation else each.id,
            _describe_state(each, preference),
            make_plain_line(each.text),
        ]
        for each in reminders
    )


def describe_when(reminder: Reminder, preference: Preference) -> str:
    """Return when a reminder comes, and how often, on the clock of its zone."""
    from rapport.reminders.texts import describe_schedule

    return describe_schedule(reminder.schedule, own_zone=preference.time_zone)


def describe_moment(moment: datetime, preference: Preference) -> str:
    from zoneinfo import ZoneInfo

    from rapport.reminders.texts import describe_time

    return f"{describe_time(moment.astimezone(ZoneInfo(preference.time_zone)))} ({preference.time_zone})"


def add_duration(now: datetime, text: str) -> datetime:
    try:
        return now + timedelta(seconds=parse_duration(text))
    except OverflowError as error:
        raise InvalidInput("This duration is too long.") from error


def parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidInput("A time must be in ISO 8601, such as 2026-11-20T09:00.") from error


def _describe_state(reminder: Reminder, preference: Preference) -> str:
    when = describe_when(reminder, preference)
    if reminder.is_personal:
        when += f", for {make_plain_line(reminder.author_name or 'its author')}"
    match reminder.state:
        case "done" if reminder.sent_at is not None:
            return f"said {describe_moment(reminder.sent_at, preference)}"
        case "done" | "cancelled":
            return f"cancelled; it was for {when}"
        case "held":
            return f"{when}; held back: its conversation is muted or can't be reached"
        case "waiting":
            from rapport.reminders.recurrence import get_due

            is_moved = reminder.due_at != get_due(reminder.schedule, own_zone=preference.time_zone, quiet=None)
            return f"{when}; due {describe_moment(reminder.due_at, preference)}" if is_moved else when


async def _find_conversation(book: ReminderBook, user: str, prefix: str) -> str:
    from rapport.storage.conversations.conversations import Conversations

    async with book.database.statement() as connection:
        return (await Conversations(connection).get_by_prefix(user, prefix)).id


async def _find(book: ReminderBook, user: str, prefix: str, *, past: bool = False) -> str:
    """Return the id of the owner's reminder that begins with this prefix, in upper or lower case."""
    found, _ = await book.list(user, limit=MAX_REMINDERS)
    if past:
        found = [*found, *(await book.list(user, past=True))[0]]
    wanted = prefix.upper()
    matches = [each.id for each in found if wanted and each.id.upper().startswith(wanted)]
    if len(matches) > 1:
        raise InvalidInput(f"Several reminders begin with {prefix[:64]!r}: {', '.join(matches[:5])}.")
    if not matches:
        raise NotFound(f"No reminder that begins with {prefix[:64]!r} waits.")
    return matches[0]


def _on_book(job: Callable[[ReminderBook], Coroutine[Any, Any, T]]) -> T:
    """Run a job on the reminders of the migrated database."""
    from rapport.cli.main import start

    async def on_database(settings: Settings) -> T:
        from rapport.cli.database import open_migrated_database
        from rapport.core.reminders import ReminderBook

        async with open_migrated_database(settings) as database:
            return await job(ReminderBook(database, lambda: datetime.now(UTC)))

    return start(on_database, level="warning")
