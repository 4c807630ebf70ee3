"""Select context for a question: in a stored conversation, or among messages that come with the request and are not stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from rapport.agents.directory import AgentDirectory
from rapport.context.engine import select_context
from rapport.domain.context_selection import ContextSelection, Strategy
from rapport.domain.conversation import Message
from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id, new_id
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.messages.messages import Messages
from rapport.turns.group_context import ContextSelector, choose_options
from rapport.turns.sent_context import SentContext

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SmartContext:
    """Selects the messages that belong to a question, and stores nothing."""

    selector: ContextSelector
    agents: AgentDirectory

    async def select_in_conversation(
        self,
        owner_id: str,
        conversation_id: str,
        question: str,
        *,
        anchor_id: str | None = None,
        strategy: Strategy | None = None,
    ) -> ContextSelection:
        """Return the messages that the agent would be given if the question were asked now, as a reply to the anchor.

        Raise NotFound if the conversation is not the owner's, or has no such anchor.
        """
        async with self.selector.database.statement() as connection:
            conversation = await Conversations(connection).get(owner_id, conversation_id)
            anchor = None
            if anchor_id is not None:
                stored = Messages(connection).get(owner_id, conversation_id, anchor_id) if is_id(anchor_id) else None
                anchor = None if stored is None else await stored
                if anchor is None or anchor.role == "system-summary":
                    raise NotFound(f"There is no message {anchor_id[:64]!r} in this conversation.")
        call = Message(
            new_id(),
            conversation_id,
            "user",
            question,
            conversation.last_at + _MOMENT,
            reply_to_id=None if anchor is None else anchor.id,
            thread_id=None if anchor is None else anchor.thread_id,
        )
        profile = await self.agents.reload(owner_id, conversation.agent_id)
        options = choose_options(self.selector.options, profile, strategy=strategy)
        return (await self.selector.load_and_select(owner_id, call, options=options)).selection

    async def select_in_sent(self, sent: SentContext, *, strategy: Strategy | None = None) -> ContextSelection:
        """Return the sent messages that belong to the sent call. Nothing is searched by meaning: that needs stored vectors."""
        options = self.selector.options if strategy is None else replace(self.selector.options, strategy=strategy)
        # In a thread: the first selection loads the tables of the scorer.
        return await asyncio.to_thread(select_context, sent.call, sent.found, options)
