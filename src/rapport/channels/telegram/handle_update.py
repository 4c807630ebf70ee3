"""Handle what happened in a chat: pass a message to the core, run a command, or record a change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from rapport.channels.base import PostNotice
from rapport.channels.telegram.admission import Admission
from rapport.channels.telegram.albums import Albums
from rapport.channels.telegram.api import BotApi
from rapport.channels.telegram.chat_mapping import (
    CHANNEL,
    find_or_create_conversation,
    migrate_chat,
    remember_migration,
)
from rapport.channels.telegram.commands.run_command import COMMANDS, Command, CommandContext, press_button, run_command
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
    """Handle the updates of one bot. Everything may be repeated without harm."""

    api: BotApi
    admission: Admission
    context: CommandContext
    post: PostNotice
    database: Database
    """For Telegram's own tables."""
    me: BotIdentity
    _known_usernames: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int])
    """The stored user ids by username, so that they are not written again with every message."""
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
                log.debug("telegram.nothing", updateId=update_id, why=happened.reason)

    async def _handle_message(self, said: MessageReceived, update_id: int, payload: Mapping[str, Any]) -> None:
        for _ in range(2):
            conversation = await self._find_conversation(said.chat)
            if conversation is None:
                return None
            try:
                return await self._store_or_run(said, conversation, update_id, payload)
            except NotFound:  # erased concurrently: try again with a new conversation
                continue
        raise Transient("The conversation is being erased.")

    async def _store_or_run(
        self, said: MessageReceived, conversation: Conversation, update_id: int, payload: Mapping[str, Any]
    ) -> None:
        if said.command is not None and said.edited_at is None and self._is_own_command(said):
            await self._run_command(said, conversation, update_id)
            return
        incoming = await self._make_incoming(said, conversation, payload)
        if said.edited_at is not None:
            # Changes of one second keep their order.
            edited_at = said.edited_at + timedelta(microseconds=update_id % 1_000_000)
            incoming = replace(incoming, edited_at=edited_at)
            if await self.context.core.history.apply_edit(incoming):
                return
            if said.command is not None and self._is_own_command(said):
                return  # a command is not a message of the conversation
        try:
            ticket = await self.context.core.runner.accept(incoming)
        except Conflict:  # a later edit was stored first
            return
        ticket.close()  # the outbox sends the reply: nothing waits here
        if incoming.edited_at is not None:  # store the edit's time, so that an older version is recognised
            await self.context.core.history.apply_edit(incoming)

    async def _make_incoming(
        self, said: MessageReceived, conversation: Conversation, payload: Mapping[str, Any]
    ) -> Incoming:
        return Incoming(
            owner_id=conversation.owner_id,
            conversation_id=conversation.id,
            content=said.text,
            author=said.author,
            mentions=(*said.mentions, *await self._resolve_usernames(said))[:MAX_MENTIONS],
            thread_id=said.thread_id,
            is_bot=said.is_bot,
            platform_id=said.platform_id,
            reply_to_platform_id=said.reply_to_platform_id,
            context_snapshot=said.context_snapshot,
            payload=payload,
            said_at=said.said_at,
            mentions_agent=said.mentions_agent,
            replies_to_agent=said.replies_to_agent,
            is_album_rest=is_for_agent(said.facts) and not await self._albums.is_representative(said, conversation),
        )

    async def _resolve_usernames(self, said: MessageReceived) -> list[str]:
        """Return the ids of the people mentioned by username, and store the sender's own username."""
        async with self.database.statement() as connection:
            people = TelegramUsernames(connection)
            if said.person is not None and said.person.username is not None:
                name = said.person.username.lower()
                if self._known_usernames.get(name) != said.person.id:
                    await people.store(name, said.person.id)
                    self._known_usernames[name] = said.person.id
                    if len(self._known_usernames) > _MAX_USERNAMES:
                        self._known_usernames.popitem(last=False)
            if not said.usernames:
                return []
            return [f"user{user_id}" for user_id in (await people.find_user_ids(said.usernames)).values()]

    # ---- commands

    def _is_own_command(self, said: MessageReceived) -> bool:
        assert said.command is not None
        return said.command.name in _COMMAND_NAMES and not said.is_bot

    async def _run_command(self, said: MessageReceived, conversation: Conversation, update_id: int) -> None:
        command = said.command
        assert command is not None
        parsed_command = Command(
            command.name,
            command.argument,
            conversation,
            said.author,
            lambda: self._is_admin(said.chat, said.person, anonymous=said.is_admin),
            await self._find_parent(said, conversation),
            self.me.username,
            is_reply=said.reply_to_platform_id is not None,
            thread_id=said.thread_id,
        )
        notice = await run_command(parsed_command, self.context)
        if notice is None:
            return
        about = replace(notice, reply_to_platform_id=said.platform_id, thread_id=said.thread_id)
        await self._post_notice(about, said.chat, update_id)

    async def _handle_button(self, pressed: ButtonPressed, update_id: int) -> None:
        conversation = await self._find_conversation(pressed.chat)
        if conversation is None:
            return
        try:
            notice = await press_button(
                pressed.data,
                conversation,
                pressed.person.author,
                lambda: self._is_admin(pressed.chat, pressed.person),
                self.context,
            )
        except NotFound:
            notice = None
        # Both are optional: the button may stay, and Telegram ends the press by itself.
        told = NOT_YOURS if notice is None else None
        await self._try_call("answerCallbackQuery", callback_query_id=pressed.callback_id, text=told)
        if notice is None:
            return
        if pressed.message_id is not None:
            await self._try_call("editMessageReplyMarkup", chat_id=pressed.chat.id, message_id=pressed.message_id)
        about = replace(notice, reply_to_platform_id=pressed.platform_id, thread_id=pressed.thread_id)
        await self._post_notice(about, pressed.chat, update_id)

    async def _post_notice(self, notice: Notice, chat: Chat, update_id: int) -> None:
        """Post a notice; if the conversation was just erased, into the new one."""
        conversation = await self._find_conversation(chat)
        if conversation is not None:
            name = f"update {update_id}"
            await self.post(conversation.owner_id, conversation.id, notice, name=name, channel=CHANNEL)

    async def _find_parent(self, said: MessageReceived, conversation: Conversation) -> Message | None:
        if said.reply_to_platform_id is None:
            return None
        return await self.context.core.history.find_by_platform_id(
            conversation.owner_id, conversation.id, said.reply_to_platform_id
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
        where = (move.old, move.new)
        if not await migrate_chat(self.database, *where, bot=self.api.number):
            await remember_migration(self.database, self.admission, *where, bot=self.api.number)

    async def _handle_membership(self, belongs: MembershipChanged) -> None:
        """Record whether the bot can still write in the chat."""
        conversation = await self._find_conversation(belongs.chat)
        if conversation is None:
            return
        is_reachable = belongs.is_member and belongs.can_speak
        await self.context.core.conversations.set_reachable(conversation.id, is_reachable)

    async def _try_call(self, method: str, **parameters: Any) -> None:
        try:
            await self.api.call(method, **parameters)
        except (Transient, Permanent) as error:
            log.debug("telegram.not_done", method=method, reason=str(error))
