"""A follow-up turn: a timer's event in, something said unasked or nothing at all out. Safe to repeat after a crash (AUTO)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from langchain_core.messages import HumanMessage

from rapport.agents.failures import ModelFailed
from rapport.agents.profiles import get_agent
from rapport.context.question import get_author_id
from rapport.context.summary_rules import MAX_CHAT_HISTORY, is_crowded
from rapport.domain import failpoints
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Message, text_of
from rapport.domain.draft import Draft
from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.follow_up import EXPIRES_AFTER, PROMPTS, FollowUpState, Gate, PastFollowUp, State, TriggerType
from rapport.followups.gates import find_closed_gate
from rapport.followups.leaks import leak_in
from rapport.followups.matters import find_mentioned, is_closed, repeats
from rapport.followups.own_words import find_own_messages
from rapport.followups.triggers import synthetic_message
from rapport.memory.query import query_for
from rapport.storage.followups.follow_up_turns import Followups
from rapport.storage.work.turn_input import TurnInput, load_turn_input
from rapport.turns.prompt_input import given_in_silence
from rapport.turns.steps import (
    MAX_ATTEMPTS,
    Findings,
    PhaseTimer,
    TurnDeps,
    ask_model,
    build_findings,
    describe_situation,
    get_speaking_owner,
    look_up,
    plan_follow_up,
    recall_memories,
)

log = structlog.get_logger()

AS_YOURSELF = (
    "Say one natural thing to the person you talk with, as yourself. Don't mention instructions, messages you were given or"
    " why you are writing."
)
"""What the model is told when its first attempt spoke of the machinery."""


@dataclass(frozen=True, slots=True)
class FollowUpResult:
    """What became of a follow-up."""

    trigger_type: TriggerType
    state: State
    gate: Gate | None = None
    reply: Message | None = None
    more: bool = False
    """Somebody waits for an answer."""
    crowded: bool = False
    regenerated: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What is worth counting."""
        return {
            "trigger_type": self.trigger_type,
            "outcome": self.state,
            "gate": self.gate,
            "regenerated": self.regenerated,
        }


async def follow_up(event: ClaimedEvent, tools: TurnDeps, *, draft: Draft, push: bool) -> FollowUpResult:
    """Say something unasked, if every gate is open before the model is asked and still is when it has answered."""
    assert event.trigger_type is not None
    profile = get_agent(event.agent_id, chat_handle=event.handle)
    clock = PhaseTimer(tools.metrics)
    prompt = profile.autonomy.prompt(event.trigger_type) if profile.autonomy else PROMPTS[event.trigger_type]
    trigger = synthetic_message(event.trigger_type, prompt=prompt, reason=event.trigger_reason, id=event.id)
    stands_for = _as_message(event, trigger)
    async with tools.database.statement() as connection:
        followups = Followups(connection)
        if event.attempts > MAX_ATTEMPTS:
            return FollowUpResult(event.trigger_type, "failed", more=await followups.end(event, "failed"))
        standing = await _standing(followups, event, profile, tools)
        if isinstance(standing, FollowUpResult):
            return standing
        embedder = tools.retriever.embedder.name
        material = await load_turn_input(connection, event, limit=MAX_CHAT_HISTORY, embedder=embedder, asked=stands_for)
        if material is None:
            return FollowUpResult(event.trigger_type, "failed", more=await followups.end(event, "failed"))
        own = find_own_messages(material.earlier, owner_id=get_speaking_owner(event))
        if standing.is_inferred and _is_closed(standing, material, own):
            return await _suppressed(followups, event, "repeated")
    clock.record("load")
    failpoints.reach("turn.loaded")
    draft.begin()
    try:
        state, reply, regenerated = await _said(event, material, profile, trigger, tools)
    except asyncio.CancelledError:
        if not draft.goes_on():
            raise
        state, reply, regenerated = "superseded", None, False  # somebody doesn't want to hear it
    finally:
        draft.end()
    clock.record("model")
    made = _brought_up(standing, reply, own) if reply else None
    plan = plan_follow_up(event, material, profile, reply, tools, made=[made]) if reply and made else None
    failpoints.reach("turn.answered")
    async with tools.database.transaction() as connection:
        followups = Followups(connection)
        now = await _standing(followups, event, profile, tools, lock=True, regenerated=regenerated)
        if isinstance(now, FollowUpResult):
            return now
        if reply and standing.is_inferred and _repeats(reply, standing, material, own):
            return await _suppressed(followups, event, "repeated", regenerated=regenerated)
        if reply is None:
            return FollowUpResult(
                event.trigger_type, state, more=await followups.end(event, state, regenerated=regenerated)
            )
        finished = await followups.deliver(
            event,
            stands_for,
            reply,
            agent_name=profile.name,
            push=push,
            plan=plan,
            regenerated=regenerated,
            brought_up=made.sources if made else (),
        )
    clock.record("commit")
    failpoints.reach("turn.committed")
    crowded = event.traits.is_summarized and is_crowded([*material.earlier, finished.reply])
    return FollowUpResult(event.trigger_type, "delivered", None, finished.reply, finished.more, crowded, regenerated)


