"""Set the reminders that a person asks for with a message: check them, say so in the reply, and store them with it (ADR 100)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rapport.agents.graph_run import Answer
from rapport.agents.tools.recorded import CheckReminder, RequestedReminder
from rapport.agents.tools.registry import SET_REMINDER, is_chosen
from rapport.domain.errors import InvalidInput
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.follow_up_requests import Preference
from rapport.domain.ids import derive_id, is_ephemeral_id
from rapport.domain.reminder import MAX_REMINDERS, MAX_TEXT_CHARACTERS, NewReminder
from rapport.followups.own_words import find_own_subject, is_founded
from rapport.reminders.new_reminder import Asker, get_quiet_hours, make_reminder
from rapport.reminders.recurrence import get_due
from rapport.reminders.requests import asks_for_reminder, find_requests
from rapport.reminders.texts import describe_schedule, write_confirmation, write_refusal
from rapport.replies.defusing import defuse
from rapport.storage.database import Connection
from rapport.storage.followups.preferences import Preferences
from rapport.storage.reminders.reminders import Reminders
from rapport.turns.remember import list_own_texts
from rapport.turns.turn import Turn

_TOO_MANY = f"{MAX_REMINDERS:,} reminders wait already: cancel some first."
_IMITATED = "(Reminder set"
_ONLY_THESE = "(With this reply, only the following was set.)"
_NOTHING_SET = "(With this reply no reminder was set.)"


def may_set_reminders(turn: Turn) -> bool:
    """Return True if this turn may set reminders: a person speaks in a stored conversation, and the agent has the tool.

    A strict agent answers from its notes alone, unless it names the tool.
    """
    if turn.event.trigger_type is not None or is_ephemeral_id(turn.event.conversation_id):
        return False
    chosen = turn.profile.tools
    may_set = turn.profile.grounding != "strict" if chosen is None else is_chosen(SET_REMINDER.name, chosen)
    return may_set and turn.profile.replaces is None


def make_reminder_check(turn: Turn) -> CheckReminder:
    """Return a function that checks a reminder which the model asks for."""

    async def check(requested: RequestedReminder) -> tuple[RequestedReminder, str]:
        own = requested.copy()
        own["text"] = _choose_own_text(turn, requested["text"])
        preference, waiting = await _load_preference(turn)
        new = await asyncio.to_thread(_make, turn, own, preference, 0)
        if waiting >= MAX_REMINDERS:
            raise InvalidInput(_TOO_MANY)
        return own, describe_schedule(new.schedule, own_zone=preference.time_zone)

    return check


async def add_reminders(turn: Turn, reply: Reply, answer: Answer) -> Reply:
    """Return the reply with the reminders that are asked for, and with a line for each that is set or refused.

    The model has asked for them by its tool; of a model that calls no tools, rules find them in the person's message.
    """
    lines: list[str] = []
    reminders: list[NewReminder] = []
    wanted, refusals = answer.reminders, list(dict.fromkeys(answer.refusals))
    if not wanted and not refusals and finds_reminders_by_rules(turn):
        wanted, refusals = await _find_by_rules(turn)
    if wanted:
        preference, _ = await _load_preference(turn)
        is_zone_known, is_muted = turn.input.time_zone is not None, turn.input.is_muted
        for number, requested in enumerate(wanted):
            try:
                new = await asyncio.to_thread(_make, turn, requested, preference, number)
            except InvalidInput as error:  # its time has passed since the model asked for it
                lines.append(write_refusal(str(error)))
                continue
            reminders.append(new)
            lines.append(
                write_confirmation(new, own_zone=preference.time_zone, is_zone_known=is_zone_known, is_muted=is_muted)
            )
    lines += [write_refusal(reason) for reason in refusals]
    if _IMITATED in str(reply.content):  # the model has read such a line in an earlier reply
        lines.insert(0, _ONLY_THESE if reminders else _NOTHING_SET)
    if not lines:
        return reply
    content = "\n\n".join([str(reply.content).rstrip(), *(defuse(line) for line in lines)])
    return replace(reply, content=content, reminders=reminders)


def finds_reminders_by_rules(turn: Turn) -> bool:
    """Return True if rules find the reminders of this turn: its model does not decide by tools."""
    return not turn.decides_by_tools and may_set_reminders(turn)


async def _find_by_rules(turn: Turn) -> tuple[list[RequestedReminder], list[str]]:
    """Return the reminders that the person's message asks for in clear words, or why they can't be set."""
    text = turn.input.message.text
    if not list_own_texts(turn) or not asks_for_reminder(text):
        return [], []
    zone = turn.input.time_zone or Preference().time_zone
    found = await asyncio.to_thread(find_requests, text, now=turn.deps.now(), zone=zone)
    if not found:
        return [], []
    if (await _load_preference(turn))[1] >= MAX_REMINDERS:
        return [], [_TOO_MANY]
    return [
        RequestedReminder(text=each.text, at=each.at.isoformat(), rrule=each.rule, zone=None, personal=False)
        for each in found
    ], []


async def lock_preference(connection: Connection, event: ClaimedEvent) -> Preference:
    """Return the owner's preference, locked: whoever changes it moves the reminders that are stored."""
    return await Preferences(connection).get(event.owner_id, lock=True)


async def store_reminders(
    connection: Connection, event: ClaimedEvent, reminders: Sequence[NewReminder], preference: Preference
) -> None:
    """Store the reminders inside the caller's transaction, due by the locked preference."""
    quiet = get_quiet_hours(preference)
    for new in reminders:
        due_at = get_due(new.schedule, own_zone=preference.time_zone, quiet=quiet)
        due = replace(new, due_at=due_at)
        # The limit was checked before the reply said that they are set: what others have stored since must not refuse them.
        await Reminders(connection).add(event.owner_id, event.conversation_id, due, limit=2 * MAX_REMINDERS)


async def _load_preference(turn: Turn) -> tuple[Preference, int]:
    """Return the owner's preference, and how many of their reminders wait."""
    async with turn.deps.database.statement() as connection:
        preference = await Preferences(connection).get(turn.event.owner_id)
        return preference, await Reminders(connection).count_waiting(turn.event.owner_id)


def _make(turn: Turn, requested: RequestedReminder, preference: Preference, number: int) -> NewReminder:
    """Return the reminder, with the same id however often the turn runs. Raise InvalidInput if it can't be."""
    if requested["at"] is None and requested["rrule"] is None:
        raise InvalidInput("Say when it is due, in `at` or `rrule`.")
    author = turn.input.message.author if turn.event.traits.has_many_speakers else None
    asker = Asker() if author is None else Asker(author.id, author.name, requested["personal"])
    return make_reminder(
        requested["text"],
        at=None if requested["at"] is None else _parse_time(requested["at"]),
        rule=requested["rrule"],
        zone=requested["zone"],
        preference=preference,
        now=turn.deps.now(),
        asker=asker,
        reminder_id=derive_id(turn.event.message_id, f"reminder {number}"),
    )


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput("`at` must be a time in ISO 8601, such as 2026-11-20T09:00.") from error


def _choose_own_text(turn: Turn, text: str) -> str:
    """Return the model's text if it is made of the asker's own words, else their message if that asks for a reminder.

    Raise InvalidInput if neither is so: then a note, a tool or somebody else wants the reminder.
    """
    own = list_own_texts(turn)
    if is_founded(text, own):
        return text
    message = " ".join(find_own_subject(turn.input.message.text).split()) if own else ""
    if not asks_for_reminder(message):
        raise InvalidInput("Only what the person wrote themselves can be a reminder.")
    return message[:MAX_TEXT_CHARACTERS]
