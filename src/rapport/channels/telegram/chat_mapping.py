"""Map chats to conversations: find a chat's conversation, create it, and follow a group that becomes a supergroup."""

from __future__ import annotations

from contextlib import suppress

import structlog

from rapport.channels.telegram.admission import Admission
from rapport.channels.telegram.update_types import BotIdentity, Chat, UpdateOrigin
from rapport.domain.conversation import Conversation
from rapport.domain.errors import NotFound
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.telegram import ChatMapping

log = structlog.get_logger()

CHANNEL = "telegram"


async def find_or_create_conversation(
    database: Database, admission: Admission, chat: Chat, *, bot: int, me: BotIdentity
) -> Conversation | None:
    """Return the conversation of a chat, created if needed; None if the chat is not admitted."""
    async with database.transaction() as connection:
        mapping, conversations = ChatMapping(connection, bot), Conversations(connection)
        mapped = await mapping.find_by_chat(chat.id)
        origin = UpdateOrigin(chat.id, chat.kind, chat.title, None, None)
        first = mapped.first_id if mapped else await mapping.get_first_id(chat.id)
        admitted = admission.find_admitted_id(origin, known_as=first)
        if admitted is None:
            return None
        owner = admission.choose_owner(admitted, first=first)
        if mapped is not None and mapped.owner_id == owner:
            with suppress(NotFound):  # erased concurrently
                existing = await conversations.get(owner, mapped.conversation_id)
                if existing.title != chat.title:
                    await conversations.rename(existing.id, chat.title)
                return existing
        conversation = await conversations.create(
            owner, agent_id=me.agent_id, kind=chat.kind, channel=CHANNEL, title=chat.title, handle=me.username
        )
        await mapping.map_chat(chat.id, conversation.id, owner)
    log.info("telegram.conversation", conversationId=conversation.id, chat=chat.id, kind=chat.kind, owner=owner)
    return conversation


async def find_chat_id(database: Database, conversation_id: str, *, bot: int) -> int:
    """Return the chat of a conversation; raises NotFound if it is no chat of this bot."""
    async with database.statement() as connection:
        mapped = await ChatMapping(connection, bot).find_by_conversation(conversation_id)
    if mapped is None:
        raise NotFound("This conversation is no chat of this bot.")
    return mapped.chat_id


async def migrate_chat(database: Database, old: int, new: int, *, bot: int) -> bool:
    """Give the conversation of a group the id of its supergroup; return False if the group has no conversation."""
    async with database.transaction() as connection:
        was_moved = await ChatMapping(connection, bot).migrate_chat(old, new)
    if was_moved:
        _log_migration(old, new)
    return was_moved


async def remember_migration(database: Database, admission: Admission, old: int, new: int, *, bot: int) -> None:
    """Remember that an admitted group without a conversation became a supergroup."""
    if admission.find_admitted_id(UpdateOrigin(old, "group", None, None, None)) is None:
        return
    async with database.transaction() as connection:
        mapping = ChatMapping(connection, bot)
        is_conversation = await mapping.find_by_chat(old) is not None or await mapping.find_by_chat(new) is not None
        is_news = not is_conversation and await mapping.record_migration(old, new)
    if is_news:
        _log_migration(old, new)


async def rename_bot(database: Database, username: str, *, bot: int) -> None:
    """Store the bot's username, by which people mention the agent, for all of its conversations."""
    async with database.statement() as connection:
        await ChatMapping(connection, bot).rename_bot(username)


def _log_migration(old: int, new: int) -> None:
    remedy = f"write {new} instead of {old} into TELEGRAM_ALLOWED_CHATS when you can"
    log.warning("telegram.chat_migrated", old=old, new=new, remedy=remedy)
