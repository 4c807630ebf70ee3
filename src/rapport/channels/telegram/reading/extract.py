"""Turn a raw update of Telegram into an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegram.constants import MessageType

import telegram
from rapport.channels.telegram.reading.mentions import Tags, find_tags
from rapport.channels.telegram.reading.message import (
    check_date,
    find_reply,
    find_speaker,
    find_topic,
    make_platform_id,
    read_time,
    read_words,
    render_text,
)
from rapport.channels.telegram.reading.names import (
    PRIVATE,
    check_number,
    choose_visible,
    is_number,
    join_names,
    make_chat,
    make_person,
    make_storable,
)
from rapport.channels.telegram.update_types import (
    BotIdentity,
    ButtonPressed,
    Chat,
    ChatEvent,
    GroupMigrated,
    Ignored,
    MembershipChanged,
    MessageReceived,
    ParsedCommand,
    Person,
    UpdateOrigin,
)
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import has_visible_text
from rapport.ingest.archive_rows import as_mapping

__all__ = [
    "BotIdentity",
    "ButtonPressed",
    "Chat",
    "ChatEvent",
    "GroupMigrated",
    "Ignored",
    "MembershipChanged",
    "MessageReceived",
    "ParsedCommand",
    "Person",
    "UpdateOrigin",
    "find_origin",
    "read_update",
]

_MESSAGES = ("message", "edited_message")
_READ = (*_MESSAGES, "callback_query", "my_chat_member")
_TALKED_IN = frozenset({PRIVATE, "group", "supergroup"})
_PRESENT = frozenset({"creator", "administrator", "member"})
# The essential fields of a message. The origin of a forward must stay: its words would seem the sender's.
_ESSENTIAL = frozenset(
    {
        *("message_id", "date", "edit_date", "chat", "from", "sender_chat", "via_bot", "business_connection_id"),
        *("text", "entities", "caption", "caption_entities", "media_group_id"),
        *("message_thread_id", "is_topic_message", "reply_to_message", "forward_origin", "is_automatic_forward"),
        *("migrate_to_chat_id", "migrate_from_chat_id"),
    }
)


def read_update(raw: Mapping[str, Any], bot: BotIdentity) -> ChatEvent:
    """Return the event of an update; raise only InvalidInput, if the update cannot be read."""
    try:
        return _read_event(raw, bot)
    except Exception as error:
        update_id = _as_mapping(raw).get("update_id")
        called = f"Update {update_id}" if is_number(update_id) else "An update without a number"
        raise InvalidInput(f"{called} can't be read.") from error


def find_origin(raw: object) -> UpdateOrigin | None:
    """Return the origin of an update; None if it comes from no chat. Never raises, whatever the JSON."""
    update = _as_mapping(raw)
    for kind in (
        *_READ,
        *update,
    ):  # in the order in which updates are read: admission must check the part that is handled
        payload = _as_mapping(update.get(kind))
        message = _as_mapping(payload.get("message")) if kind == "callback_query" else payload
        chat = _as_mapping(message.get("chat"))
        chat_id = chat.get("id")
        if is_number(chat_id):
            return _make_origin(chat_id, chat, payload)
    return None


def _make_origin(chat_id: int, chat: Mapping[str, Any], payload: Mapping[str, Any]) -> UpdateOrigin:
    is_direct = chat.get("type") == PRIVATE
    title = choose_visible(_read_name(chat), chat.get("username")) or f"user{chat_id}"
    person = _as_mapping(payload.get("from")) or _as_mapping(payload.get("user"))
    if payload.get("sender_chat") is not None:  # Telegram uses one placeholder user for everybody who writes as a chat
        person = _as_mapping(None)
    person_id = person.get("id")
    return UpdateOrigin(
        chat_id,
        "direct" if is_direct else "group",
        title if is_direct else choose_visible(chat.get("title")),
        person_id if is_number(person_id) else None,
        choose_visible(_read_name(person), person.get("username")),
    )


def _read_name(payload: Mapping[str, Any]) -> str:
    return join_names(payload.get("first_name"), payload.get("last_name"))


def _read_event(raw: Mapping[str, Any], bot: BotIdentity) -> ChatEvent:
    check_number(raw["update_id"])
    kind = next((name for name in _READ if raw.get(name) is not None), None)
    if kind is None:
        kind_name = next((name for name in telegram.Update.ALL_TYPES if name in raw), "of a kind not known here")
        return Ignored(f"not about what people say to each other: {kind_name}")
    update = _parse(raw["update_id"], kind, _as_mapping(raw[kind]))
    if update.callback_query is not None:
        return _read_button(update.callback_query)
    if update.my_chat_member is not None:
        return _read_membership(update.my_chat_member, bot)
    if update.message is not None:
        return _read_message(update.message, raw[kind], bot, is_edited=False)
    if update.edited_message is not None:
        return _read_message(update.edited_message, raw[kind], bot, is_edited=True)
    raise ValueError("nothing was read")


def _parse(update_id: int, kind: str, payload: Mapping[str, Any]) -> telegram.Update:
    try:
        return telegram.Update.de_json({"update_id": update_id, kind: dict(payload)})
    except Exception:  # noqa: BLE001 - a broken attachment must not lose the text of its message
        return telegram.Update.de_json({"update_id": update_id, kind: _reduce(kind, payload)})


def _reduce(kind: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the update with only its essential fields; raise ValueError if it would lose its meaning."""
    if kind == "callback_query":
        message = {"message_id": 0, "date": 0} | _keep_essential(payload.get("message"))
        return {"chat_instance": "", **payload, "message": message}
    if kind == "my_chat_member":
        member = _as_mapping(payload.get("new_chat_member"))
        if member.get("status") == "administrator":  # the same as another member for our purposes
            member = {"user": member.get("user"), "status": "member"}
        return {**payload, "old_chat_member": {"user": member.get("user"), "status": "left"}, "new_chat_member": member}
    if kind not in _MESSAGES or not (payload.get("text") or payload.get("caption")):
        raise ValueError("it has no words")
    return _keep_essential(payload)


