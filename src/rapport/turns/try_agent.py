"""Try an agent: answer one message as a turn would, and store only the usage of its model."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Message
from rapport.domain.draft import Draft
from rapport.domain.event import Reply
from rapport.turns.answer import make_reply
from rapport.turns.deps import TurnDeps
from rapport.turns.unstored_turn import load_unstored_turn, make_unstored_event
from rapport.turns.usage import settle_usage, store_usage


async def try_agent(owner_id: str, profile: AgentProfile, text: str, deps: TurnDeps) -> Reply:
    """Return the agent's answer to a first message in a direct chat. It knows the owner's notes and no memory."""
    event = make_unstored_event(owner_id, profile.id)
    message = Message(event.id, event.conversation_id, "user", text, datetime.now(UTC))
    turn = await load_unstored_turn(event, profile, deps, [message], has_memories=False)
    try:
        return await make_reply(turn, Draft(), purpose="try")
    finally:
        await asyncio.shield(store_usage(event, deps, settle_usage(event, deps, turn.meter)))
