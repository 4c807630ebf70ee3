"""Conversations: create, find, list and rename them, and create them with earlier messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.agents.directory import AgentDirectory, add_chat_handle
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.chat_archive import ArchivedMessage
from rapport.domain.conversation import API_CHANNEL, Author, Conversation
from rapport.domain.conversation_kind import ConversationKind
from rapport.domain.read_models import ListedConversation
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.conversations.ephemeral import EphemeralConversations
from rapport.storage.conversations.listing import ConversationListing
from rapport.storage.database import Database
from rapport.storage.messages.import_export import Archives


@dataclass(frozen=True, slots=True)
class Participants:
    """The people who wrote recently, the latest first, and the agent with its handles in this conversation."""

    people: Sequence[Author]
    agent: AgentProfile


@dataclass(frozen=True, slots=True)
class ConversationDirectory:
    """Every method takes the owner and raises NotFound for a conversation that is not theirs."""

    database: Database
    agents: AgentDirectory

    async def create(
        self,
        owner_id: str,
        *,
        agent_id: str,
        kind: ConversationKind = "direct",
        channel: str = API_CHANNEL,
        title: str | None = None,
        handle: str | None = None,
    ) -> Conversation:
        """Create an empty conversation."""
        async with self.database.statement() as connection:
            return await Conversations(connection).create(
                owner_id, agent_id=agent_id, kind=kind, channel=channel, title=title, handle=handle
            )

    async def create_seeded(
        self,
        owner_id: str,
        conversation_id: str,
        *,
        agent_id: str,
        title: str | None,
        at: datetime,
        messages: Sequence[ArchivedMessage] = (),
        prefix: str = "",
        follows_up: bool = False,
    ) -> None:
        """Create a direct chat that begins with these messages, unless it exists. The agent follows up in it only if told so.

        `prefix` marks the client ids of the messages, so that storing them twice stores them once.
        """
        async with self.database.transaction() as connection:
            archives = Archives(connection)
            await archives.create_conversation(
                owner_id, conversation_id, agent_id=agent_id, kind="direct", title=title, at=at
            )
            if not follows_up:
                await Conversations(connection).set_followups_enabled(owner_id, conversation_id, False)
            if messages:
                await archives.import_messages(owner_id, conversation_id, messages, prefix=prefix)

    async def get(self, owner_id: str, conversation_id: str) -> Conversation:
        """Return the conversation."""
        async with self.database.statement() as connection:
            return await Conversations(connection).get(owner_id, conversation_id)

    async def list_recent(
        self, owner_id: str, *, limit: int, before: tuple[datetime, str] | None = None, words: str = ""
    ) -> list[ListedConversation]:
        """Return conversations, the latest first; `before` is the (last_at, id) of the last one of the page before.

        With `words`, only those of the latest whose title or recent messages contain them all.
        """
        async with self.database.statement() as connection:
            return await ConversationListing(connection).list_recent(owner_id, limit=limit, before=before, words=words)

    async def rename(self, owner_id: str, conversation_id: str, title: str | None) -> ListedConversation:
        """Set or remove the title."""
        async with self.database.transaction() as connection:
            conversations = Conversations(connection)
            await conversations.rename((await conversations.get(owner_id, conversation_id)).id, title)
            return await ConversationListing(connection).get(owner_id, conversation_id)

    async def load_participants(self, owner_id: str, conversation_id: str, *, limit: int) -> Participants:
        """Return the participants of a conversation."""
        async with self.database.statement() as connection:
            conversation = await Conversations(connection).get(owner_id, conversation_id)
            listing = ConversationListing(connection)
            handle = await listing.get_agent_handle(owner_id, conversation_id)
            people = await listing.list_people(owner_id, conversation_id, limit=limit)
        agent = await self.agents.reload(owner_id, conversation.agent_id)
        return Participants(people, add_chat_handle(agent, handle))

    async def set_reachable(self, conversation_id: str, is_reachable: bool) -> None:
        """Record whether the channel can send to this conversation."""
        async with self.database.statement() as connection:
            conversations = Conversations(connection)
            if is_reachable:
                await conversations.mark_reachable(conversation_id)
            else:
                await conversations.mark_unreachable(conversation_id)

    async def list_ephemeral(self, *, before: datetime, limit: int) -> list[tuple[str, str]]:
        """Return (owner id, conversation id) of ephemeral conversations made before a moment, the oldest first."""
        async with self.database.statement() as connection:
            return await EphemeralConversations(connection).list_leftover(before=before, limit=limit)
