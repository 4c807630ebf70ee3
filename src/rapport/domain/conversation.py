"""Define conversations, messages and their authors."""

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
"""The channel whose clients fetch replies. All other channels send them."""

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
    """One stored message of a person or of the agent."""

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
    """The summary that replaces it in prompts."""
    mentions: Sequence[str] = ()
    """Ids or names of authors that the channel marks as addressed, beside names in the text."""
    thread_id: str | None = None
    """The platform's id of its forum topic."""
    is_bot: bool = False
    """Written by a program: this agent or another bot of the chat."""
    platform_id: str | None = None
    """The platform's id of the message."""
    context_snapshot: Mapping[str, Any] | None = None
    """A copy of the replied-to message, `{id?, author?, text, created_at?}`, for a reply to a message that is not stored here."""

    @property
    def text(self) -> str:
        """Return the text of the message, without its images."""
        return extract_text(self.content)

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """Return the metadata under LangChain's name: `is_synthetic` takes stored messages and the model's alike."""
        return self.metadata


def extract_text(content: Content) -> str:
    """Return the text blocks of some content, joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message from a channel: validated, not yet stored."""

    owner_id: str
    conversation_id: str
    content: Content
    author: Author | None = None
    reply_to_id: str | None = None
    client_message_id: str | None = None
    mentions: Sequence[str] = ()
    thread_id: str | None = None
    is_bot: bool = False
    """True if a bot wrote it: it is stored but never answered, because two bots would never stop."""
    platform_id: str | None = None
    """The platform's id of the message. A second message with the same id is the same message."""
    reply_to_platform_id: str | None = None
    """The platform's id of the replied-to message, where the channel does not know our id of it."""
    context_snapshot: Mapping[str, Any] | None = None
    """A copy of the replied-to message, `{id?, author?, text, created_at?}`, for the case that it is not stored here."""
    payload: Mapping[str, Any] | None = None
    """The platform's own update, stored for diagnosis."""
    said_at: datetime | None = None
    """The time by the platform's clock. Its fraction orders messages of the same second. None: the time of storing counts."""
    edited_at: datetime | None = None
    """The time of an edit: `content` replaces the stored content."""
    mentions_agent: bool | None = None
    """True if the platform marks a mention of the agent; None: this platform marks no mentions, read the text."""
    replies_to_agent: bool | None = None
    """True if the platform says that it replies to the agent; None: read the stored message."""
    is_album_rest: bool = False
    """True if another message of the same album is answered in its place."""
    awaits_reply: bool = False
    """True if the sender waits for a reply to this message, as a client of the completions API does."""


@dataclass(frozen=True, slots=True)
class Audience:
    """The conversations in which a message is for the agent, decided before the conversation's row is read."""

    in_direct_chats: bool
    in_group_chats: bool
    in_groups_of: Sequence[str] = ()
    """Ids of the agents in whose group chats it is, where it is not in all of them."""
    in_groups_of_deleted: bool = False
    """True if it is in group chats whose agent was deleted."""

    @property
    def is_empty(self) -> bool:
        return not (self.in_direct_chats or self.in_group_chats or self.in_groups_of or self.in_groups_of_deleted)
