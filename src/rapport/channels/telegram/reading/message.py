"""Read one message: its sender, time, text and what it replies to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import telegram
from rapport.channels.telegram.reading.media import render_media
from rapport.channels.telegram.reading.mentions import Words
from rapport.channels.telegram.reading.names import (
    check_number,
    find_origin_author,
    find_signature,
    make_chat_author,
    make_person,
    make_storable,
)
from rapport.channels.telegram.update_types import BotIdentity, Person
from rapport.domain.conversation import Author
from rapport.domain.text_checks import has_visible_text
from rapport.ingest.content import MAX_CHARACTERS, check_snapshot

_LAST_SECOND = 2**32
"""Telegram's dates are 32-bit numbers; 0 means none."""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Speaker:
    """The sender of a message: a person, a bot, or a chat in whose name somebody writes."""

    person: Person | None
    author: Author
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The message that a message replies to, if any."""

    platform_id: str | None = None
    snapshot: Mapping[str, Any] | None = None
    is_to_agent: bool = False


def find_speaker(message: telegram.Message, bot: BotIdentity) -> Speaker | None:
    """Return the sender; None if the message has none. For a message in a chat's name, Telegram's placeholder user is ignored."""
    if message.sender_chat is not None:
        return Speaker(None, make_chat_author(message.sender_chat))
    if message.from_user is None:
        return None
    person = make_person(message.from_user)
    author = Author(bot.agent_id, person.name) if person.id == bot.id else person.author
    return Speaker(person, author, bool(message.from_user.is_bot))


def make_platform_id(chat_id: int, message_id: object) -> str:
    """Return a message's platform id. It has the chat's id, because a supergroup numbers its messages from 1 again."""
    return f"{chat_id}/{check_number(message_id)}"


def find_topic(message: telegram.Message) -> str | None:
    """Return the forum topic. The thread id of a reply chain is not a topic."""
    if not message.is_topic_message or message.message_thread_id is None:
        return None
    return str(check_number(message.message_thread_id))


def read_time(message: telegram.Message) -> datetime:
    """Return the message's time; messages of one second are ordered by their numbers."""
    return check_date(message.date).replace(microsecond=check_number(message.message_id) % _MICROSECONDS)


def check_date(date: datetime) -> datetime:
    """Return the date; raises ValueError if Telegram cannot have written it."""
    if not _is_plausible(date):
        raise ValueError("a date was expected")
    return date


def read_words(message: telegram.Message, raw: Mapping[str, Any] | None = None) -> Words:
    """Return the text or caption. Only `raw`, the received JSON, distinguishes empty entities from missing ones."""
    if message.text is not None:
        text, entities, name = message.text, message.entities, "entities"
    else:
        text, entities, name = message.caption or "", message.caption_entities, "caption_entities"
    return Words(make_storable(text), entities if raw is None or name in raw else None)


def render_text(message: telegram.Message, words: Words) -> str:
    """Return the text with its attachment's placeholder; empty if the message says nothing."""
    attachment, text = render_media(message), words.with_addresses if has_visible_text(words.text) else ""
    if not attachment and not text:
        return ""
    parts = (_render_origin(message), _render_quote(message), attachment, text)
    return make_storable("\n".join(part for part in parts if part))[:MAX_CHARACTERS]


def find_reply(message: telegram.Message, bot: BotIdentity) -> Reply:
    """Return what it replies to: a message of this chat, a message of another chat, or a story."""
    parent = message.reply_to_message
    if parent is not None:
        text = render_text(parent, read_words(parent))
        if not _is_topic_start(parent, message, text):
            return _make_reply(parent, message, text, bot)
    if message.external_reply is not None:
        return _make_external_reply(message.external_reply, message, bot)
    if message.reply_to_story is not None:
        return Reply(snapshot=check_snapshot("[story]", author=make_chat_author(message.reply_to_story.chat)))
    return Reply()


def _is_topic_start(parent: telegram.Message, message: telegram.Message, text: str) -> bool:
    """Return True if it is the start of a forum topic, which Telegram gives as the parent of every message there."""
    return parent.forum_topic_created is not None or (not text and parent.message_id == message.message_thread_id)


def _make_reply(parent: telegram.Message, message: telegram.Message, text: str, bot: BotIdentity) -> Reply:
    is_here = parent.chat.id == message.chat.id
    platform_id = make_platform_id(check_number(parent.chat.id), parent.message_id) if is_here else None
    speaker = find_speaker(parent, bot)
    snapshot = None
    if text:
        created_at = read_time(parent).isoformat() if _is_plausible(parent.date) else None
        author = None if speaker is None else speaker.author
        snapshot = check_snapshot(text, id=platform_id, author=author, created_at=created_at)
    is_to_me = speaker is not None and speaker.person is not None and speaker.person.id == bot.id
    return Reply(platform_id, snapshot, is_to_me)


def _make_external_reply(external: telegram.ExternalReplyInfo, message: telegram.Message, bot: BotIdentity) -> Reply:
    """Return a reply to another chat, or to another topic of this chat, whose message has a platform id here."""
    origin, quote = external.origin, message.quote
    is_here = external.chat is not None and external.chat.id == message.chat.id and external.message_id is not None
    platform_id = make_platform_id(message.chat.id, external.message_id) if is_here else None
    is_mine = isinstance(origin, telegram.MessageOriginUser) and origin.sender_user.id == bot.id
    author = find_origin_author(origin)
    if is_mine and author is not None:
        author = Author(bot.agent_id, author.name)
    parts = (render_media(external), make_storable(quote.text) if quote else "")
    text = make_storable("\n".join(part for part in parts if part))[:MAX_CHARACTERS]
    snapshot = None
    if has_visible_text(text):
        created_at = origin.date.isoformat() if _is_plausible(origin.date) else None
        snapshot = check_snapshot(text, id=platform_id, author=author, created_at=created_at)
    # A quote of the bot's message from another chat refers to the bot.
    return Reply(platform_id, snapshot, is_mine and is_here)


def _render_origin(message: telegram.Message) -> str:
    """Return who a forwarded message is from. A linked channel's post is forwarded too, and is its own."""
    origin = message.forward_origin
    if origin is None or message.is_automatic_forward:
        return ""
    author, signature = find_origin_author(origin), find_signature(origin)
    if author is None:
        return "[forwarded]"
    return f"[forwarded from {author.name} ({signature})]" if signature else f"[forwarded from {author.name}]"


def _render_quote(message: telegram.Message) -> str:
    """Return the passage that the sender quoted; quotes that Telegram adds are left out."""
    quote = message.quote
    if quote is None or not quote.is_manual:
        return ""
    text = make_storable(quote.text)
    return "\n".join(f"> {line}" for line in text.splitlines()) if has_visible_text(text) else ""


def _is_plausible(date: object) -> bool:
    return isinstance(date, datetime) and 0 < date.timestamp() < _LAST_SECOND
