"""Simulate Telegram's people and chats: who writes what where, and which of it the bot gets."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.channels.telegram.peer_text import entity_text, found_entities
from tests.channels.telegram.peer_updates import Updates

Json = dict[str, Any]
Kind = Literal["private", "group", "supergroup"]


@dataclass(slots=True, eq=False)
class Platform:
    """Everything that Telegram knows about one bot."""

    bot: Person
    updates: Updates = field(default_factory=Updates)
    chats: dict[int, Chat] = field(default_factory=dict[int, "Chat"])
    people: dict[int, Person] = field(default_factory=dict[int, "Person"])
    clock: Callable[[], float] = time.time
    can_read_all_group_messages: bool = True
    """False is privacy mode: of a group the bot sees commands, mentions of it and replies to it only."""
    callbacks: dict[str, Press] = field(default_factory=dict[str, "Press"])
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _message_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def number(self) -> int:
        """A number that nothing else has."""
        return next(self._numbers)

    def message_id(self) -> int:
        """The next of the ids that all private chats and basic groups share."""
        return next(self._message_ids)


@dataclass(slots=True, eq=False)
class Person:
    """Somebody with an account, perhaps a bot's."""

    id: int
    first_name: str
    username: str | None = None
    last_name: str | None = None
    is_bot: bool = False
    platform: Platform | None = None
    has_blocked_bot: bool = False

    @property
    def raw(self) -> Json:
        """The User, as updates name it."""
        names = {"first_name": self.first_name, "last_name": self.last_name, "username": self.username}
        user: Json = {"id": self.id, "is_bot": self.is_bot, **{key: name for key, name in names.items() if name}}
        return user if self.is_bot else user | {"language_code": "en"}

    def blocks_bot(self) -> None:
        self._stops(True)

    def unblocks_bot(self) -> None:
        self._stops(False)

    def _stops(self, blocked: bool) -> None:
        self.has_blocked_bot = blocked
        assert self.platform is not None
        chat = self.platform.chats.get(self.id)
        assert chat is not None, f"{self.first_name} has no chat with the bot"
        chat.bot_became("kicked" if blocked else "member", by=self)


@dataclass(slots=True, eq=False)
class Posted:
    """A message in a chat, with everything that the Bot API says about it."""

    chat: Chat
    raw: Json
    by_bot: bool
    updates: list[int] = field(default_factory=list[int])
    """The updates that tell the bot of it: one for the message, one for each edit."""

    @property
    def message_id(self) -> int:
        return self.raw["message_id"]

    @property
    def update_id(self) -> int:
        """The update that told the bot of it, the latest of them."""
        assert self.updates, "the bot was not told of this message"
        return self.updates[-1]

    @property
    def platform_id(self) -> str:
        return f"{self.chat.id}/{self.message_id}"

    @property
    def text(self) -> str:
        return self.raw.get("text") or self.raw.get("caption") or ""

    @property
    def topic(self) -> int | None:
        return self.raw["message_thread_id"] if self.raw.get("is_topic_message") else None

    @property
    def reply_to(self) -> int | None:
        """The id of the message that it answers; the first message of its topic doesn't count."""
        parent = self.raw.get("reply_to_message")
        return None if parent is None or "forum_topic_created" in parent else parent["message_id"]

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """(label, data) of what can be pressed under it."""
        rows = self.raw.get("reply_markup", {}).get("inline_keyboard", [])
        return [(button["text"], button.get("callback_data", "")) for row in rows for button in row]

    def entity_texts(self, kind: str) -> list[str]:
        """Return the parts marked as `kind`: "bold", "code", "text_link" …"""
        return [entity_text(self.text, one) for one in self.raw.get("entities", []) if one["type"] == kind]


@dataclass(slots=True, eq=False)
class Press:
    """A button that somebody has pressed, and what the bot answered to it."""

    id: str
    update_id: int | None
    answer: Json | None = None


