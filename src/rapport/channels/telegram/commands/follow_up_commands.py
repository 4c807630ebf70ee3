"""Run `/mute`, `/unmute` and `/followups`, which show and control the follow-ups of a chat (AUTO-12)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rapport.channels.telegram.commands.command import FOR_ADMINS, Command, CommandContext
from rapport.channels.telegram.commands.notice_text import PURPOSES, WallClock, quote
from rapport.domain.errors import InvalidInput
from rapport.domain.follow_up import Timer
from rapport.domain.follow_up_requests import FOREVER, MAX_MUTE_SECONDS, Permission, Preference, parse_duration
from rapport.reminders.texts import describe_held

MAX_LISTED = 10


async def mute(command: Command, context: CommandContext) -> str:
    """Mute follow-ups for a duration, or until `/unmute`. Raises InvalidInput."""
    duration = "".join(command.argument.split())
    seconds = parse_duration(duration) if duration else None
    if seconds is not None and not 1 <= seconds <= MAX_MUTE_SECONDS:
        raise InvalidInput("Mute me for 1 second to 10 years, or without a duration until /unmute.")
    permission, preference = await _set_mute(command, context, until=FOREVER if seconds is None else seconds)
    end = _describe_end(permission.muted_until or FOREVER, WallClock.for_preference(preference))
    before = (
        "" if _is_on(command, permission) and not _describe_ban(command, context) else " (Follow-ups were off before.)"
    )
    return (
        f"Muted {end}: I don't write on my own here.{before} When you {_describe_call(command)}, I still answer."
        f" /unmute ends it. {describe_held(permission)}"
    ).rstrip()


async def unmute(command: Command, context: CommandContext) -> str:
    permission, _ = await _set_mute(command, context, until=None)
    return f"Unmuted. {_describe_state(command, context, permission)}"


async def show_or_switch(command: Command, context: CommandContext) -> str:
    """List the waiting follow-ups; with `on` or `off`, switch follow-ups. Raises InvalidInput."""
    argument = command.argument.strip().lower()
    if argument in ("on", "off"):
        return await _switch(command, context, on=argument == "on")
    if argument:
        raise InvalidInput("Send /followups to see them, or /followups on or /followups off.")
    ids = (command.conversation.owner_id, command.conversation.id)
    listing = await context.core.follow_ups.load(*ids)
    permission, preference, timers = listing.permission, listing.preference, listing.waiting
    clock = WallClock.for_preference(preference)
    parts = [_describe_state(command, context, permission)]
    can_be, is_on = not _describe_ban(command, context), _is_on(command, permission)
    if timers:
        parts.append(_list_timers(timers, clock))
        cancelled = (
            "A new message here cancels them." if can_be and is_on else "I won't send them while follow-ups are off."
        )
        parts.append(f"{cancelled} Times are {clock.name}.")
    elif can_be and is_on:
        parts.append("No follow-ups are planned.")
    if can_be:
        parts += _list_restrictions(permission, preference, clock)
        parts.append(f"`/followups {'off' if is_on else 'on'}` turns them {'off' if is_on else 'on'}.")
    return "\n\n".join(parts)


async def _switch(command: Command, context: CommandContext, *, on: bool) -> str:
    if not await command.may_decide_for_all():
        return FOR_ADMINS
    never = _describe_ban(command, context)
    if on and never:
        return never
    ids = (command.conversation.owner_id, command.conversation.id)
    permission = await context.core.follow_ups.set_permission(*ids, allowed=on)
    preference = await context.core.follow_ups.get_preference(ids[0])
    restrictions = _list_restrictions(permission, preference, WallClock.for_preference(preference)) if on else []
    return "\n\n".join([_describe_state(command, context, permission), *restrictions])


async def _set_mute(
    command: Command, context: CommandContext, *, until: datetime | float | None
) -> tuple[Permission, Preference]:
    ids = (command.conversation.owner_id, command.conversation.id)
    permission = await context.core.follow_ups.set_permission(*ids, muted_until=until)
    return permission, await context.core.follow_ups.get_preference(ids[0])


def _list_timers(timers: Sequence[Timer], clock: WallClock) -> str:
    lines: list[str] = []
    for timer in timers[:MAX_LISTED]:
        subject = quote(timer.reason or timer.topic, limit=160)
        line = f"- **{clock.format_time(timer.due_at)}** ({clock.format_distance(timer.due_at)}), {PURPOSES[timer.trigger_type]}"
        lines.append(f"{line}: {subject}" if subject else line)
    if len(timers) > MAX_LISTED:
        lines.append(f"- … and {len(timers) - MAX_LISTED:,} more")
    return "\n".join(lines)


def _list_restrictions(permission: Permission, preference: Preference, clock: WallClock) -> list[str]:
    """Return sentences about a mute and quiet hours, which suppress follow-ups although they are on."""
    parts: list[str] = []
    if permission.muted_until is not None:
        held = describe_held(permission)
        parts.append(f"I'm muted {_describe_end(permission.muted_until, clock)}. /unmute ends it. {held}".rstrip())
    if preference.quiet_from is not None and preference.quiet_to is not None:
        parts.append(
            f"Quiet hours are from {preference.quiet_from:%H:%M} to {preference.quiet_to:%H:%M} ({clock.name})."
        )
    return parts


def _describe_state(command: Command, context: CommandContext, permission: Permission) -> str:
    """Return the sentence that says whether follow-ups are on in this chat."""
    if never := _describe_ban(command, context):
        return never
    if _is_on(command, permission):
        return "Follow-ups are **on** here: after an answer I may write again on my own."
    return f"Follow-ups are **off** here: I answer only when you {_describe_call(command)}."


def _describe_ban(command: Command, context: CommandContext) -> str:
    """Return why follow-ups are off for the server or the agent, whatever the chat's setting is; empty if they are on."""
    if not context.autonomy:
        return "Follow-ups are off on this server: I never write on my own."
    return "" if command.agent.autonomy else f"{command.agent.name} never writes on its own."


def _is_on(command: Command, permission: Permission) -> bool:
    return command.conversation.traits.wants_follow_ups(permission.autonomy)


def _describe_end(moment: datetime, clock: WallClock) -> str:
    return "until you send /unmute" if moment >= FOREVER else f"until {clock.format_with_zone(moment)}"


def _describe_call(command: Command) -> str:
    return "mention me" if command.is_group else "write to me"
