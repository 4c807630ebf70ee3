"""List reminders with buttons, and snooze, skip or cancel them by a press."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rapport.channels.telegram.commands.command import IsAdmin
from rapport.channels.telegram.commands.notice_text import WallClock, quote
from rapport.core.reminders import Asker, ReminderBook
from rapport.domain.conversation import Author, Conversation
from rapport.domain.errors import Conflict, InvalidInput, NotFound
from rapport.domain.outgoing import Button, Notice
from rapport.domain.reminder import Reminder
from rapport.reminders.texts import describe_rule

MAX_LISTED: Final = 10
GONE: Final = "This reminder is gone: its chat was erased."
_PREFIX: Final = "remind"
_SNOOZES: Final = (("10", "Snooze 10 min"), ("60", "1 h"))
"""Minutes, and the label below a delivered reminder."""
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ReminderPress:
    """The result of a press: what the person reads, and what the message shows."""

    text: str
    rows: Sequence[Sequence[Button]] | None = None
    """The buttons that a delivered reminder has from now on; None: as they are."""
    listing: Notice | None = None
    """The list as it is now, in place of the one with the button."""


def is_reminder_button(data: str) -> bool:
    """Return True if a button with this data was made here."""
    return data.startswith(f"{_PREFIX}:")


def make_snooze_row(reminder_id: str) -> list[Button]:
    """Return the buttons below a delivered reminder."""
    return [Button(label, f"{_PREFIX}:{minutes}:{reminder_id}") for minutes, label in _SNOOZES]


async def list_reminders(conversation: Conversation, book: ReminderBook) -> Notice:
    """Return the reminders of a chat that wait, the next first, with a row of buttons for each of the first ones."""
    found, preference = await book.list(conversation.owner_id, conversation_id=conversation.id)
    clock = WallClock.for_preference(preference)
    if not found:
        return Notice("No reminder waits in this chat.")
    shown = found[:MAX_LISTED]
    lines = [f"{number}. {_describe(each, clock)}" for number, each in enumerate(shown, 1)]
    more = f"\n\n… and {len(found) - MAX_LISTED:,} more" if len(found) > MAX_LISTED else ""
    buttons = [button for row, each in enumerate(shown) for button in _make_row(each, row, is_numbered=len(shown) > 1)]
    listing = "\n".join(lines)
    return Notice(f"**Reminders of this chat**\n\n{listing}{more}\n\nTimes are {clock.name}.", buttons=buttons)


async def press_reminder_button(
    data: str, conversation: Conversation, presser: Author, presser_is_admin: IsAdmin, book: ReminderBook
) -> ReminderPress:
    """Do what a button stands for. Safe to repeat: a skip names the time that it leaves out.

    In a group only the author of the reminder or an admin may. A press that changes nothing says why.
    """
    _, action, reminder_id, due = (*data.split(":", 3), "", "", "")[:4]
    owner_id = conversation.owner_id
    try:
        reminder, preference = await book.get(owner_id, reminder_id)
        if reminder.conversation_id != conversation.id:
            return ReminderPress(GONE, ())
        clock = WallClock.for_preference(preference)
        if action == "show":
            return ReminderPress(_describe_outcome(reminder, clock))
        is_author = presser.id == reminder.author_id or not conversation.traits.has_many_speakers
        by = None if not is_author and await presser_is_admin() else Asker(presser.id)
        match action:
            case "10" | "60":
                snoozed, _ = await book.snooze(owner_id, reminder_id, until=timedelta(minutes=int(action)), by=by)
                again = Button(f"Again at {clock.format_time(snoozed.due_at)}", f"{_PREFIX}:show:{snoozed.id}")
                return ReminderPress(_describe_outcome(snoozed, clock), [[again]])
            case "later":
                snoozed, _ = await book.snooze(owner_id, reminder_id, until=_HOUR, by=by)
                text = _describe_outcome(snoozed, clock)
            case "skip" if due == _name_due(reminder):
                left, _ = await book.skip(owner_id, reminder_id, by=by)
                text = "That was the last one." if left.state == "cancelled" else _describe_outcome(left, clock)
            case "cancel" if reminder.state in ("waiting", "held"):
                await book.cancel(owner_id, reminder_id, by=by)
                text = "Cancelled."
            case _:
                text = _describe_outcome(reminder, clock)
    except NotFound:
        return ReminderPress(GONE, ())
    except Conflict as error:  # said or cancelled meanwhile
        text = str(error)
    except InvalidInput as error:  # somebody else's
        return ReminderPress(str(error))
    return ReminderPress(text, listing=await list_reminders(conversation, book))


def _make_row(reminder: Reminder, row: int, *, is_numbered: bool) -> list[Button]:
    number = f" {row + 1}" if is_numbered else ""
    actions = [("Snooze 1 h", f"later:{reminder.id}")]
    if reminder.schedule.rule is not None:
        actions.append(("Skip", f"skip:{reminder.id}:{_name_due(reminder)}"))
    actions.append(("Cancel", f"cancel:{reminder.id}"))
    return [Button(f"{label}{number}", f"{_PREFIX}:{data}", row) for label, data in actions]


def _name_due(reminder: Reminder) -> str:
    return f"{reminder.schedule.local:%Y%m%dT%H%M}"


def _describe(reminder: Reminder, clock: WallClock) -> str:
    rule = "" if reminder.schedule.rule is None else f", {describe_rule(reminder.schedule)}"
    held = ", held back until this chat is open" if reminder.state == "held" else ""
    name = quote(reminder.author_name or "", limit=40)
    author = f" ({'for' if reminder.is_personal else 'asked for by'} {name})" if name else ""
    when = f"**{clock.format_time(reminder.due_at)}** ({clock.format_distance(reminder.due_at)}){rule}{held}"
    return f"{when}: {quote(reminder.text, limit=160)}{author}"


def _describe_outcome(reminder: Reminder, clock: WallClock) -> str:
    match reminder.state:
        case "waiting":
            return f"It comes at {clock.format_time(reminder.due_at)} ({clock.zone.key})."
        case "held":
            return "It is held back until this chat is open."
        case "done":
            return "It was said."
        case "cancelled":
            return "It was cancelled."
