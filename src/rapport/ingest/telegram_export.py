"""Read Telegram Desktop's export, `result.json`: one chat, or all chats of an account."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

import orjson

from rapport.domain.chat_archive import Archive, ArchivedMessage, RowProblem
from rapport.domain.conversation import Author
from rapport.domain.conversation_kind import ConversationKind
from rapport.domain.errors import InvalidInput
from rapport.ingest.archive_rows import ArchiveBuilder, as_mapping, read_id, read_name, read_time
from rapport.ingest.content import MAX_CHARACTERS, MAX_MENTIONS, check_content
from rapport.ingest.placeholders import render_list, render_placeholder

_DIRECT = {"personal_chat", "bot_chat", "saved_messages"}
_MEDIA = {
    "sticker": "sticker",
    "voice_message": "voice message",
    "video_message": "video message",
    "video_file": "video",
    "audio_file": "audio",
    "animation": "animation",
}


@dataclass(frozen=True, slots=True)
class TelegramChat:
    """A chat of an export, before its messages are read."""

    id: str
    """The id with its kind, as in the rest of the file: `user1`, `chat1`, `channel1`. A number alone is ambiguous."""
    number: str
    name: str
    type: str
    rows: Sequence[Any]

    @property
    def kind(self) -> ConversationKind:
        return "direct" if self.type in _DIRECT else "group"

    @property
    def has_own_numbers(self) -> bool:
        """Return True if its messages have the same numbers for everybody, bots included."""
        return self.id.startswith("channel")

    def has_name(self, wanted: str) -> bool:
        return wanted in (self.id, self.number) or wanted.casefold() == self.name.casefold()


@dataclass(frozen=True, slots=True)
class _Topics:
    """The forum topic of each row. The file has it only through replies."""

    known: dict[str, str] = field(default_factory=dict[str, str])

    def see(self, row: Mapping[str, Any]) -> None:
        """Record a topic that a service row begins."""
        if row.get("action") == "topic_created":
            self.known[str(row.get("id"))] = str(row.get("id"))

    def of(self, row: Mapping[str, Any]) -> str | None:
        """Return the topic of the row it replies to, which comes before it."""
        topic = None if "reply_to_peer_id" in row else self.known.get(str(row.get("reply_to_message_id")))
        if topic is not None:
            self.known[str(row.get("id"))] = topic
        return topic


def list_telegram_chats(data: bytes) -> list[TelegramChat]:
    """Return the chats of an export; raise InvalidInput if the file is no export."""
    export = as_mapping(_parse(data)) or {}
    if isinstance(export.get("messages"), list):
        return [_chat(export)]
    chat_lists = [as_mapping(export.get(name)) for name in ("chats", "left_chats")]
    found = [chat for chat_list in chat_lists if chat_list for chat in _as_list(chat_list.get("list"))]
    chats = [_chat(chat) for chat in map(as_mapping, found) if chat is not None]
    if not chats:
        raise InvalidInput(
            "There is no chat in this file. It must be the `result.json` of Telegram Desktop's export, made as JSON."
        )
    return chats


def read_telegram(
    chat: TelegramChat, *, now: datetime, agent_authors: Sequence[str] = (), limit: int = MAX_CHARACTERS
) -> Archive:
    """Return a chat as an archive. In a chat with a bot, the bot's messages are the agent's; else only those of
    `agent_authors`, by id or name: anybody may use an agent's name."""
    rows = ArchiveBuilder()
    agents = {*agent_authors, *([f"user{chat.number}"] if chat.type == "bot_chat" else [])}
    topics = _Topics()
    has_guessed = False
    for number, row in enumerate(chat.rows, 1):
        mapping = as_mapping(row) or {}
        location = f"message {number}" + (f" (id {mapping['id']})" if isinstance(mapping.get("id"), int) else "")
        if mapping.get("type") in ("service", "unsupported"):
            topics.see(mapping)
            rows.skipped += 1
            continue
        try:
            message = _message(mapping, agents, now=now, limit=limit)
            topic = topics.of(mapping)
            if message is None:
                rows.skipped += 1
                continue
            if message.reply_to == topic:  # every message in a topic replies to its start, which is no message
                message = replace(message, reply_to=None)
            # The same id as in the live channel. In other chats each member has their own numbers for the same messages.
            platform_id = f"-100{chat.number}/{message.row_id}" if chat.has_own_numbers else None
            rows.add(location, replace(message, thread_id=topic, platform_id=platform_id))
        except InvalidInput as error:
            rows.problems.append(RowProblem(location, str(error)))
        if "date_unixtime" not in mapping and not has_guessed:
            has_guessed = True
            rows.warnings.append(RowProblem(location, "The file is from an old version: its times are taken as UTC."))
    return rows.build("telegram", chat.id, title=chat.name or None, kind=chat.kind)


