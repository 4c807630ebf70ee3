"""Handle an update of a chat: pass a message to the core, run a command, or record a change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from rapport.channels.base import PostNotice
from rapport.channels.telegram.admission import Admission
from rapport.channels.telegram.albums import Albums
from rapport.channels.telegram.api import BotApi
from rapport.channels.telegram.approval_buttons import is_approval_button, press_approval_button
from rapport.channels.telegram.chat_mapping import (
    CHANNEL,
    find_or_create_conversation,
    migrate_chat,
    remember_migration,
)
from rapport.channels.telegram.commands.run_command import COMMANDS, Command, CommandContext, press_button, run_command
from rapport.channels.telegram.reminder_buttons import is_reminder_button, press_reminder_button
from rapport.channels.telegram.update_types import (
    BotIdentity,
    ButtonPressed,
    Chat,
    ChatEvent,
    GroupMigrated,
    Ignored,
    MembershipChanged,
    MessageReceived,
    Person,
)
from rapport.channels.telegram.writing.keyboard import arrange_buttons, render_keyboard
from rapport.channels.telegram.writing.markup import render_parts
from rapport.domain.conversation import Conversation, Incoming, Message
from rapport.domain.errors import Conflict, NotFound, Permanent, Transient
from rapport.domain.outgoing import Notice
from rapport.ingest.addressing import is_for_agent
from rapport.ingest.archive_rows import as_mapping
from rapport.ingest.content import MAX_MENTIONS
from rapport.storage.database import Database
from rapport.storage.telegram import TelegramUsernames

log = structlog.get_logger()

NOT_YOURS = "Only the person who sent the command can use this button."
_COMMAND_NAMES = frozenset(name for name, _ in COMMANDS)
_MAX_USERNAMES = 10_000
_ADMIN_STATUSES = frozenset({"creator", "administrator"})


@dataclass(slots=True)
class UpdateHandler:
    """Handle the updates of one bot. Every step may be repeated."""

    api: BotApi
    admission: Admission
    context: CommandContext
    post: PostNotice
    database: Database
    """For Telegram's own tables."""
    me: BotIdentity
    _known_usernames: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    """Cache of stored user ids by username, so that they are not written again with every message."""
    _albums: Albums = field(init=False)

    def __post_init__(self) -> None:
        self._albums = Albums(self.database, self.api.number, self.me)

    async def handle(self, happened: ChatEvent, *, update_id: int, payload: Mapping[str, Any]) -> None:
        """Handle one event. Raises Transient where the same event must be handled again later."""
        match happened:
            case MessageReceived():
                await self._handle_message(happened, update_id, payload)
            case ButtonPressed():
                await self._handle_button(happened, update_id)
            case GroupMigrated():
                await self._handle_migration(happened)
            case MembershipChanged():
                await self._handle_membership(happened)
            case Ignored():
                log.debug("telegram.update_ignored", updateId=update_id, reason=happened.reason)

    async def _handle_message(self, message: MessageReceived, update_id: int, payload: Mapping[str, Any]) -> None:
        for _ in range(2):
            conversation = await self._find_conversation(message.chat)
            if conversation is None:
                return None
            try:
                return await self._store_or_run(message, conversation, update_id, payload)
            except NotFound:  # erased concurrently: try again with a new conversation
                continue
        raise Transient("The conversation is being erased.")

    async def _store_or_run(
        self, message: MessageReceived, conversation: Conversation, update_id: int, payload: Mapping[str, Any]
    ) -> None:
        if message.command is not None and message.edited_at is None and self._is_own_command(message):
            await self._run_command(message, conversation, update_id)
            return
        incoming = await self._make_incoming(message, conversation, payload)
        if message.edited_at is not None:
            # Changes of one second keep their order.
            edited_at = message.edited_at + timedelta(microseconds=update_id % 1_000_000)
            incoming = replace(incoming, edited_at=edited_at)
            if await self.context.core.history.apply_edit(incoming):
                return
            if message.command is not None and self._is_own_command(message):
                return  # a command is not a message of the conversation
        try:
            ticket = await self.context.core.runner.accept(incoming)
        except Conflict:  # a later edit was stored first
            return
        ticket.close()  # the outbox sends the reply: nothing waits here
        if incoming.edited_at is not None:  # store the edit's time, so that an older version is recognised
            await self.context.core.history.apply_edit(incoming)

    async def _make_incoming(
        self, message: MessageReceived, conversation: Conversation, payload: Mapping[str, Any]
    ) -> Incoming:
        return Incoming(
            owner_id=conversation.owner_id,
            conversation_id=conversation.id,
            content=message.text,
            author=message.author,
            mentions=(*self._name_agent(message.mentions, conversation), *await self._resolve_usernames(message))[
                :MAX_MENTIONS
            ],
            thread_id=message.thread_id,
            is_bot=message.is_bot,
            platform_id=message.platform_id,
            reply_to_platform_id=message.reply_to_platform_id,
            context_snapshot=message.context_snapshot,
            payload=payload,
            said_at=message.said_at,
            mentions_agent=message.mentions_agent,
            replies_to_agent=message.replies_to_agent,
            is_album_rest=is_for_agent(message.facts)
            and not await self._albums.is_representative(message, conversation),
        )

    def _name_agent(self, mentions: Sequence[str], conversation: Conversation) -> list[str]:
        """Return the mentions with the chat's agent in place of the default agent, which an update is read with."""
        return [conversation.agent_id if each == self.me.agent_id else each for each in mentions]

    async def _resolve_usernames(self, message: MessageReceived) -> list[str]:
        """Return the ids of the people mentioned by username, and store the sender's own username."""
        async with self.database.statement() as connection:
            people = TelegramUsernames(connection)
            if message.person is not None and message.person.username is not None:
                name = message.person.username.lower()
                if self._known_usernames.get(name) != message.person.id:
                    await people.store(name, message.person.id)
                    self._known_usernames[name] = message.person.id
                    if len(self._known_usernames) > _MAX_USERNAMES:
                        self._known_usernames.popitem(last=False)
            if not message.usernames:
                return []
            return [f"user{user_id}" for user_id in (await people.find_user_ids(message.usernames)).values()]

    # ---- commands

    def _is_own_command(self, message: MessageReceived) -> bool:
        assert message.command is not None
        return message.command.name in _COMMAND_NAMES and not message.is_bot

    async def _run_command(self, message: MessageReceived, conversation: Conversation, update_id: int) -> None:
        command = message.command
        assert command is not None
        parsed_command = Command(
            command.name,
            command.argument,
            conversation,
            message.author,
            lambda: self._is_admin(message.chat, message.person, anonymous=message.is_admin),
            await self._find_parent(message, conversation),
            self.me.username,
            await self.context.core.agents.get_for_conversation(conversation),
            is_reply=message.reply_to_platform_id is not None,
            thread_id=message.thread_id,
        )
        notice = await run_command(parsed_command, self.context)
        if notice is None:
            return
        addressed_notice = replace(notice, reply_to_platform_id=message.platform_id, thread_id=message.thread_id)
        await self._post_notice(addressed_notice, message.chat, update_id)

    async def _handle_button(self, press: ButtonPressed, update_id: int) -> None:
        conversation = await self._find_conversation(press.chat)
        if conversation is None:
            return
        if is_approval_button(press.data):
            await self._handle_approval(press, conversation, update_id)
            return
        if is_reminder_button(press.data):
            await self._handle_reminder(press, conversation)
            return
        try:
            notice = await press_button(
                press.data,
                conversation,
                press.person.author,
                lambda: self._is_admin(press.chat, press.person),
                self.context,
            )
        except NotFound:
            notice = None
        # Both are optional: the button may stay, and Telegram ends the press by itself.
        alert = NOT_YOURS if notice is None else None
        await self._try_call("answerCallbackQuery", callback_query_id=press.callback_id, text=alert)
        if notice is None:
            return
        if press.message_id is not None:
            await self._try_call("editMessageReplyMarkup", chat_id=press.chat.id, message_id=press.message_id)
        await self._post_reply(notice, press, update_id)

    async def _handle_approval(self, press: ButtonPressed, conversation: Conversation, update_id: int) -> None:
        """Store a decision about a tool call, tell the person who pressed, and show below the message what became of it."""
        result = await press_approval_button(
            press.data,
            conversation,
            press.person.author,
            lambda: self._is_admin(press.chat, press.person),
            self.context.core.approvals,
        )
        # Both are optional: a button that stays says at its next press what was decided.
        await self._try_call("answerCallbackQuery", callback_query_id=press.callback_id, text=result.text or None)
        if result.notice is not None:
            await self._post_reply(result.notice, press, update_id)
        if result.rows is not None and press.message_id is not None:
            await self._try_call(
                "editMessageReplyMarkup",
                chat_id=press.chat.id,
                message_id=press.message_id,
                reply_markup=render_keyboard(result.rows),
            )

    async def _handle_reminder(self, press: ButtonPressed, conversation: Conversation) -> None:
        """Change a reminder, tell the person who pressed, and show in the message how it is now."""
        result = await press_reminder_button(
            press.data,
            conversation,
            press.person.author,
            lambda: self._is_admin(press.chat, press.person),
            self.context.core.reminders,
        )
        # All are optional: /reminders shows how it is.
        await self._try_call("answerCallbackQuery", callback_query_id=press.callback_id, text=result.text)
        message = {"chat_id": press.chat.id, "message_id": press.message_id}
        if press.message_id is None:
            return
        if result.rows is not None:
            await self._try_call("editMessageReplyMarkup", **message, reply_markup=render_keyboard(result.rows))
        if result.listing is not None:
            [part, *_] = render_parts(result.listing.text)
            rows = arrange_buttons(result.listing.buttons)
            await self._try_call(
                "editMessageText", **message, text=part.html, parse_mode="HTML", reply_markup=render_keyboard(rows)
            )

    async def _post_reply(self, notice: Notice, press: ButtonPressed, update_id: int) -> None:
        """Post a notice as a reply to the message with the button."""
        addressed_notice = replace(notice, reply_to_platform_id=press.platform_id, thread_id=press.thread_id)
        await self._post_notice(addressed_notice, press.chat, update_id)

    async def _post_notice(self, notice: Notice, chat: Chat, update_id: int) -> None:
        """Post a notice; if the conversation was just erased, into the new one."""
        conversation = await self._find_conversation(chat)
        if conversation is not None:
            name = f"update {update_id}"
            await self.post(conversation.owner_id, conversation.id, notice, name=name, channel=CHANNEL)

    async def _find_parent(self, message: MessageReceived, conversation: Conversation) -> Message | None:
        if message.reply_to_platform_id is None:
            return None
        return await self.context.core.history.find_by_platform_id(
            conversation.owner_id, conversation.id, message.reply_to_platform_id
        )

    async def _is_admin(self, chat: Chat, person: Person | None, *, anonymous: bool = False) -> bool:
        if not chat.traits.has_admins or anonymous:
            return True
        if person is None:
            return False
        try:
            member = await self.api.call("getChatMember", chat_id=chat.id, user_id=person.id)
        except Permanent as error:
            log.warning("telegram.unknown_member", chat=chat.id, reason=str(error))
            return False
        return (as_mapping(member) or {}).get("status") in _ADMIN_STATUSES

    # ---- chats

    async def _find_conversation(self, chat: Chat) -> Conversation | None:
        return await find_or_create_conversation(self.database, self.admission, chat, bot=self.api.number, me=self.me)

    async def _handle_migration(self, move: GroupMigrated) -> None:
        ids = (move.old, move.new)
        if not await migrate_chat(self.database, *ids, bot=self.api.number):
            await remember_migration(self.database, self.admission, *ids, bot=self.api.number)

    async def _handle_membership(self, change: MembershipChanged) -> None:
        """Record whether the bot can still write in the chat."""
        conversation = await self._find_conversation(change.chat)
        if conversation is None:
            return
        is_reachable = change.is_member and change.can_speak
        await self.context.core.conversations.set_reachable(conversation.id, is_reachable)

    async def _try_call(self, method: str, **parameters: Any) -> None:
        try:
            await self.api.call(method, **parameters)
        except (Transient, Permanent) as error:
            log.debug("telegram.call_failed", method=method, reason=str(error))
