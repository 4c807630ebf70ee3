"""Conversations, messages and who says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from rapport.domain.conversation_kind import TRAITS, ConversationKind, ConversationTraits

Role: TypeAlias = Literal["user", "assistant", "system-summary"]
Block: TypeAlias = Mapping[str, Any]
"""A LangChain content block: `{"type": "text", "text": …}` or `{"type": "image", …}`."""
Content: TypeAlias = "str | Sequence[Block]"

API_CHANNEL = "api"
"""The channel of conversations whose replies are fetched by whoever asks; through every other they are sent."""

LOCAL_USER = "local"
"""The owner of everything on a server that has no keys."""


@dataclass(frozen=True, slots=True)
class Author:
    """A person or an agent, as a channel names them."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat with one agent."""

    id: str
    owner_id: str
    agent_id: str
    kind: ConversationKind
    channel: str
    title: str | None
    created_at: datetime
    last_at: datetime

    @property
    def traits(self) -> ConversationTraits:
        return TRAITS[self.kind]


@dataclass(frozen=True, slots=True)
class Message:
    """One utterance as it is stored: what people and the agent said, never changed afterwards."""

    id: str
    conversation_id: str
    role: Role
    content: Content
    created_at: datetime
    author: Author | None = None
    reply_to_id: str | None = None
    client_message_id: str | None = None
    event_id: str | None = None
    sources: Sequence[Mapping[str, str]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    summary_id: str | None = None
    """The summary that stands for it when the model is asked."""
    mentions: Sequence[str] = ()
    """Whom the channel says it addresses beside the names in its words: ids or names of authors."""
    thread_id: str | None = None
    """The forum topic it was said in, as the platform names it."""
    is_bot: bool = False
    """Said by a program: by this agent or by another bot of the chat."""
    platform_id: str | None = None
    """What the platform calls it."""
    context_snapshot: Mapping[str, Any] | None = None
    """Of a reply to a message that is not stored here: that message, `{id?, author?, text, created_at?}`, as the reply
    brought it along."""

    @property
    def text(self) -> str:
        """Return the text of the message, without its images."""
        return extract_text(self.content)

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """Its metadata by LangChain's name: `is_synthetic` asks stored messages and the model's alike."""
        return self.metadata


def extract_text(content: Content) -> str:
    """Return the text blocks of some content, joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as a channel hands it over: validated, not yet stored."""

    owner_id: str
    conversation_id: str
    content: Content
    author: Author | None = None
    reply_to_id: str | None = None
    client_message_id: str | None = None
    mentions: Sequence[str] = ()
    thread_id: str | None = None
    is_bot: bool = False
    """It is stored and may be told to the agent, and is never answered: two bots would never stop."""
    platform_id: str | None = None
    """What the platform calls it; the same again is the same message."""
    reply_to_platform_id: str | None = None
    """What the platform calls the message that this one replies to, where the channel doesn't know our id of it."""
    context_snapshot: Mapping[str, Any] | None = None
    """The message that this one replies to, `{id?, author?, text, created_at?}`, for the case that it isn't stored here."""
    payload: Mapping[str, Any] | None = None
    """The platform's own update, kept for whoever looks into it."""
    said_at: datetime | None = None
    """When it was said, by the platform's clock; what is less than a second of it puts messages of one second in order.
    Without it, it is said when it is stored."""
    edited_at: datetime | None = None
    """When it was edited: `content` replaces what the message said before."""
    mentions_agent: bool | None = None
    """Whether the platform marks a mention of the agent in it; None: the platform marks none, read the words."""
    replies_to_agent: bool | None = None
    """Whether it replies to the agent by the platform's account; None: look at the stored message."""
    is_album_rest: bool = False
    """Another message of the same album is answered in its place."""
    awaits_reply: bool = False
    """Its sender waits for a reply to this very message, as one who requests a completion does."""


@dataclass(frozen=True, slots=True)
class Audience:
    """The conversations in which a message is for the agent, decided before the conversation's row is read."""

    in_direct_chats: bool
    in_group_chats: bool
    in_groups_of: Sequence[str] = ()
    """Ids of the agents in whose group chats it is, where it is not in all of them."""

    @property
    def is_empty(self) -> bool:
        return not (self.in_direct_chats or self.in_group_chats or self.in_groups_of)
