"""Ask an agent: in a stored conversation, in a new one, or in an ephemeral one that is erased after the reply."""

from __future__ import annotations

from dataclasses import replace

import anyio

from rapport.agents.profiles import COMPANION
from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.schemas import AskArguments, AskResult
from rapport.channels.http.requests.json_bodies import NewMessage
from rapport.channels.http.routes.conversations import parse_incoming
from rapport.context.fence import clip
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Incoming, Message
from rapport.domain.errors import InvalidInput, Transient
from rapport.domain.ids import new_ephemeral_id

MAX_REPLY_CHARACTERS = 100_000


async def ask(access: CallerAccess, body: AskArguments) -> AskResult:
    """Return the agent's reply to a message."""
    if body.conversation_id is not None:
        return await _ask_in_conversation(access, body, body.conversation_id)
    if body.client_message_id is not None and not body.keep:
        raise InvalidInput(
            "`client_message_id` needs a `conversation_id` or `keep`: otherwise nothing of the call is kept."
        )
    agent = await access.core.agents.require(access.owner_id, body.agent or COMPANION.id)
    incoming = _read_message(access, body, new_ephemeral_id())
    await access.admit(incoming.conversation_id)
    if not body.keep:
        return await _ask_once(access, agent, incoming)
    return await _ask_in_new_conversation(access, agent, incoming)


async def _ask_in_conversation(access: CallerAccess, body: AskArguments, conversation_id: str) -> AskResult:
    """Add the message to a stored conversation, as any message of its owner, and answer it."""
    conversation = await access.core.conversations.get(access.owner_id, conversation_id)
    if body.agent not in (None, conversation.agent_id):
        raise InvalidInput(f"The agent of this conversation is `{conversation.agent_id}`.")
    incoming = _read_message(access, body, conversation.id)
    await access.admit(conversation.id)
    return _make_result(await _send(access, incoming), conversation.agent_id, conversation.id)


async def _ask_in_new_conversation(access: CallerAccess, agent: AgentProfile, incoming: Incoming) -> AskResult:
    """Begin a conversation with the message. The same call with a `client_message_id` again finds the same conversation."""
    if incoming.client_message_id is None:
        conversation_id = (await access.core.conversations.create(access.owner_id, agent_id=agent.id)).id
    else:
        conversation_id = await access.conversations.begin_for_message(
            access.owner_id, agent, incoming.client_message_id
        )
    try:
        reply = await _send(access, replace(incoming, conversation_id=conversation_id))
    except Transient as error:  # the caller needs the id to go on
        raise Transient(f"{error} The conversation is `{conversation_id}`.", retry_after=error.retry_after) from error
    return _make_result(reply, agent.id, conversation_id)


async def _ask_once(access: CallerAccess, agent: AgentProfile, incoming: Incoming) -> AskResult:
    """Answer the message in a conversation that is erased after the reply."""
    conversations = access.conversations
    await conversations.clean_up()
    try:
        await conversations.begin_ephemeral(access.owner_id, incoming.conversation_id, agent, ())
        return _make_result(await _send(access, incoming), agent.id, None)
    finally:
        with anyio.CancelScope(shield=True):  # a client that has gone leaves nothing either
            await conversations.end_ephemeral(access.owner_id, incoming.conversation_id)


def _read_message(access: CallerAccess, body: AskArguments, conversation_id: str) -> Incoming:
    message = NewMessage(content=body.message, client_message_id=body.client_message_id)
    incoming = parse_incoming(
        access.owner_id,
        conversation_id,
        message,
        max_characters=access.max_characters,
        content_field="message",
    )
    return replace(incoming, awaits_reply=True)


async def _send(access: CallerAccess, incoming: Incoming) -> Message:
    ticket = await access.core.runner.accept(incoming)
    return await ticket.reply()


def _make_result(reply: Message, agent_id: str, conversation_id: str | None) -> AskResult:
    return AskResult(
        reply=clip(reply.text, MAX_REPLY_CHARACTERS),
        agent=agent_id,
        conversation_id=conversation_id,
        sources=[dict(source) for source in reply.sources],
        fallback_used=reply.metadata.get("fallback_used") is True,
        guard_used=reply.metadata.get("guard_used") is True,
        approvals=reply.metadata.get("approvals", []) if conversation_id is not None else [],
    )