def _keep_essential(message: object, *, with_parent: bool = True) -> dict[str, Any]:
    essential = {name: value for name, value in _as_mapping(message).items() if name in _ESSENTIAL}
    parent = essential.pop("reply_to_message", None)
    if parent is not None and with_parent:
        essential["reply_to_message"] = _keep_essential(parent, with_parent=False)
    return essential


def _read_message(message: telegram.Message, raw: Mapping[str, Any], bot: BotIdentity, *, is_edited: bool) -> ChatEvent:
    if message.business_connection_id is not None:
        return Ignored("a message of somebody's business account")
    if message.chat.type not in _TALKED_IN:
        return Ignored("a post in a channel")
    if (migration := _read_migration(message)) is not None:
        return migration
    if message.from_user is not None and message.from_user.id == bot.id:
        return Ignored("the bot's own message")
    if is_edited and message.location is not None:  # no other location can be changed
        return Ignored("a live location has moved")
    return _make_message(message, raw, bot, is_edited=is_edited)


def _read_migration(message: telegram.Message) -> GroupMigrated | None:
    """Return the migration, which both chats report: the former group and the new supergroup."""
    if message.migrate_to_chat_id is not None:
        return GroupMigrated(check_number(message.chat.id), check_number(message.migrate_to_chat_id))
    if message.migrate_from_chat_id is not None:
        return GroupMigrated(check_number(message.migrate_from_chat_id), check_number(message.chat.id))
    return None


def _make_message(
    message: telegram.Message, raw: Mapping[str, Any], bot: BotIdentity, *, is_edited: bool
) -> MessageReceived | Ignored:
    words = read_words(message, raw)
    text = render_text(message, words)
    if not text:
        kinds = (kind.value for kind in MessageType if raw.get(kind.value) is not None)
        return Ignored(f"a message in which nobody says anything: {next(kinds, 'of a kind not known here')}")
    chat, speaker = make_chat(message.chat), find_speaker(message, bot)
    if speaker is None:
        raise ValueError("nobody said it")
    is_forwarded = message.forward_origin is not None and not message.is_automatic_forward
    tags = Tags() if is_forwarded else find_tags(words, bot)  # mentions in a forward were meant for others
    reply = find_reply(message, bot)
    return MessageReceived(
        chat=chat,
        person=speaker.person,
        author=speaker.author,
        text=text,
        said_at=read_time(message),
        platform_id=make_platform_id(chat.id, message.message_id),
        message_id=message.message_id,
        thread_id=find_topic(message),
        is_bot=speaker.is_bot,
        is_admin=message.sender_chat is not None and message.sender_chat.id == chat.id,
        mentions_agent=tags.mentions_agent,
        replies_to_agent=reply.is_to_agent,
        usernames=tags.usernames,
        mentions=tags.mentions,
        reply_to_platform_id=reply.platform_id,
        context_snapshot=reply.snapshot,
        # A caption is no command, nor is a text that another bot made.
        command=None if message.text is None or message.via_bot is not None else tags.command,
        edited_at=check_date(message.edit_date or message.date) if is_edited else None,
        album=None if message.media_group_id is None else make_storable(message.media_group_id),
        has_words=has_visible_text(words.text),
    )


def _read_button(query: telegram.CallbackQuery) -> ButtonPressed | Ignored:
    message = query.message
    if message is None or message.chat.type not in _TALKED_IN:
        return Ignored("a button outside of the bot's chats")
    if query.data is None:
        return Ignored("a button of a game")
    chat = make_chat(message.chat)
    message_id = message.message_id if is_number(message.message_id) else None
    return ButtonPressed(
        chat=chat,
        person=make_person(query.from_user),
        callback_id=make_storable(query.id),
        data=make_storable(query.data),
        platform_id=None if message_id is None else make_platform_id(chat.id, message_id),
        message_id=message_id,
        thread_id=find_topic(message) if isinstance(message, telegram.Message) else None,
    )


def _read_membership(change: telegram.ChatMemberUpdated, bot: BotIdentity) -> MembershipChanged | Ignored:
    member = change.new_chat_member
    if member.user.id != bot.id:
        return Ignored("somebody else came or went")
    if change.chat.type not in _TALKED_IN:
        return Ignored("a change in a channel")
    is_member = can_speak = member.status in _PRESENT
    if isinstance(member, telegram.ChatMemberRestricted):
        is_member = bool(member.is_member)
        can_speak = is_member and bool(member.can_send_messages)
    return MembershipChanged(make_chat(change.chat), make_person(change.from_user), is_member, can_speak)


def _as_mapping(value: object) -> Mapping[str, Any]:
    return as_mapping(value) or {}
