"""Make raw updates as Telegram sends them: with its ids, its stand-in users and its UTF-16 offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

Raw: TypeAlias = "dict[str, Any]"

_ENTITY = re.compile(
    r"(?P<email>(?<![\w.+-])[\w.+-]+@[\w-]+\.[a-z]{2,})"
    r"|(?P<mention>(?<!\w)@[A-Za-z0-9_]{3,32}\b)"
    r"|(?P<bot_command>(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>]))"
)


def user(number: int, first_name: str, username: str | None = None, **fields: Any) -> Raw:
    """A person, or with `is_bot=True` a bot."""
    told: Raw = {"id": number, "is_bot": False, "first_name": first_name, "language_code": "en"}
    return told | ({"username": username} if username else {}) | fields


BOT = user(7_000_000_001, "Rapport", "rapport_bot", is_bot=True)
OTHER_BOT = user(7_000_000_002, "Weather", "weather_bot", is_bot=True)
ANA = user(101, "Ana", "ana_w", last_name="Weiss")
BEN = user(102, "Ben")
ANONYMOUS = user(1_087_968_824, "Group", "GroupAnonymousBot", is_bot=True)
"""Stands for every anonymous admin."""
CHANNEL_BOT = user(136_817_688, "Channel", "Channel_Bot", is_bot=True)
"""Stands for everybody who speaks as a channel."""
LINKED = user(777_000, "Telegram")
"""Brings the posts of a group's own channel."""

GROUP: Raw = {"id": -1_001_234_567_890, "type": "supergroup", "title": "Friday hike"}
FORUM: Raw = {"id": -1_002_345_678_901, "type": "supergroup", "title": "The house", "is_forum": True}
SMALL_GROUP: Raw = {"id": -4_001_002, "type": "group", "title": "Four of us", "all_members_are_administrators": True}
CHANNEL: Raw = {"id": -1_003_456_789_012, "type": "channel", "title": "Trail news", "username": "trailnews"}

DATE = 1_760_000_000
"""2025-10-09 08:53:20 UTC."""


def direct(person: Raw = ANA) -> Raw:
    """The chat of a person with the bot."""
    return {"type": "private"} | {
        name: person[name] for name in ("id", "first_name", "last_name", "username") if name in person
    }


def utf16(text: str) -> int:
    """Return the length of a text as Telegram counts it."""
    return len(text.encode("utf-16-le")) // 2


def entity(text: str, part: str, kind: str, **fields: Any) -> Raw:
    """Return the entity for the first such part of a text."""
    begin = text.index(part)
    return {"offset": utf16(text[:begin]), "length": utf16(part), "type": kind} | fields


def entities_of(text: str) -> list[Raw]:
    """Return the entities that Telegram finds in a text: @names, /commands and e-mail addresses."""
    return [
        {"offset": utf16(text[: found.start()]), "length": utf16(found.group()), "type": found.lastgroup}
        for found in _ENTITY.finditer(text)
    ]


def message(
    *, sender: Raw | None = ANA, chat: Raw = GROUP, message_id: int = 1, date: int = DATE, **fields: Any
) -> Raw:
    """A message, for an update or to be replied to; entities are found unless they are given."""
    told: Raw = {"message_id": message_id, "date": date, "chat": chat}
    if sender is not None:
        told["from"] = sender
    for words, entities in (("text", "entities"), ("caption", "caption_entities")):
        if words in fields and entities not in fields and (found := entities_of(fields[words])):
            told[entities] = found
    return told | fields


def update(kind: str, told: Raw, *, update_id: int = 1) -> Raw:
    return {"update_id": update_id, kind: told}


def text_message(text: str, *, update_id: int = 1, message_id: int | None = None, **fields: Any) -> Raw:
    """Somebody says something: by default Ana, in a supergroup, in the message with the number of the update."""
    number = update_id if message_id is None else message_id
    return update("message", message(text=text, message_id=number, **fields), update_id=update_id)


