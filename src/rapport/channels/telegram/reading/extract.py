"""From a raw update of Telegram to what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegram.constants import MessageType

import telegram
from rapport.channels.telegram.reading.mentions import Tags, tags_of
from rapport.channels.telegram.reading.message import (
    dated,
    platform_id_of,
    reply_of,
    said_at,
    speaker_of,
    thread_of,
    told_by,
    words_of,
)
from rapport.channels.telegram.reading.names import (
    PRIVATE,
    first_visible,
    full_name,
    is_number,
    number,
    person_of,
    place_of,
    storable,
)
from rapport.channels.telegram.update_types import (
    Belongs,
    Chat,
    Command,
    Glance,
    Happened,
    Me,
    Moved,
    Nothing,
    Person,
    Pressed,
    Said,
)
from rapport.domain.errors import InvalidInput
from rapport.domain.text_checks import visible
from rapport.ingest.archive_rows import mapping

__all__ = [
    "Belongs",
    "Chat",
    "Command",
    "Glance",
    "Happened",
    "Me",
    "Moved",
    "Nothing",
    "Person",
    "Pressed",
    "Said",
    "chat_of",
    "read_update",
]

_MESSAGES = ("message", "edited_message")
_READ = (*_MESSAGES, "callback_query", "my_chat_member")
_TALKED_IN = frozenset({PRIVATE, "group", "supergroup"})
_PRESENT = frozenset({"creator", "administrator", "member"})
# What a message is without what it carries. Who first said it must not get lost: their words would seem the sender's.
_ESSENTIAL = frozenset(
    {
        *("message_id", "date", "edit_date", "chat", "from", "sender_chat", "via_bot", "business_connection_id"),
        *("text", "entities", "caption", "caption_entities", "media_group_id"),
        *("message_thread_id", "is_topic_message", "reply_to_message", "forward_origin", "is_automatic_forward"),
        *("migrate_to_chat_id", "migrate_from_chat_id"),
    }
)


def read_update(raw: Mapping[str, Any], me: Me) -> Happened:
    """What happened; raises InvalidInput for what can't be read, and never anything else."""
    try:
        return _read(raw, me)
    except Exception as error:
        update_id = _mapping(raw).get("update_id")
        called = f"Update {update_id}" if is_number(update_id) else "An update without a number"
        raise InvalidInput(f"{called} can't be read.") from error


def chat_of(raw: object) -> Glance | None:
    """Where an update comes from; None if it comes from no chat. Never raises, whatever the JSON."""
    update = _mapping(raw)
    for kind in (*_READ, *update):  # first what would be read: who is let in for one thing must not bring another
        told = _mapping(update.get(kind))
        where = _mapping(told.get("message")) if kind == "callback_query" else told
        chat = _mapping(where.get("chat"))
        chat_id = chat.get("id")
        if is_number(chat_id):
            return _glance(chat_id, chat, told)
    return None


def _glance(chat_id: int, chat: Mapping[str, Any], told: Mapping[str, Any]) -> Glance:
    is_direct = chat.get("type") == PRIVATE
    title = first_visible(_name_in(chat), chat.get("username")) or f"user{chat_id}"
    person = _mapping(told.get("from")) or _mapping(told.get("user"))
    if (
        told.get("sender_chat") is not None
    ):  # whoever speaks as a chat has a stand-in user, the same one for all of them
        person = _mapping(None)
    person_id = person.get("id")
    return Glance(
        chat_id,
        "direct" if is_direct else "group",
        title if is_direct else first_visible(chat.get("title")),
        person_id if is_number(person_id) else None,
        first_visible(_name_in(person), person.get("username")),
    )


def _name_in(told: Mapping[str, Any]) -> str:
    return full_name(told.get("first_name"), told.get("last_name"))


def _read(raw: Mapping[str, Any], me: Me) -> Happened:
    number(raw["update_id"])
    kind = next((name for name in _READ if raw.get(name) is not None), None)
    if kind is None:
        known = next((name for name in telegram.Update.ALL_TYPES if name in raw), "of a kind not known here")
        return Nothing(f"not about what people say to each other: {known}")
    update = _parsed(raw["update_id"], kind, _mapping(raw[kind]))
    if update.callback_query is not None:
        return _pressed(update.callback_query)
    if update.my_chat_member is not None:
        return _belongs(update.my_chat_member, me)
    if update.message is not None:
        return _message(update.message, raw[kind], me, is_edited=False)
    if update.edited_message is not None:
        return _message(update.edited_message, raw[kind], me, is_edited=True)
    raise ValueError("nothing was read")


def _parsed(update_id: int, kind: str, told: Mapping[str, Any]) -> telegram.Update:
    try:
        return telegram.Update.de_json({"update_id": update_id, kind: dict(told)})
    except Exception:  # noqa: BLE001 - whatever is wrong with what a message carries is no reason to lose its words
        return telegram.Update.de_json({"update_id": update_id, kind: _essence(kind, told)})


