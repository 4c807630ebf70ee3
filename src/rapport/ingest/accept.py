"""Accepting a message: one transaction, and only then an acknowledgement."""

from __future__ import annotations

from rapport.domain import failpoints
from rapport.domain.agents import AGENTS, LIBRARIAN
from rapport.domain.conversation import Conversation, Incoming, text_of
from rapport.domain.errors import Conflict, InvalidInput
from rapport.domain.event import Accepted, ClaimedEvent
from rapport.ingest.addressing import is_addressed
from rapport.storage.conversations import Conversations
from rapport.storage.database import Connection, Database
from rapport.storage.events import Events
from rapport.storage.messages import Messages


async def accept(database: Database, incoming: Incoming, *, worker_id: str, claim: bool) -> Accepted:
    """Store a message and the event that will answer it, both or neither.

    With `claim` the event is this worker's at once if nothing else waits in the conversation. The same
    `client_message_id` again stores nothing and names what was stored the first time.
    """
    async with database.statement() as connection:
        conversation = await Conversations(connection).get(incoming.owner_id, incoming.conversation_id)
        answer = await _wants_answer(connection, conversation, incoming)
        # One statement from here: who is in the line, the message and its event are one transaction.
        events = Events(connection)
        stored = await events.store(incoming, answer=answer, worker_id=worker_id, claim=claim)
        if stored is None:
            return await _accepted_before(events, incoming)
    failpoints.reach("ingest.stored")
    return Accepted(
        message_id=stored.message_id,
        conversation_id=conversation.id,
        owner_id=conversation.owner_id,
        created_at=stored.created_at,
        answered=answer,
        claimed=_claimed(conversation, stored.message_id, worker_id) if stored.claimed else None,
    )


async def _wants_answer(connection: Connection, conversation: Conversation, incoming: Incoming) -> bool:
    replies_to_agent = False
    if incoming.reply_to_id is not None:
        parent = await Messages(connection).get(incoming.owner_id, conversation.id, incoming.reply_to_id)
        if parent is None:
            raise InvalidInput("`reply_to_id` names no message of this conversation.")
        replies_to_agent = parent.role == "assistant"
    agent = AGENTS.get(conversation.agent_id, LIBRARIAN)
    return is_addressed(conversation.kind, text_of(incoming.content), agent, replies_to_agent=replies_to_agent)


def _claimed(conversation: Conversation, event_id: str, worker_id: str) -> ClaimedEvent:
    return ClaimedEvent(
        id=event_id,
        conversation_id=conversation.id,
        owner_id=conversation.owner_id,
        fence=1,
        attempts=1,
        agent_id=conversation.agent_id,
        kind=conversation.kind,
        channel=conversation.channel,
        accepted_by=worker_id,
    )


async def _accepted_before(events: Events, incoming: Incoming) -> Accepted:
    assert incoming.client_message_id is not None
    known = await events.known(incoming.owner_id, incoming.conversation_id, incoming.client_message_id)
    assert (
        known is not None
    )  # the conflict that brought us here is with this very row, and rows are never removed singly
    message, answered = known
    if message.content != incoming.content or message.author != incoming.author:
        raise Conflict("This `client_message_id` was already used for a different message of this conversation.")
    return Accepted(
        message_id=message.id,
        conversation_id=message.conversation_id,
        owner_id=incoming.owner_id,
        created_at=message.created_at,
        answered=answered,
    )
