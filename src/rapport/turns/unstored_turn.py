"""Make a turn of a conversation that is not stored: of a tried agent, or of a request with tools of its client."""

from __future__ import annotations

from collections.abc import Sequence

from rapport.context.summary_rules import MAX_CHAT_HISTORY
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import API_CHANNEL, Message
from rapport.domain.event import ClaimedEvent
from rapport.domain.ids import new_ephemeral_id, new_id
from rapport.storage.followups.preferences import Preferences
from rapport.storage.notes.visible_notes import VisibleNotes
from rapport.storage.usage import UsageBudgets
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.deps import TurnDeps
from rapport.turns.turn import PhaseTimer, Turn


def make_unstored_event(owner_id: str, agent_id: str) -> ClaimedEvent:
    """Return the event of a direct chat that no table has."""
    return ClaimedEvent(
        id=new_id(),
        conversation_id=new_ephemeral_id(),
        owner_id=owner_id,
        fence=1,
        attempts=1,
        agent_id=agent_id,
        kind="direct",
        channel=API_CHANNEL,
        accepted_by="",
    )


async def load_unstored_turn(
    event: ClaimedEvent, profile: AgentProfile, deps: TurnDeps, talk: Sequence[Message], *, has_memories: bool
) -> Turn:
    """Return a turn that answers the last message of `talk`, with what the agent may know of its owner."""
    async with deps.database.statement() as connection:
        note_counts = await VisibleNotes(connection).get_counts(event.owner_id, deps.retriever.embedder.name)
        preference = await Preferences(connection).get(event.owner_id)
        budgets = await UsageBudgets(connection).list(event.owner_id)
    *earlier, message = talk
    turn_input = TurnInput(
        message,
        earlier=earlier[-MAX_CHAT_HISTORY:],
        summary=None,
        note_counts=note_counts,
        is_breaker_open=False,
        autonomy_enabled=False,
        has_memories=has_memories,
        past_follow_ups=(),
        time_zone=preference.time_zone,
        owner_budget=budgets.get(event.owner_id),
    )
    return Turn(event, profile, turn_input, deps, PhaseTimer(deps.metrics), await deps.find_model(profile))
