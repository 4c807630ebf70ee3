"""Message history: read a conversation's messages, and apply edits that a platform reports."""

from __future__ import annotations

from dataclasses import dataclass

from structlog.contextvars import bound_contextvars

from rapport.agents.directory import AgentDirectory
from rapport.domain.context_selection import MAX_RECENT_MESSAGES
from rapport.domain.conversation import Incoming, Message
from rapport.domain.errors import NotFound
from rapport.domain.follow_up_requests import FOREVER
from rapport.domain.ids import is_id
from rapport.ingest.accept import apply_edit
from rapport.ingest.addressing import may_mention_agent
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.messages import Messages
from rapport.storage.messages.neighbours import load_recent


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """Every method raises NotFound for a conversation that is not the owner's."""

    database: Database
    agents: AgentDirectory

    async def load_page(
        self, owner_id: str, conversation_id: str, *, limit: int, before: str | None = None
    ) -> list[Message]:
        """Return the newest messages older than the message `before`, the oldest of them first."""
        async with self.database.statement() as connection:
            conversation = await Conversations(connection).get(owner_id, conversation_id)
            messages = Messages(connection)
            cursor = None if before is None else await messages.get_cursor(owner_id, conversation_id, before)
            with bound_contextvars(agentId=conversation.agent_id):  # for the log lines about filtered messages
                return await messages.list_before(owner_id, conversation_id, limit=limit, cursor=cursor)

    async def get(self, owner_id: str, conversation_id: str, message_id: str) -> Message:
        """Return one message; raises NotFound if the conversation has no such message."""
        async with self.database.statement() as connection:
            await Conversations(connection).get(owner_id, conversation_id)
            message = None
            if is_id(message_id):
                message = await Messages(connection).get(owner_id, conversation_id, message_id)
        if message is None:
            raise NotFound(f"There is no message {message_id[:64]!r} in this conversation.")
        return message

    async def find_by_platform_id(self, owner_id: str, conversation_id: str, platform_id: str) -> Message | None:
        """Return the message that the platform knows by this id; None if it is not stored."""
        async with self.database.statement() as connection:
            return await Messages(connection).find_by_platform_id(owner_id, conversation_id, platform_id)

    async def find_latest_reply(self, owner_id: str, conversation_id: str, *, thread_id: str) -> Message | None:
        """Return the agent's last message in a forum topic, if it is among the latest messages there."""
        async with self.database.statement() as connection:
            messages = await load_recent(
                connection,
                owner_id,
                conversation_id,
                before=(FOREVER, ""),
                limit=MAX_RECENT_MESSAGES,
                thread_id=thread_id,
            )
        return next((message for message in reversed(messages) if message.role == "assistant"), None)

    async def find_topic(self, conversation_id: str, message_id: str) -> str | None:
        """Return the forum topic that a message is in; None if it is in none."""
        async with self.database.statement() as connection:
            return await Messages(connection).get_thread_id(conversation_id, message_id)

    async def apply_edit(self, incoming: Incoming) -> bool:
        """Store the new text of a message that was edited at `incoming.edited_at`; False if the message is not stored.

        If the edit addresses the agent, the message is answered, unless it was answered before.
        """
        agents = await self.agents.list_handles(incoming.owner_id) if may_mention_agent(incoming) else ()
        return await apply_edit(self.database, incoming, agents=agents)
