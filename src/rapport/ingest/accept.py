"""Store a message or an edit in one transaction; only then is it acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rapport.domain import failpoints
from rapport.domain.agent_profile import AgentHandle
from rapport.domain.conversation import Incoming, Message
from rapport.domain.errors import Conflict, InvalidInput
from rapport.domain.event import Accepted
from rapport.domain.ids import is_id
from rapport.ingest.addressing import find_audience
from rapport.ingest.content import keep_storable_payload
from rapport.storage.conversations.conversations import Conversations, no_such_conversation
from rapport.storage.database import Connection, Database
from rapport.storage.messages.incoming import IncomingMessages
from rapport.storage.messages.messages import Messages
from rapport.storage.work.events import Events


async def accept(
    database: Database,
    incoming: Incoming,
    *,
    worker_id: str,
    claim: bool,
    agents: Sequence[AgentHandle] = (),
) -> Accepted:
    """Store a message and the event that will answer it, both or neither.

    With `claim`, this worker gets the event at once if no other event of the conversation is open. A known
    `client_message_id` or `platform_id` stores nothing and returns the message that was stored before. `agents` are those
    that the conversation may have, if the message may mention one.
    """
    if not is_id(incoming.conversation_id):
        raise no_such_conversation(incoming.conversation_id)
    if incoming.payload is not None:
        incoming = replace(incoming, payload=keep_storable_payload(incoming.payload))
    async with database.statement() as connection:
        parent = await _find_parent(connection, incoming)
        if parent is not None:  # the parent is stored, so its snapshot is not needed
            incoming = replace(incoming, reply_to_id=parent.id, context_snapshot=None)
        arrivals = IncomingMessages(connection)
        accepted = await arrivals.store(
            incoming, audience=find_audience(incoming, parent, agents), worker_id=worker_id, claim=claim
        )
        if accepted is None:
            return await _find_accepted(arrivals, incoming)
    failpoints.reach("ingest.stored")
    return accepted


async def _find_parent(connection: Connection, incoming: Incoming) -> Message | None:
    """Return the stored message that it replies to; a platform id also finds an imported message."""
    messages, ids = Messages(connection), (incoming.owner_id, incoming.conversation_id)
    if incoming.reply_to_id is not None:
        parent = await messages.get(*ids, incoming.reply_to_id)
        if parent is None:
            await Conversations(connection).get(*ids)  # raises NotFound if the conversation is missing
            raise InvalidInput("`reply_to_id` names no message of this conversation.")
        return parent
    if incoming.reply_to_platform_id is not None:
        return await messages.find_by_platform_id(*ids, incoming.reply_to_platform_id)
    return None


async def _find_accepted(arrivals: IncomingMessages, incoming: Incoming) -> Accepted:
    stored = await arrivals.find_known(incoming)
    if stored is None:  # deleted since
        raise no_such_conversation(incoming.conversation_id)
    message, accepted = stored
    if message.content != incoming.content or message.author != incoming.author:
        by_client = incoming.client_message_id is not None and message.client_message_id == incoming.client_message_id
        name = "client_message_id" if by_client else "platform_id"
        raise Conflict(f"This `{name}` was already used for a different message of this conversation.")
    return accepted


async def apply_edit(database: Database, incoming: Incoming, *, agents: Sequence[AgentHandle] = ()) -> bool:
    """Store an edit of the message with this platform id; return False if there is none.

    If the edit addresses the agent, the message is answered, unless it was answered before.
    """
    if incoming.payload is not None:
        incoming = replace(incoming, payload=keep_storable_payload(incoming.payload))
    assert incoming.platform_id is not None
    async with database.transaction() as connection:
        arrivals = IncomingMessages(connection)
        changed = await arrivals.store_edit(incoming)
        if changed is not None:
            audience = find_audience(incoming, None, agents)  # an edit cannot change the reply link
            if not audience.is_empty and await arrivals.mark_for_agent(
                incoming, changed, audience=audience, worker_id="a change"
            ):
                await Events(connection).hint("queued")
            return True
        ids = (incoming.owner_id, incoming.conversation_id)
        return await Messages(connection).find_by_platform_id(*ids, incoming.platform_id) is not None
