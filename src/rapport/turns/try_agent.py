"""Try an agent: answer one message as a turn would, and store nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import API_CHANNEL, Message
from rapport.domain.draft import Draft
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.ids import new_ephemeral_id, new_id
from rapport.storage.followups.preferences import Preferences
from rapport.storage.notes.visible_notes import VisibleNotes
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.answer import make_reply
from rapport.turns.deps import TurnDeps
from rapport.turns.turn import PhaseTimer, Turn


async def try_agent(owner_id: str, profile: AgentProfile, text: str, deps: TurnDeps) -> Reply:
    """Return the agent's answer to a first message in a direct chat. It knows the owner's notes and no memory."""
    event = ClaimedEvent(
        id=new_id(),
        conversation_id=new_ephemeral_id(),
        owner_id=owner_id,
        fence=1,
        attempts=1,
        agent_id=profile.id,
        kind="direct",
        channel=API_CHANNEL,
        accepted_by="",
    )
    message = Message(event.id, event.conversation_id, "user", text, datetime.now(UTC))
    async with deps.database.statement() as connection:
        note_counts = await VisibleNotes(connection).get_counts(owner_id, deps.retriever.embedder.name)
        preference = await Preferences(connection).get(owner_id)
    turn_input = TurnInput(
        message,
        earlier=(),
        summary=None,
        note_counts=note_counts,
        is_breaker_open=False,
        autonomy_enabled=False,
        has_memories=False,
        past_follow_ups=(),
        time_zone=preference.time_zone,
    )
    turn = Turn(event, profile, turn_input, deps, PhaseTimer(deps.metrics), await deps.find_model(profile))
    return await make_reply(turn, Draft())
