"""Accepting a message: one transaction, and only then an acknowledgement."""

from __future__ import annotations

from rapport.domain import failpoints
from rapport.domain.agents import AGENTS
from rapport.domain.conversation import Incoming, text_of
from rapport.domain.errors import Conflict, InvalidInput
from rapport.domain.event import Accepted
from rapport.domain.ids import is_id
from rapport.ingest.addressing import mentioned_agents
from rapport.storage.conversations import Conversations, no_such_conversation
from rapport.storage.database import Connection, Database
from rapport.storage.events import Events
from rapport.storage.messages import Messages


async def accept(database: Database, incoming: Incoming, *, worker_id: str, claim: bool) -> Accepted:
    """Store a message and the event that will answer it, both or neither.

    With `claim` the event is this worker's at once if nothing else waits in the conversation. The same
    `client_message_id` again stores nothing and names what was stored the first time.
    """
    if not is_id(incoming.conversation_id):
        raise no_such_conversation(incoming.conversation_id)
    mentions = mentioned_agents(text_of(incoming.content), AGENTS.values())
    async with database.statement() as connection:
        replies_to_agent = await _replies_to_agent(connection, incoming)
        events = Events(connection)
        accepted = await events.store(
            incoming, mentions=mentions, replies_to_agent=replies_to_agent, worker_id=worker_id, claim=claim
        )
        if accepted is None:
            return await _accepted_before(events, incoming)
    failpoints.reach("ingest.stored")
    return accepted


async def _replies_to_agent(connection: Connection, incoming: Incoming) -> bool:
    if incoming.reply_to_id is None:
        return False
    parent = await Messages(connection).get(incoming.owner_id, incoming.conversation_id, incoming.reply_to_id)
    if parent is None:
        await Conversations(connection).get(incoming.owner_id, incoming.conversation_id)  # that may be what is missing
        raise InvalidInput("`reply_to_id` names no message of this conversation.")
    return parent.role == "assistant"


async def _accepted_before(events: Events, incoming: Incoming) -> Accepted:
    assert incoming.client_message_id is not None
    known = await events.known(incoming.owner_id, incoming.conversation_id, incoming.client_message_id)
    if known is None:  # erased since
        raise no_such_conversation(incoming.conversation_id)
    message, accepted = known
    if message.content != incoming.content or message.author != incoming.author:
        raise Conflict("This `client_message_id` was already used for a different message of this conversation.")
    return accepted