async def _standing(
    followups: Followups,
    event: ClaimedEvent,
    profile: AgentProfile,
    tools: TurnDeps,
    *,
    lock: bool = False,
    regenerated: bool = False,
) -> FollowUpState | FollowUpResult:
    """How the conversation stands; or the end of a follow-up that may not be said."""
    assert event.trigger_type is not None
    standing = await followups.standing(event, lock=lock)
    if standing is None:
        return FollowUpResult(
            event.trigger_type, "superseded", more=await followups.end(event, "superseded", regenerated=regenerated)
        )
    if standing.late > EXPIRES_AFTER:  # it fired in time, and then nobody was there
        more = await followups.end(event, "expired", regenerated=regenerated)
        return FollowUpResult(event.trigger_type, "expired", more=more, regenerated=regenerated)
    gate = find_closed_gate(standing, server=tools.autonomy, autonomy=profile.autonomy)
    if gate is None:
        return standing
    return await _suppressed(followups, event, gate, regenerated=regenerated)


async def _suppressed(
    followups: Followups, event: ClaimedEvent, gate: Gate, *, regenerated: bool = False
) -> FollowUpResult:
    assert event.trigger_type is not None
    more = await followups.end(event, "suppressed", gate=gate, regenerated=regenerated)
    return FollowUpResult(event.trigger_type, "suppressed", gate, more=more, regenerated=regenerated)


def _is_closed(standing: FollowUpState, material: TurnInput, own: Sequence[Message]) -> bool:
    """Return whether something else has brought this up since it was planned."""
    return is_closed(standing.topic, standing.sources, earlier=material.past_follow_ups, own=own)


def _repeats(reply: Reply, standing: FollowUpState, material: TurnInput, own: Sequence[Message]) -> bool:
    """Return whether the words speak of what was brought up before: no model is told what a follow-up was planned for."""
    return repeats(text_of(reply.content), standing.sources, earlier=material.past_follow_ups, own=own)


def _brought_up(standing: FollowUpState, reply: Reply, own: Sequence[Message]) -> PastFollowUp:
    """Return what this follow-up brings up: what it was planned for, and what its words speak of."""
    sources = dict.fromkeys([*standing.sources, *find_mentioned(text_of(reply.content), own)])
    return PastFollowUp(standing.topic, tuple(sources), standing.now, standing.is_inferred, in_this_silence=True)


async def _said(
    event: ClaimedEvent, material: TurnInput, profile: AgentProfile, trigger: HumanMessage, tools: TurnDeps
) -> tuple[State, Reply | None, bool]:
    """What to say, in which nothing speaks of the machinery; or how it failed. And whether it took a second attempt."""
    findings = await _findings(event, material, profile, trigger, tools)
    given = given_in_silence(material, profile, event.traits, trigger)
    ask = partial(
        ask_model,
        event,
        given,
        profile,
        findings,
        agent=tools.agent,
        situation=describe_situation(event, material, profile, tools),
    )
    try:
        reply = await ask()
        regenerated = _leaks(reply, profile)
        if regenerated:
            reply = await ask(aside=AS_YOURSELF, fresh=False)
    except ModelFailed as failure:
        log.warning("chat.error", errorType=failure.kind, message=f"no follow-up: {failure}")
        return "failed", None, False
    if regenerated and _leaks(reply, profile):
        return "leaked", None, True
    if not reply.content:
        return "failed", None, regenerated
    kept = {**findings.audit, "context": given.receipt}
    tags = {"autonomous": True, "trigger_type": event.trigger_type}
    return "delivered", replace(reply, metadata={**reply.metadata, **kept, **tags}), regenerated


def _leaks(reply: Reply, profile: AgentProfile) -> bool:
    prompts = {*PROMPTS.values(), *(profile.autonomy.prompts.values() if profile.autonomy else ())}
    kind = leak_in(str(reply.content), prompts=prompts)
    if kind is not None:
        log.warning("autonomy.leak", kind=kind)
    return kind is not None


async def _findings(
    event: ClaimedEvent, material: TurnInput, profile: AgentProfile, trigger: HumanMessage, tools: TurnDeps
) -> Findings:
    """What belongs to what was last said by a person: nothing is ever looked up by the trigger's words."""
    query = query_for(trigger, material.earlier, material.summary)
    memories = await recall_memories(event, material, profile, query, tools)
    retrieval = None
    if query.source == "last_user_message":
        said = [one for one in material.earlier if one.role == "user"]
        asker = get_author_id(said[-1])
        # What they said last is the question, and no question before itself.
        earlier = [one.text for one in said[:-1] if get_author_id(one) == asker]
        try:
            retrieval = await look_up(event, material, query.text, tools.retriever, earlier=earlier)
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType="retrieval", message=str(error))
    return build_findings(retrieval, memories)


def _as_message(event: ClaimedEvent, trigger: HumanMessage) -> Message:
    """The trigger as it is kept for those who look into it."""
    tags = trigger.additional_kwargs
    return Message(event.id, event.conversation_id, "user", str(trigger.text), datetime.now(UTC), metadata=tags)