def _essence(kind: str, told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with only what is needed; raises ValueError if that would not be the same."""
    if kind == "callback_query":
        message = {"message_id": 0, "date": 0} | _essential(told.get("message"))
        return {"chat_instance": "", **told, "message": message}
    if kind == "my_chat_member":
        member = _mapping(told.get("new_chat_member"))
        if member.get("status") == "administrator":  # who is there as any other member, for all that is asked here
            member = {"user": member.get("user"), "status": "member"}
        return {**told, "old_chat_member": {"user": member.get("user"), "status": "left"}, "new_chat_member": member}
    if kind not in _MESSAGES or not (told.get("text") or told.get("caption")):
        raise ValueError("it has no words")
    return _essential(told)


def _essential(message: object, *, with_parent: bool = True) -> dict[str, Any]:
    kept = {name: value for name, value in _mapping(message).items() if name in _ESSENTIAL}
    parent = kept.pop("reply_to_message", None)
    if parent is not None and with_parent:
        kept["reply_to_message"] = _essential(parent, with_parent=False)
    return kept


def _message(message: telegram.Message, raw: Mapping[str, Any], me: Me, *, is_edited: bool) -> Happened:
    if message.business_connection_id is not None:
        return Nothing("a message of somebody's business account")
    if message.chat.type not in _TALKED_IN:
        return Nothing("a post in a channel")
    if (moved := _moved(message)) is not None:
        return moved
    if message.from_user is not None and message.from_user.id == me.id:
        return Nothing("the bot's own message")
    if is_edited and message.location is not None:  # no other location can be changed
        return Nothing("a live location has moved")
    return _said(message, raw, me, is_edited=is_edited)


def _moved(message: telegram.Message) -> Moved | None:
    """Both chats tell of it: the group that was, and the supergroup that it is now."""
    if message.migrate_to_chat_id is not None:
        return Moved(number(message.chat.id), number(message.migrate_to_chat_id))
    if message.migrate_from_chat_id is not None:
        return Moved(number(message.migrate_from_chat_id), number(message.chat.id))
    return None


def _said(message: telegram.Message, raw: Mapping[str, Any], me: Me, *, is_edited: bool) -> Said | Nothing:
    words = words_of(message, raw)
    text = told_by(message, words)
    if not text:
        found = (kind.value for kind in MessageType if raw.get(kind.value) is not None)
        return Nothing(f"a message in which nobody says anything: {next(found, 'of a kind not known here')}")
    chat, speaker = place_of(message.chat), speaker_of(message, me)
    if speaker is None:
        raise ValueError("nobody said it")
    is_forwarded = message.forward_origin is not None and not message.is_automatic_forward
    tags = Tags() if is_forwarded else tags_of(words, me)  # to whomever somebody else spoke
    reply = reply_of(message, me)
    return Said(
        chat=chat,
        person=speaker.person,
        author=speaker.author,
        text=text,
        said_at=said_at(message),
        platform_id=platform_id_of(chat.id, message.message_id),
        message_id=message.message_id,
        thread_id=thread_of(message),
        is_bot=speaker.is_bot,
        is_admin=message.sender_chat is not None and message.sender_chat.id == chat.id,
        mentions_agent=tags.is_me,
        replies_to_agent=reply.is_to_me,
        usernames=tags.usernames,
        mentions=tags.mentions,
        reply_to_platform_id=reply.platform_id,
        context_snapshot=reply.snapshot,
        # A caption doesn't begin the message; and what somebody picks from another bot is in that one's words.
        command=None if message.text is None or message.via_bot is not None else tags.command,
        edited_at=dated(message.edit_date or message.date) if is_edited else None,
        album=None if message.media_group_id is None else storable(message.media_group_id),
        has_words=visible(words.text),
    )


def _pressed(query: telegram.CallbackQuery) -> Pressed | Nothing:
    message = query.message
    if message is None or message.chat.type not in _TALKED_IN:
        return Nothing("a button outside of the bot's chats")
    if query.data is None:
        return Nothing("a button of a game")
    chat = place_of(message.chat)
    message_id = message.message_id if is_number(message.message_id) else None
    return Pressed(
        chat=chat,
        person=person_of(query.from_user),
        callback_id=storable(query.id),
        data=storable(query.data),
        platform_id=None if message_id is None else platform_id_of(chat.id, message_id),
        message_id=message_id,
        thread_id=thread_of(message) if isinstance(message, telegram.Message) else None,
    )


def _belongs(change: telegram.ChatMemberUpdated, me: Me) -> Belongs | Nothing:
    member = change.new_chat_member
    if member.user.id != me.id:
        return Nothing("somebody else came or went")
    if change.chat.type not in _TALKED_IN:
        return Nothing("a change in a channel")
    is_member = can_speak = member.status in _PRESENT
    if isinstance(member, telegram.ChatMemberRestricted):
        is_member = bool(member.is_member)
        can_speak = is_member and bool(member.can_send_messages)
    return Belongs(place_of(change.chat), person_of(change.from_user), is_member, can_speak)


def _mapping(value: object) -> Mapping[str, Any]:
    return mapping(value) or {}