def _parse(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        # Invalid Unicode in one message is reported for that message; the others are read.
        return json.loads(data.decode(errors="surrogateescape").removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The file isn't valid JSON: it may be cut off, or the export was made as HTML.") from error


def _as_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _chat(chat: Mapping[str, Any]) -> TelegramChat:
    form, name = str(chat.get("type")), chat.get("name")
    number = read_id(chat.get("id"), what="id of the chat", limit=40)
    family = "user" if form in _DIRECT else "chat" if form == "private_group" else "channel"
    title = name if isinstance(name, str) else "Saved Messages" if form == "saved_messages" else ""
    return TelegramChat(f"{family}{number}", number, title, form, _as_list(chat.get("messages")))


def _message(row: Mapping[str, Any], agents: set[str], *, now: datetime, limit: int) -> ArchivedMessage | None:
    """Return the message of a row; None if it is empty."""
    if row.get("type") != "message":
        raise InvalidInput("It isn't a message: its `type` is missing or unknown.")
    row_id = read_id(row.get("id"))
    created_at = read_time(row.get("date_unixtime", row.get("date")), now=now, what="date")
    content = "\n".join(part for part in (_render_media(row), _text(row.get("text"))) if part)
    if not content.strip():
        return None
    if "forwarded_from" in row:
        content = f"[forwarded from {row['forwarded_from'] or 'a deleted account'}]\n{content}"
    author = _author(row)
    is_agent = bool(agents & {author.id, author.name})
    replied = row.get("reply_to_message_id")
    return ArchivedMessage(
        row_id,
        "assistant" if is_agent else "user",
        check_content(content, limit=limit),
        created_at,
        author,
        # With a peer it replies to a message of another chat.
        None if replied is None or "reply_to_peer_id" in row else read_id(replied, what="reply_to_message_id"),
        metadata=_read_edit_time(row, now=now),
        mentions=_read_mentions(row.get("text")),
        is_bot=is_agent,
    )


def _read_mentions(text: object) -> tuple[str, ...]:
    """Return the people mentioned without a username, by the id that authors have in the file."""
    parts = [as_mapping(part) or {} for part in _as_list(text)]
    numbers = [part.get("user_id") for part in parts if part.get("type") == "mention_name"]
    author_ids = [f"user{number}" for number in numbers if isinstance(number, int) and 0 < number < 2**63]
    return tuple(dict.fromkeys(author_ids))[:MAX_MENTIONS]


def _read_edit_time(row: Mapping[str, Any], *, now: datetime) -> dict[str, str]:
    """Return the time of the last edit. Old versions wrote a time in 1970 for no edit: it is ignored."""
    try:
        return {"edited_at": read_time(row.get("edited_unixtime"), now=now).isoformat()}
    except InvalidInput:
        return {}


def _author(row: Mapping[str, Any]) -> Author:
    name, raw_id = row.get("from"), row.get("from_id")
    if raw_id is None:
        display_name = read_name(name, what="from")
        return Author(display_name, display_name)
    author_id = read_id(raw_id, what="from_id")
    author_id = author_id if isinstance(raw_id, str) else f"user{author_id}"  # older exports have the bare number
    return Author(author_id, "Deleted account" if name is None else read_name(name, what="from"))


def _text(value: object) -> str:
    """Return the text, which has several parts if it is formatted."""
    if isinstance(value, str):
        return value
    return "".join(_part(part) for part in _as_list(value))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    mapping = as_mapping(part) or {}
    text, address = str(mapping.get("text", "")), mapping.get("href")
    return f"{text} ({address})" if isinstance(address, str) and address != text else text


def _render_media(row: Mapping[str, Any]) -> str:
    """Return an attachment as one line; the files are not imported."""
    if (kind := row.get("media_type")) is not None:
        details = [row.get("sticker_emoji") or row.get("title"), row.get("performer")]
        name = _MEDIA.get(str(kind), str(kind).replace("_", " "))
        return render_placeholder(name, *(details if any(details) else [row.get("file_name")]))
    if "photo" in row:
        return "[photo]"
    if "file" in row:
        return render_placeholder(
            "file", row.get("file_name") or str(row["file"]).partition(" (")[0].rpartition("/")[2]
        )
    return _render_shared(row)


def _render_shared(row: Mapping[str, Any]) -> str:
    if contact := as_mapping(row.get("contact_information")):
        return render_placeholder(
            "contact", " ".join(str(contact.get(name) or "") for name in ("first_name", "last_name"))
        )
    if "location_information" in row or "place_name" in row:
        point = as_mapping(row.get("location_information")) or {}
        details = [row.get("place_name"), row.get("address"), point.get("latitude"), point.get("longitude")]
        return render_placeholder("location", ", ".join(str(part) for part in details if part is not None))
    if poll := as_mapping(row.get("poll")):
        answers = (_text((as_mapping(answer) or {}).get("text")) for answer in _as_list(poll.get("answers")))
        return render_list("poll", _text(poll.get("question")), answers)
    for name in ("game_title", "invoice_information"):
        if name in row:
            return render_placeholder(name.partition("_")[0], row[name] if isinstance(row[name], str) else None)
    return ""
