"""Questions to a person about tool calls that change something outside Rapport: list them, allow or deny a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rapport.domain import failpoints
from rapport.domain.errors import Conflict, Forbidden, NotFound
from rapport.domain.tool_call import Decision, ToolCall
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.work.tool_calls import ToolCalls


@dataclass(frozen=True, slots=True)
class Approvals:
    """Every method raises NotFound for a conversation that is not the owner's."""

    database: Database
    on_decided: Callable[[str], Awaitable[None]]
    """Called with the conversation's id after a decision: the rest of a turn may be queued."""

    async def list(self, owner_id: str, conversation_id: str) -> Sequence[ToolCall]:
        """Return the questions of a conversation, decided ones too, the newest first."""
        async with self.database.statement() as connection:
            await Conversations(connection).get(owner_id, conversation_id)
            return await ToolCalls(connection).list_asked(owner_id, conversation_id)

    async def list_together(self, owner_id: str, conversation_id: str, approval_id: str) -> Sequence[ToolCall]:
        """Return the questions that one message asks, in its order: this one among them. Raise NotFound if it does not exist."""
        async with self.database.statement() as connection:
            together = await ToolCalls(connection).list_together(owner_id, conversation_id, approval_id)
        if not together:
            raise NotFound("There is no such question in this conversation.")
        return together

    async def decide(
        self,
        owner_id: str,
        conversation_id: str,
        approval_id: str,
        decision: Decision,
        *,
        author_id: str | None = None,
        is_admin: bool = False,
    ) -> ToolCall:
        """Store the decision and return the question; the same decision again changes nothing.

        Only the person whose message needs the call may decide, or an admin; in a direct chat also its owner. Raise
        Forbidden for another author, Conflict after a different decision or when it is too late.
        """
        async with self.database.transaction() as connection:
            conversations = Conversations(connection)
            # Before the statement that looks for other open questions: it must see decisions that are being committed.
            await conversations.lock(owner_id, conversation_id)
            conversation = await conversations.get(owner_id, conversation_id)
            calls = ToolCalls(connection)
            question = await calls.get_asked(owner_id, conversation_id, approval_id)
            is_group = conversation.traits.has_many_speakers
            is_asker = author_id is not None and author_id == question.asker_id
            is_owner = not is_group and author_id in (None, owner_id)
            if not (is_admin or is_asker or is_owner):
                who = (
                    "the person who called the agent, or an admin of the group,"
                    if is_group
                    else "the owner of this chat"
                )
                raise Forbidden(f"Only {who} may decide about this call.")
            is_stored = await calls.decide(owner_id, conversation_id, approval_id, decision, by=author_id or owner_id)
            question = await calls.get_asked(owner_id, conversation_id, approval_id)
        failpoints.reach("approval.decided")
        if is_stored:
            await self.on_decided(conversation_id)
            return question
        if question.is_expired:
            raise Conflict("Nobody decided in time, so the call was not made. Ask the agent for it again.")
        if (question.state == "denied") is not (decision == "deny"):
            raise Conflict(f"This call was {'denied' if question.state == 'denied' else 'allowed'} before.")
        return question