def sent(*, update_id: int = 1, message_id: int | None = None, **fields: Any) -> Raw:
    """Somebody sends something else than a text, or something happens in a chat: `sent(dice=…)`."""
    number = update_id if message_id is None else message_id
    return update("message", message(message_id=number, **fields), update_id=update_id)


def reply(text: str, to: Mapping[str, Any], **fields: Any) -> Raw:
    """Somebody replies to a message, or to that of an update, in the chat it is in; Telegram tells no replies twice."""
    parent = {**(to.get("message") or to.get("edited_message") or to)}
    parent.pop("reply_to_message", None)
    about: Raw = {"chat": parent["chat"], "message_id": parent["message_id"] + 1, "reply_to_message": parent}
    for name in ("message_thread_id", "is_topic_message"):
        if name in parent:
            about[name] = parent[name]
    return text_message(text, **(about | fields))


def edited(of: Mapping[str, Any], text: str, *, update_id: int = 2, after: int = 60) -> Raw:
    """Somebody changes the words of their message."""
    told: Raw = {**of["message"]}
    told["edit_date"] = told["date"] + after
    words, entities = ("text", "entities") if "text" in told else ("caption", "caption_entities")
    told.pop(entities, None)
    told[words] = text
    if found := entities_of(text):
        told[entities] = found
    return update("edited_message", told, update_id=update_id)


def file(**fields: Any) -> Raw:
    """Return the fields that every file has."""
    return {"file_id": "AgACAgIAAx0", "file_unique_id": "AQADxx", "file_size": 1024} | fields


def photo(caption: str | None = None, **fields: Any) -> Raw:
    """Somebody sends a photo; `media_group_id=…` makes it one of an album."""
    sizes = [file(width=90, height=67), file(width=1280, height=960)]
    return sent(photo=sizes, **({} if caption is None else {"caption": caption}), **fields)


def topic_beginning(thread_id: int, *, sender: Raw = ANA, chat: Raw = FORUM, name: str = "Garden") -> Raw:
    """The message in which nobody says anything and that everything in a forum topic replies to."""
    return message(
        sender=sender,
        chat=chat,
        message_id=thread_id,
        message_thread_id=thread_id,
        is_topic_message=True,
        forum_topic_created={"name": name, "icon_color": 7322096},
    )


def topic(text: str, thread_id: int, *, begun_by: Raw = ANA, update_id: int = 50, **fields: Any) -> Raw:
    """Somebody says something in a topic of a forum, to nobody's message."""
    chat = fields.pop("chat", FORUM)
    begun: Raw = {"reply_to_message": topic_beginning(thread_id, sender=begun_by, chat=chat)}
    where: Raw = {"chat": chat, "message_thread_id": thread_id, "is_topic_message": True}
    return text_message(text, update_id=update_id, **(where | begun | fields))


def from_user(person: Raw = BEN) -> Raw:
    """Return the origin of a message forwarded from a person."""
    return {"type": "user", "date": DATE - 3600, "sender_user": person}


def from_hidden(name: str = "Carla") -> Raw:
    """From somebody who doesn't want to be found."""
    return {"type": "hidden_user", "date": DATE - 3600, "sender_user_name": name}


def from_chat(chat: Raw = GROUP, signature: str | None = None) -> Raw:
    """From somebody who spoke as a group."""
    told: Raw = {"type": "chat", "date": DATE - 3600, "sender_chat": chat}
    return told | ({"author_signature": signature} if signature else {})


def from_channel(chat: Raw = CHANNEL, signature: str | None = None, message_id: int = 77) -> Raw:
    """From a channel."""
    told: Raw = {"type": "channel", "date": DATE - 3600, "chat": chat, "message_id": message_id}
    return told | ({"author_signature": signature} if signature else {})


def forwarded(text: str, origin: Raw, **fields: Any) -> Raw:
    """Somebody forwards what was said elsewhere."""
    return text_message(text, forward_origin=origin, **fields)


def by_anonymous_admin(text: str, *, chat: Raw = GROUP, **fields: Any) -> Raw:
    """An admin speaks as the group."""
    return text_message(text, chat=chat, sender=ANONYMOUS, sender_chat=chat, **fields)


