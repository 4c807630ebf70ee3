"""Reflect once a conversation pauses: the model decides about a follow-up and about what to remember (AUTO-1, MEM)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from rapport.agents.failures import ModelFailed
from rapport.agents.tools.registry import ALL_TOOLS
from rapport.context.situation import Situation
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.embedder import Embedder
from rapport.domain.event import ClaimedEvent
from rapport.domain.follow_up import PLANNED_TIMER_ID, Plan
from rapport.domain.memory import MemoryCandidate
from rapport.domain.note import Vector
from rapport.domain.usage import UsageMeter
from rapport.followups.own_words import find_own_messages, is_founded
from rapport.followups.reflection_form import (
    REFLECTION_PROMPT,
    Reflection,
    is_unfounded,
    limit_types,
    plan_as_requested,
    render_transcript,
)
from rapport.memory.memory_store import PreparedMemory
from rapport.replies.defusing import make_storable
from rapport.replies.machinery import cut_machinery
from rapport.storage.followups.preferences import Preferences
from rapport.storage.followups.reflections import PausedConversation, Reflections
from rapport.storage.followups.timers import Timers
from rapport.turns.deps import TurnDeps
from rapport.turns.turn import PhaseTimer, get_sole_speaker
from rapport.turns.usage import settle_usage, store_usage

log = structlog.get_logger()

PAUSE_SECONDS = 5.0
"""The silence before the model is asked: a person who writes again within it causes no call."""
MAX_MEMORIES = 8
MIN_SIMILARITY_TO_SOURCE = 0.2
"""The minimal similarity of a memory to a person's message: an invented memory has less."""


async def reflect(event: ClaimedEvent, profile: AgentProfile, deps: TurnDeps) -> None:
    """Let the model decide about the silence after this event. If it fails, the plan of the rules stays."""
    started_at = time.monotonic()
    timer = PhaseTimer(deps.metrics)
    async with deps.database.statement() as connection:
        paused = await Reflections(connection).load_pause(
            event.owner_id, event.conversation_id, user_message_count=event.user_message_count
        )
    if paused is None or not paused.messages:
        return
    autonomy = deps.get_autonomy(profile, event.traits, paused.autonomy_enabled)
    remembers = profile.remembers and event.traits.may_use_memory and bool(paused.fresh)
    if autonomy is None and not remembers:
        return
    spent = await deps.budgets.find_spent_of_job(event.owner_id, profile)
    if spent is not None:
        log.info("usage.budget_spent", job="reflection", kind=spent.kind)
        return
    meter = UsageMeter()
    try:
        model = await deps.models.get(profile.model)
        parts = (REFLECTION_PROMPT, limit_types(autonomy), await _describe_local_time(event.owner_id, deps))
        prompt = "\n\n".join(filter(None, parts))
        decision = await model.decide(
            prompt, render_transcript(paused.messages), Reflection, on_call=partial(meter.count, "reflection")
        )
    except ModelFailed as failure:
        log.info("reflection.failed", errorType=failure.kind, message=str(failure))
        return
    finally:
        await store_usage(event, deps, settle_usage(event, deps, meter))
    plan = None
    if autonomy is not None:
        plan = plan_as_requested(
            decision.follow_up,
            said=paused.messages,
            earlier=paused.past_followups,
            autonomy=autonomy,
            owner_id=get_sole_speaker(event),
        )
        # The delay counts from the last message, and some of it has passed.
        plan = plan and replace(plan, delay=max(plan.delay - PAUSE_SECONDS - (time.monotonic() - started_at), 1.0))
    if unfounded := is_unfounded(decision.follow_up, said=paused.messages, owner_id=get_sole_speaker(event)):
        log.info("reflection.unfounded")
    memories = await deps.memory_store.prepare(
        await _select_memories(decision.memories, paused, deps.memory_store.embedder, owner_id=event.owner_id)
        if remembers
        else []
    )
    # The rules' plan stays if the model's is not based on the person's words.
    decides = autonomy is not None and not unfounded
    await _store_decision(event, deps, plan=plan, decides=decides, memories=memories, paused=paused)
    timer.record("reflection")


async def _describe_local_time(owner_id: str, deps: TurnDeps) -> str:
    """Return the date and time in the owner's time zone, as a sentence."""
    async with deps.database.statement() as connection:
        preference = await Preferences(connection).get(owner_id)
    return Situation(deps.now(), preference.time_zone).time_sentence


async def _store_decision(
    event: ClaimedEvent,
    deps: TurnDeps,
    *,
    plan: Plan | None,
    decides: bool,
    memories: Sequence[PreparedMemory],
    paused: PausedConversation,
) -> None:
    """Store the decision, all of it, unless somebody has written or a follow-up was sent meanwhile."""
    ids = (event.owner_id, event.conversation_id)
    async with deps.database.transaction() as connection:
        reflections = Reflections(connection)
        read_until = paused.messages[-1].created_at
        if not await reflections.mark_reflected(
            *ids, user_message_count=event.user_message_count, upto=read_until, followups=paused.consecutive_followups
        ):
            return
        timers = Timers(connection)
        if plan is not None:
            await timers.set(
                *ids,
                timer_id=PLANNED_TIMER_ID,
                trigger_type=plan.trigger_type,
                delay=plan.delay,
                reason=plan.reason,
                topic=plan.topic,
                origin="planner",
                sources=plan.sources,
                user_message_count=event.user_message_count,
            )
        elif decides:
            await timers.cancel(*ids, PLANNED_TIMER_ID, origin="planner")
        applied = await deps.memory_store.apply(connection, event.owner_id, event.agent_id, memories)
    deps.memory_store.announce(event.owner_id, applied.changes)


async def _select_memories(
    memories: Sequence[str], paused: PausedConversation, embedder: Embedder, *, owner_id: str
) -> list[MemoryCandidate]:
    """Return the model's memories that are based on the owner's own messages, each with its source message."""
    own_messages = find_own_messages(paused.messages, owner_id=owner_id)
    texts = [message.text for message in own_messages]
    own_ids = {message.id for message in own_messages}
    new_messages = [message for message in paused.fresh if message.id in own_ids and message.text.strip()]
    stripped = [cut_machinery(make_storable(memory), ALL_TOOLS).text.strip() for memory in memories[:MAX_MEMORIES]]
    founded = [memory for memory in stripped if memory and is_founded(memory, texts)]
    if (refused := sum(map(bool, stripped)) - len(founded)) > 0:
        log.info("memory.unfounded", count=refused)
    if not founded or not new_messages:
        return []
    vectors = await embedder.embed([*founded, *(message.text for message in new_messages)])
    sources = list(zip(new_messages, vectors[len(founded) :], strict=True))
    candidates: list[MemoryCandidate] = []
    for text, vector in zip(founded, vectors, strict=False):
        similarity, source = max(
            ((_dot(vector, source_vector), message) for message, source_vector in sources), key=lambda pair: pair[0]
        )
        if similarity >= MIN_SIMILARITY_TO_SOURCE:
            candidates.append(MemoryCandidate(text, conversation_id=source.conversation_id, message_id=source.id))
        else:
            log.info("memory.unfounded", similarity=round(similarity, 3))
    return candidates


def _dot(left: Vector, right: Vector) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