@dataclass(slots=True, eq=False)
class Chat:
    """A chat with everything that is visible in it."""

    id: int
    kind: Kind
    platform: Platform
    title: str | None = None
    people: list[Person] = field(default_factory=list[Person])
    admins: list[Person] = field(default_factory=list[Person])
    is_forum: bool = False
    topics: dict[int, Posted] = field(default_factory=dict[int, Posted])
    messages: list[Posted] = field(default_factory=list[Posted])
    actions: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])
    """The bot's chat actions ("typing"), each with its topic."""
    bot_status: str = "member"
    migrated_to: Chat | None = None
    _ids: Iterator[int] = field(init=False)
    _by_id: dict[int, Posted] = field(default_factory=dict[int, Posted])

    def __post_init__(self) -> None:
        # The first message of a forum is its General topic, which no `message_thread_id` names.
        self._ids = itertools.count(2 if self.is_forum else 1)

    @property
    def raw(self) -> Json:
        """The Chat, as messages name it."""
        if self.kind == "private":
            person = self.people[0].raw
            return {key: person[key] for key in ("id", "first_name", "last_name", "username") if key in person} | {
                "type": "private"
            }
        if self.kind == "group":
            return {"id": self.id, "title": self.title, "type": "group", "all_members_are_administrators": True}
        return {"id": self.id, "title": self.title, "type": "supergroup"} | (
            {"is_forum": True} if self.is_forum else {}
        )

    def find(self, message_id: int) -> Posted | None:
        return self._by_id.get(message_id)

    def says(
        self,
        person: Person,
        text: str | None = None,
        *,
        reply_to: Posted | None = None,
        topic: int | None = None,
        entities: Sequence[Json] | None = None,
        date: float | None = None,
        **more: Any,
    ) -> Posted:
        """Somebody says something. Names, tags and commands in it are marked as Telegram does; `more` are fields of the
        raw message (`caption`, `photo`, `forward_origin`, …), and None leaves one out."""
        posted = self.already_said(person, text, reply_to=reply_to, topic=topic, entities=entities, date=date, **more)
        if self._bot_sees(posted):
            self._tell("message", posted)
        return posted

    def already_said(
        self,
        person: Person,
        text: str | None = None,
        *,
        reply_to: Posted | None = None,
        topic: int | None = None,
        entities: Sequence[Json] | None = None,
        date: float | None = None,
        **more: Any,
    ) -> Posted:
        """Add a message from before the bot joined: it exists, and the bot never got it."""
        assert self.migrated_to is None, "this group has become a supergroup: nobody writes here any more"
        assert person in self.people, f"{person.first_name} is not in this chat"
        body: Json = {} if text is None else {"text": text}
        caption = more.get("caption")
        marked = list(entities) if entities is not None else found_entities(text or caption or "")
        if marked:
            body["entities" if text is not None else "caption_entities"] = marked
        return self.post(person, body | more, reply_to=reply_to, topic=topic, date=date)

    def edits(self, message: Posted, text: str, *, date: float | None = None) -> int:
        """The author changes the words of a message (its caption, if it has no text); the id of the update."""
        field_, marks = ("text", "entities") if "text" in message.raw else ("caption", "caption_entities")
        message.raw |= {field_: text, "edit_date": int(date or self.platform.clock())}
        message.raw.pop(marks, None)
        if found := found_entities(text):
            message.raw[marks] = found
        if self._bot_sees(message):
            self._tell("edited_message", message)
        return message.update_id

    def presses(self, person: Person, message: Posted, data: str) -> Press:
        """Somebody presses a button of the bot's message."""
        assert data in [pressed for _, pressed in message.buttons], f"no such button: {message.buttons}"
        press = Press(str(self.platform.number() + 4_000_000_000_000_000), None)
        self.platform.callbacks[press.id] = press
        body = {"id": press.id, "from": person.raw, "message": dict(message.raw), "chat_instance": "1", "data": data}
        press.update_id = self.platform.updates.add("callback_query", body)
        return press

    def topic(self, name: str, *, by: Person | None = None) -> int:
        """Open a topic in a forum; its id is the id of the message that says so."""
        assert self.is_forum, "only forums have topics"
        opened = self.post(
            by or self.people[0],
            {"forum_topic_created": {"name": name, "icon_color": 7322096}, "is_topic_message": True},
        )
        opened.raw["message_thread_id"] = opened.message_id
        self.topics[opened.message_id] = opened
        self._tell("message", opened)
        return opened.message_id

    def deletes(self, message: Posted) -> None:
        """A message disappears; the bot isn't told."""
        self.messages.remove(message)
        del self._by_id[message.message_id]

    def migrates(self) -> Chat:
        """The basic group becomes a supergroup: a chat with another id and message ids of its own."""
        assert self.kind == "group", "only a basic group can become a supergroup"
        chat = Chat(
            -1_002_000_000_000 - self.platform.number(),
            "supergroup",
            self.platform,
            title=self.title,
            people=list(self.people),
            admins=list(self.admins),
        )
        self.platform.chats[chat.id] = chat
        owner = self.people[0]
        self._tell("message", self.post(owner, {"migrate_to_chat_id": chat.id}))
        anonymous: Json = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
        arrival = {"migrate_from_chat_id": self.id, "from": anonymous, "sender_chat": chat.raw}
        chat._tell("message", chat.post(owner, arrival))
        self.migrated_to = chat
        return chat

    def kicks_bot(self) -> None:
        self.bot_became("kicked", by=self.people[0])

    def takes_bot_back(self) -> None:
        self.bot_became("member", by=self.people[0])

    def makes_bot_admin(self) -> None:
        self.bot_became("administrator", by=self.people[0])

    def bot_became(self, status: str, *, by: Person) -> None:
        """The bot has another standing in this chat, and is told."""
        bot = self.platform.bot.raw
        before, self.bot_status = self.bot_status, status
        now = int(self.platform.clock())
        change = {"old_chat_member": membership(before, bot), "new_chat_member": membership(status, bot)}
        self.platform.updates.add("my_chat_member", {"chat": self.raw, "from": by.raw, "date": now, **change})

    def post(
        self,
        person: Person,
        body: Json,
        *,
        reply_to: Posted | None = None,
        topic: int | None = None,
        date: float | None = None,
    ) -> Posted:
        """Put a message into the chat, without telling the bot."""
        moment = int(date if date is not None else self.platform.clock())
        number = next(self._ids) if self.kind == "supergroup" else self.platform.message_id()
        raw: Json = {"message_id": number, "from": person.raw, "chat": self.raw, "date": moment}
        raw |= self._place(reply_to, topic)
        raw |= {key: value for key, value in body.items() if value is not None}
        posted = Posted(self, raw, by_bot=person is self.platform.bot)
        self.messages.append(posted)
        self._by_id[number] = posted
        return posted

    def _place(self, reply_to: Posted | None, topic: int | None) -> Json:
        """Return the position of a message: what it replies to, and its thread."""
        place: Json = {}
        if topic is None and reply_to is not None:
            topic = reply_to.topic
        if topic is not None:
            place |= {"message_thread_id": topic, "is_topic_message": True}
            # In a topic, what answers nothing is a reply to the message that opened it.
            reply_to = reply_to or self.topics[topic]
        elif reply_to is not None and self.kind == "supergroup":
            # A chain of replies is a thread too; only topics say so with `is_topic_message`.
            place["message_thread_id"] = reply_to.raw.get("message_thread_id", reply_to.message_id)
        if reply_to is not None:
            place["reply_to_message"] = {key: value for key, value in reply_to.raw.items() if key != "reply_to_message"}
        return place

    def _tell(self, kind: str, message: Posted) -> None:
        update_id = self.platform.updates.add(kind, dict(message.raw))
        if update_id is not None:
            message.updates.append(update_id)

    def _bot_sees(self, message: Posted) -> bool:
        if self.bot_status in ("kicked", "left"):
            return False
        if self.kind == "private" or self.platform.can_read_all_group_messages or self.bot_status == "administrator":
            return True
        bot = self.platform.bot
        if message.raw.get("reply_to_message", {}).get("from", {}).get("id") == bot.id:
            return True
        marked: list[Json] = message.raw.get("entities") or message.raw.get("caption_entities") or []
        return any(self._concerns_bot(one, entity_text(message.text, one)) for one in marked)

    def _concerns_bot(self, entity: Json, text: str) -> bool:
        name = f"@{self.platform.bot.username}".casefold()
        match entity["type"]:
            case "mention":
                return text.casefold() == name
            case "bot_command":
                return "@" not in text or text.casefold().endswith(name)
            case "text_mention":
                return entity["user"]["id"] == self.platform.bot.id
            case _:
                return False


_RIGHTS = (
    "can_be_edited",
    "can_manage_chat",
    "can_delete_messages",
    "can_manage_video_chats",
    "can_restrict_members",
    "can_promote_members",
    "can_change_info",
    "can_invite_users",
    "can_post_stories",
    "can_edit_stories",
    "can_delete_stories",
    "can_pin_messages",
    "can_manage_topics",
    "can_manage_direct_messages",
    "can_manage_tags",
)


def membership(status: str, user: Json) -> Json:
    """A ChatMember."""
    member: Json = {"status": status, "user": user}
    match status:
        case "creator":
            return member | {"is_anonymous": False}
        case "administrator":
            return member | {"is_anonymous": False} | dict.fromkeys(_RIGHTS, True)
        case "kicked":
            return member | {"until_date": 0}
        case _:
            return member
