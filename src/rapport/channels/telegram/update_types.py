"""Define the events that an update can carry: a message, a pressed button, a change of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from rapport.domain.conversation import Author
from rapport.domain.conversation_kind import TRAITS, ConversationKind, ConversationTraits
from rapport.ingest.addressing import Facts


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's account, and the agent that answers through it."""

    id: int
    username: str
    """Without the @."""
    agent_id: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat of Telegram."""

    id: int
    kind: ConversationKind
    title: str | None
    """Of a direct chat the person's name."""

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


@dataclass(frozen=True, slots=True)
class Person:
    """A user of Telegram."""

    id: int
    username: str | None
    name: str

    @property
    def author(self) -> Author:
        """Return the author, with the id that exports of chats use."""
        return Author(f"user{self.id}", self.name)


@dataclass(frozen=True, slots=True)
class UpdateOrigin:
    """The chat and the sender of an update, read without parsing the rest."""

    chat_id: int
    kind: ConversationKind
    title: str | None
    """Of a direct chat the person's name."""
    person_id: int | None
    person_name: str | None

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command at the beginning of a message, for this bot or for any bot."""

    name: str
    """In lower case, without / and @bot."""
    argument: str
    """The rest of the message."""
    is_for_this_bot: bool
    """True if it names this bot, as in /help@bot."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A new or edited message; all its fields can be stored as they are."""

    chat: Chat
    person: Person | None
    """None for an anonymous admin and for a channel: they write as a chat."""
    author: Author
    text: str
    said_at: datetime
    """The platform's second, and below it the message's number: messages of one second keep their order."""
    platform_id: str
    message_id: int
    thread_id: str | None
    is_bot: bool
    is_admin: bool
    """True for an anonymous admin of the group: only admins can write as the group."""
    mentions_agent: bool
    replies_to_agent: bool
    usernames: tuple[str, ...]
    """Other usernames it mentions, in lower case and without @; their ids are known only from earlier messages."""
    mentions: tuple[str, ...]
    """Ids of authors whom it tags without a username, and the agent's if it tags the bot."""
    reply_to_platform_id: str | None
    context_snapshot: Mapping[str, Any] | None
    command: ParsedCommand | None
    edited_at: datetime | None
    """The time of the edit; None for a new message."""
    album: str | None
    """Messages of one album were sent at once, and mostly only one of them has words."""
    has_words: bool
    """True if it has a text or a caption."""

    @property
    def facts(self) -> Facts:
        """Return the facts by which `ingest/addressing.py` decides whether it is for the agent."""
        return Facts(
            is_direct=self.chat.traits.is_always_addressed,
            mentions_agent=self.mentions_agent,
            replies_to_agent=self.replies_to_agent,
            is_bot=self.is_bot,
        )


@dataclass(frozen=True, slots=True)
class ButtonPressed:
    """Somebody pressed a button under one of the bot's messages."""

    chat: Chat
    person: Person
    callback_id: str
    data: str
    platform_id: str | None
    """The platform id of the message with the button, if the update has it."""
    message_id: int | None
    thread_id: str | None


@dataclass(frozen=True, slots=True)
class GroupMigrated:
    """A group became a supergroup, which is another chat to Telegram."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """The bot was added or removed, blocked or unblocked, or its rights were changed."""

    chat: Chat
    person: Person
    """The person who made the change."""
    is_member: bool
    can_speak: bool


@dataclass(frozen=True, slots=True)
class Ignored:
    """An update without a message."""

    reason: str
    """For the log, without any text of a message."""


ChatEvent: TypeAlias = "MessageReceived | ButtonPressed | GroupMigrated | MembershipChanged | Ignored"
