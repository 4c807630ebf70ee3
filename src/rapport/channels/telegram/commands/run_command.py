"""Run the bot's commands. Neither a command nor its notice is stored as a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from rapport.channels.telegram.commands import follow_up_commands as followups
from rapport.channels.telegram.commands.command import FOR_ADMINS, Command, CommandContext, IsAdmin
from rapport.channels.telegram.commands.notice_text import WallClock, escape_markdown, quote
from rapport.channels.telegram.commands.why import HOW_TO_ASK, render_explanation
from rapport.channels.telegram.reminder_buttons import list_reminders
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Author, Conversation
from rapport.domain.errors import InvalidInput, NotFound
from rapport.domain.outgoing import Button, Notice

__all__ = ["COMMANDS", "Command", "CommandContext", "IsAdmin", "press_button", "run_command"]

COMMANDS: tuple[tuple[str, str], ...] = (
    ("start", "Who I am and what I can do"),
    ("help", "List the commands"),
    ("mute", "Stop my follow-ups: /mute 2h, or until /unmute"),
    ("unmute", "Allow my follow-ups again"),
    ("followups", "List planned follow-ups; /followups on or off"),
    ("reminders", "List the reminders of this chat: snooze, skip or cancel them"),
    ("agent", "Show who answers here; /agent ID chooses another agent"),
    ("forget", "Erase what I have stored of this chat"),
    ("why", "Show what I used for an answer: reply to it with this"),
)
"""Name and description, as they are registered with the platform."""

_PERSON_PREFIX = "user"
"""The prefix of people's ids. A person who writes as a group or a channel has another, but presses buttons as a person."""
_CAN = "I answer questions, find earlier messages of this chat, and search the notes that I was given."
_MORE = "/help lists the commands."


async def run_command(command: Command, context: CommandContext) -> Notice | None:
    """Run a command and return its notice; None if the bot has no such command. Safe to repeat.

    The caller adds the notice's target. A confirmed `/forget` deletes the conversation. Raise NotFound if it was deleted
    before, and Transient.
    """
    name = command.name.lower()
    try:
        if name == "forget":
            return await _forget(command, context)
        if name == "reminders":
            return await list_reminders(command.conversation, context.core.reminders)
        answer = _ANSWERS.get(name)
        return None if answer is None else Notice(await answer(command, context))
    except InvalidInput as error:
        return Notice(quote(str(error), limit=300))


async def press_button(
    data: str, conversation: Conversation, presser: Author, presser_is_admin: IsAdmin, context: CommandContext
) -> Notice | None:
    """Run the action of a button and return its notice; None if it is unknown, or not for this person to press.

    A button belongs to the conversation it was shown in: when that is erased, the button has no effect.
    """
    match data.split(":"):
        case ["forget", "yes" | "no" as answer, asker_id, conversation_id]:
            pass
        case _:
            return None
    if asker_id.startswith(_PERSON_PREFIX) and asker_id != presser.id:
        return None
    if conversation.traits.has_admins and not await presser_is_admin():
        return None
    if answer == "no":
        return Notice("Nothing was erased.")
    if conversation_id != conversation.id:
        return Notice("This chat was erased already.")
    return Notice(await _erase(conversation, context))


# ---- /start and /help


async def _start(command: Command, context: CommandContext) -> str:
    name = command.agent.name
    if command.is_group:
        return (
            f"Hello! I'm {name}. {_CAN}\n\nTag me ({_render_tag(command)}) or reply to one of my messages, and I answer."
            f" Otherwise I only read along.\n\n{_MORE}"
        )
    remembers = " I remember what you tell me about yourself." if command.agent.remembers else ""
    returns = " Sometimes I follow up on my own." if context.autonomy and command.agent.autonomy else ""
    return (
        f"Hello, {quote(command.asker.name, limit=40)}! I'm {name}. Just write to me. {_CAN}{remembers}{returns}\n\n"
        f"Our messages are stored on the server that I run on; /forget erases them.\n\n{_MORE}"
    )


async def _help(command: Command, _context: CommandContext) -> str:
    commands = (
        "- /mute: I don't write on my own until you send /unmute; `/mute 2h` for two hours (also `30m`, `1d`, `1h30m`)\n"
        "- /unmute: I may write on my own again\n"
        "- /followups: list my planned follow-ups; `/followups on`, `/followups off`\n"
        "- /reminders: list the reminders of this chat, with buttons to snooze, skip and cancel them\n"
        "- /agent: show the agent that answers here, and the others; `/agent ID` chooses another one\n"
        "- /why: as a reply to one of my messages, show what I used for it\n"
        "- /forget: erase what I have stored of this chat; I ask first\n"
        "- /start: who I am\n"
        "- /help: this list"
    )
    if not command.is_group:
        return f"Just write to me: I answer every message. The commands are:\n\n{commands}"
    return (
        f"Tag me ({_render_tag(command)}) or reply to one of my messages, and I answer. Reply to anybody's message and tag me,"
        f" and I answer about that message. The commands are:\n\n{commands}\n\n"
        "Only admins of the group can turn follow-ups on or off, choose another agent and use /forget.\n\n"
        "I see only what Telegram sends me. In privacy mode, which is on until it is turned off or the bot becomes an admin,"
        " I get only commands, messages that tag me and replies to me, and nothing else of this chat."
    )