def by_channel(text: str, *, channel: Raw = CHANNEL, **fields: Any) -> Raw:
    """Somebody speaks in a group as a channel of theirs."""
    return text_message(text, sender=CHANNEL_BOT, sender_chat=channel, **fields)


def from_linked_channel(text: str, *, channel: Raw = CHANNEL, **fields: Any) -> Raw:
    """A post of the group's own channel, brought by Telegram."""
    about: Raw = {"is_automatic_forward": True, "forward_origin": from_channel(channel)}
    return text_message(text, sender=LINKED, sender_chat=channel, **(about | fields))


def callback(
    data: str,
    *,
    under: Raw | None = None,
    sender: Raw = ANA,
    update_id: int = 1,
    callback_id: str = "4382bfdwdsb323b2d9",
) -> Raw:
    """Somebody presses a button under a message of the bot."""
    message_with_it = under or message(sender=BOT, message_id=9, text="Forget everything?")
    told: Raw = {"id": callback_id, "from": sender, "chat_instance": "-2787", "data": data}
    return update("callback_query", told | {"message": message_with_it}, update_id=update_id)


def migrated(*, old: Raw = SMALL_GROUP, new: Raw = GROUP, update_id: int = 1) -> tuple[Raw, Raw]:
    """A group becomes a supergroup: what the one and the other tell of it."""
    leaves = sent(update_id=update_id, message_id=400, chat=old, migrate_to_chat_id=new["id"])
    arrives = sent(
        update_id=update_id + 1,
        message_id=1,
        chat=new,
        sender=ANONYMOUS,
        sender_chat=new,
        migrate_from_chat_id=old["id"],
    )
    return leaves, arrives


def membership(
    status: str, *, before: str = "left", chat: Raw = GROUP, sender: Raw = ANA, update_id: int = 1, **rights: Any
) -> Raw:
    """Return an update that changes the bot's rights in a chat."""
    told: Raw = {"chat": chat, "from": sender, "date": DATE}
    told["old_chat_member"] = _member(before)
    told["new_chat_member"] = _member(status) | rights
    return update("my_chat_member", told, update_id=update_id)


def joined(**fields: Any) -> Raw:
    """The bot is added to a chat."""
    return membership("member", **fields)


def left(**fields: Any) -> Raw:
    """The bot is removed from a chat."""
    return membership("left", before="member", **fields)


def blocked(person: Raw = ANA, **fields: Any) -> Raw:
    """Somebody blocks the bot."""
    return membership("kicked", before="member", chat=direct(person), sender=person, **fields)


def unblocked(person: Raw = ANA, **fields: Any) -> Raw:
    """Somebody lets the bot write to them again."""
    return membership("member", before="kicked", chat=direct(person), sender=person, **fields)


_ADMINISTRATION = (
    "can_be_edited",
    "can_manage_chat",
    "can_change_info",
    "can_delete_messages",
    "can_invite_users",
    "can_restrict_members",
    "can_pin_messages",
    "can_manage_topics",
    "can_promote_members",
    "can_manage_video_chats",
    "can_post_stories",
    "can_edit_stories",
    "can_delete_stories",
    "is_anonymous",
)
_PERMISSIONS = (
    "can_send_messages",
    "can_send_audios",
    "can_send_documents",
    "can_send_photos",
    "can_send_videos",
    "can_send_video_notes",
    "can_send_voice_notes",
    "can_send_polls",
    "can_send_other_messages",
    "can_add_web_page_previews",
    "can_change_info",
    "can_invite_users",
    "can_pin_messages",
    "can_manage_topics",
    "can_edit_tag",
    "can_react_to_messages",
)


def _member(status: str) -> Raw:
    told: Raw = {"user": BOT, "status": status}
    if status == "administrator":
        told |= dict.fromkeys(_ADMINISTRATION, False)
    elif status == "restricted":
        told |= dict.fromkeys(_PERMISSIONS, False) | {"is_member": True, "until_date": 0}
    elif status == "kicked":
        told["until_date"] = 0
    return told
