"""Account for the model calls of turns and of the jobs after them (AGT-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.usage import BudgetState, Usage, UsageMeter, describe_usage
from rapport.storage.usage import ModelUsage
from rapport.turns.deps import Agent, TurnDeps
from rapport.turns.turn import Turn

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MeteredWriter:
    """A writer of summaries whose calls are counted."""

    model: Agent
    meter: UsageMeter

    async def ask(self, system: str, text: str) -> str:
        return await self.model.ask(system, text, on_call=partial(self.meter.count, "summary"))


async def find_metered_writer(profile: AgentProfile, deps: TurnDeps, meter: UsageMeter) -> MeteredWriter:
    """Return the agent's model as a writer of summaries; raise ModelFailed if it can't be made."""
    return MeteredWriter(await deps.models.get(profile.model), meter)


async def find_spent_budget(turn: Turn) -> BudgetState | None:
    """Return the budget that leaves this turn without a model call; None if it may call the model."""
    owner_limit, agent_limit = turn.input.owner_budget, turn.profile.monthly_token_budget
    if owner_limit is None and agent_limit is None:
        return None
    return await turn.deps.budgets.find_spent(turn.event.owner_id, turn.profile, owner_limit=owner_limit)


def settle_usage(event: ClaimedEvent, deps: TurnDeps, meter: UsageMeter) -> tuple[Usage, ...]:
    """Take the usage from the meter and count it in metrics and budgets; return it, to be stored."""
    usage = meter.take()
    for part in usage:
        deps.metrics.count_model_calls(part)
    deps.budgets.add(event.owner_id, event.agent_id, usage)
    return usage


def attach_usage(reply: Reply, usage: tuple[Usage, ...]) -> Reply:
    """Return the reply with the usage of its turn, also in its receipt."""
    if not usage:
        return reply
    return replace(reply, usage=usage, metadata={**reply.metadata, "usage": describe_usage(usage)})


async def store_usage(event: ClaimedEvent, deps: TurnDeps, usage: Sequence[Usage]) -> None:
    """Store usage that no reply is stored with. If the database can't be reached, log what is lost: nothing depends on it."""
    if not usage:
        return
    try:
        async with deps.database.statement() as connection:
            await ModelUsage(connection).add(event, usage)
    except (Transient, Permanent) as error:
        log.warning("usage.lost", **describe_usage(usage), reason=str(error))