def _render_tag(command: Command) -> str:
    return f"@{escape_markdown(command.bot_username.removeprefix('@'))}"


# ---- /agent


async def _show_or_choose_agent(command: Command, context: CommandContext) -> str:
    conversation, chosen_id = command.conversation, command.argument.strip().lower()
    agents = context.core.agents
    if not chosen_id:
        others = [each.id for each in await agents.list_usable(conversation.owner_id) if each.id != command.agent.id]
        shown = f" {quote(command.agent.description)}" if command.agent.description else ""
        choice = f" Others: {', '.join(f'`/agent {each}`' for each in others)}" if others else ""
        return f"{_name_agent(command.agent)} answers here.{shown}{choice}"
    if not await command.may_decide_for_all():
        return FOR_ADMINS
    agent = await agents.choose(conversation, chosen_id)
    return f"{_name_agent(agent)} answers here from the next message on."


def _name_agent(agent: AgentProfile) -> str:
    return f"{quote(agent.name, limit=80)} (`{agent.id}`)"


# ---- /forget


async def _forget(command: Command, context: CommandContext) -> Notice:
    answer = command.argument.strip().lower()
    if answer not in ("", "yes"):
        raise InvalidInput("Send /forget to be asked first, or /forget yes to erase at once.")
    if not await command.may_decide_for_all():
        return Notice(FOR_ADMINS)
    if answer:
        return Notice(await _erase(command.conversation, context))
    to_press = f"{command.asker.id}:{command.conversation.id}"
    return Notice(
        f"Shall I erase this {command.conversation.traits.name}? This would be erased:\n\n{await _list_erasures(command.conversation, context)}"
        "\n\nIt can't be undone. Telegram's own copy of the chat stays. Without the buttons: `/forget yes`",
        buttons=[Button("Erase", f"forget:yes:{to_press}"), Button("Keep", f"forget:no:{to_press}")],
    )


async def _list_erasures(conversation: Conversation, context: CommandContext) -> str:
    timer_count = len((await context.core.follow_ups.load(conversation.owner_id, conversation.id)).waiting)
    reminders, _ = await context.core.reminders.list(conversation.owner_id, conversation_id=conversation.id)
    erased = [
        f"all messages of this {conversation.traits.name} that I have stored, yours and mine",
        f"the planned follow-ups ({_format_count(timer_count)})",
        *([f"the reminders ({_format_count(len(reminders))})"] if reminders else []),
        "the settings of this chat: muted or not, follow-ups on or off",
    ]
    if conversation.traits.may_use_memory:
        count = (await context.core.memories.stats(conversation.owner_id, conversation.agent_id)).count
        erased.append(f"all my memories about you ({_format_count(count)})")
    return "\n".join(f"- {entry}" for entry in erased)


async def _erase(conversation: Conversation, context: CommandContext) -> str:
    """Erase the conversation, and in a direct chat the memories. Safe to repeat."""
    ids = (conversation.owner_id, conversation.agent_id)
    has_memories = conversation.traits.may_use_memory
    # Memories first: after a crash between the two deletions, a second attempt still finds the conversation.
    # Memories again at the end: a running turn may have stored some before the conversation was deleted.
    if has_memories:
        await context.core.memories.delete_all(*ids)
    with suppress(NotFound):
        await context.core.runner.erase(conversation.owner_id, conversation.id)
    if has_memories:
        await context.core.memories.delete_all(*ids)
    also = ", and all my memories about you" if has_memories else ""
    return (
        f"Erased: all messages of this {conversation.traits.name}, its planned follow-ups and settings{also}."
        " What you still see is Telegram's own copy."
    )


def _format_count(things: int) -> str:
    return "none" if things == 0 else f"{things:,}"


# ---- /why


async def _explain(command: Command, context: CommandContext) -> str:
    if command.is_reply and command.replied_to is None:
        return HOW_TO_ASK
    clock = WallClock.for_preference(await context.core.follow_ups.get_preference(command.conversation.owner_id))
    target = (command.conversation, command.asker)
    return await render_explanation(context.core, *target, command.replied_to, thread_id=command.thread_id, clock=clock)


_ANSWERS: Mapping[str, Callable[[Command, CommandContext], Awaitable[str]]] = {
    "start": _start,
    "help": _help,
    "mute": followups.mute,
    "unmute": followups.unmute,
    "followups": followups.show_or_switch,
    "agent": _show_or_choose_agent,
    "why": _explain,
}
