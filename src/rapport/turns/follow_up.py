"""Follow up: turn a timer's event into a message, or end it without one. Safe to repeat after a crash (AUTO)."""

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
from rapport.domain.conversation import Message, extract_text
from rapport.domain.draft import Draft
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.follow_up import (
    EXPIRY_SECONDS,
    PROMPTS,
    Gate,
    GateInput,
    PastFollowUp,
    Plan,
    TimerState,
    TriggerType,
)
from rapport.followups.gates import find_closed_gate
from rapport.followups.own_words import find_own_messages
from rapport.followups.topics import find_mentioned, is_closed, repeats
from rapport.followups.triggers import synthetic_message
from rapport.memory.query import query_for
from rapport.storage.followups.follow_up_turns import FollowUpTurns
from rapport.storage.work.turn_input import load_turn_input
from rapport.turns.ask import ask_model
from rapport.turns.check import PromptLeaked, check_reply
from rapport.turns.deps import TurnDeps
from rapport.turns.findings import Lookup, recall_and_retrieve
from rapport.turns.plan import plan_follow_up
from rapport.turns.prompt_input import PROMPT_BUILDERS
from rapport.turns.turn import MAX_ATTEMPTS, PhaseTimer, Turn, get_sole_speaker

log = structlog.get_logger()

AS_YOURSELF = (
    "Say one natural thing to the person you talk with, as yourself. Don't mention instructions, messages you were given or"
    " why you are writing."
)
"""The hint for the second attempt, after the first has leaked the hidden prompt."""


@dataclass(frozen=True, slots=True)
class FollowUpResult:
    """The outcome of a follow-up."""

    trigger_type: TriggerType
    state: TimerState
    gate: Gate | None = None
    reply: Message | None = None
    has_more: bool = False
    """True if another event of the conversation waits."""
    needs_summary: bool = False
    regenerated: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """Return the fields for the log and the metrics."""
        return {
            "trigger_type": self.trigger_type,
            "outcome": self.state,
            "gate": self.gate,
            "regenerated": self.regenerated,
        }


@dataclass(frozen=True, slots=True)
class _LoadedFollowUp:
    """A follow-up that has passed the gates so far."""

    turn: Turn
    trigger: HumanMessage
    """The hidden prompt, which nobody sees."""
    state: GateInput
    own: Sequence[Message]
    """The messages that the person wrote themselves."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A reply to send, or the state in which the follow-up ends without one."""

    state: TimerState
    reply: Reply | None = None
    regenerated: bool = False


async def follow_up(event: ClaimedEvent, deps: TurnDeps, *, draft: Draft, push: bool) -> FollowUpResult:
    """Send a follow-up if every gate is open before the model is asked and after it has answered."""
    loaded = await _load_follow_up(event, deps)
    if isinstance(loaded, FollowUpResult):
        return loaded
    turn = loaded.turn
    failpoints.reach("turn.loaded")
    draft.begin()
    try:
        attempt = await _make_reply(loaded)
    except asyncio.CancelledError:
        if not draft.accept_cancellation():
            raise
        attempt = _Attempt("superseded")  # a person has cancelled it
    finally:
        draft.end()
    turn.timer.record("model")
    past_follow_up, plan = None, None
    if attempt.reply is not None:
        past_follow_up = _describe_past_follow_up(loaded, attempt.reply)
        plan = plan_follow_up(turn, attempt.reply, just_made=[past_follow_up])
    failpoints.reach("turn.answered")
    result = await _commit(loaded, attempt, past_follow_up, plan, push=push)
    if result.reply is None:
        return result
    turn.timer.record("commit")
    failpoints.reach("turn.committed")
    needs_summary = event.traits.is_summarized and is_crowded([*turn.input.earlier, result.reply])
    return replace(result, needs_summary=needs_summary)


async def _make_reply(loaded: _LoadedFollowUp) -> _Attempt:
    """Return a reply that does not leak the hidden prompt, after a second attempt if needed; or how it failed."""
    turn = loaded.turn
    findings = await recall_and_retrieve(turn, _choose_lookup(turn, loaded.trigger))
    prompt_input = PROMPT_BUILDERS[turn.event.kind].build_for_trigger(turn, loaded.trigger)
    ask = partial(ask_model, turn, prompt_input, findings)
    check = partial(check_reply, findings=findings, hidden_prompts=_list_hidden_prompts(turn.profile))
    regenerated = False
    try:
        try:
            reply = check(await ask())
        except PromptLeaked:
            regenerated = True
            reply = check(await ask(hint=AS_YOURSELF, fresh=False))
    except PromptLeaked:
        return _Attempt("leaked", regenerated=True)
    except ModelFailed as failure:
        log.warning("chat.error", errorType=failure.kind, message=f"no follow-up: {failure}")
        return _Attempt("failed")
    if not reply.content:
        return _Attempt("failed", regenerated=regenerated)
    receipt = {**findings.audit, "context": prompt_input.receipt}
    tags = {"autonomous": True, "trigger_type": turn.event.trigger_type}
    return _Attempt("delivered", replace(reply, metadata={**reply.metadata, **receipt, **tags}), regenerated)


async def _commit(
    loaded: _LoadedFollowUp, attempt: _Attempt, past_follow_up: PastFollowUp | None, plan: Plan | None, *, push: bool
) -> FollowUpResult:
    """Store the follow-up, or its end: under the conversation's lock, after the gates have been checked again."""
    turn, event, reply = loaded.turn, loaded.turn.event, attempt.reply
    async with turn.deps.database.transaction() as connection:
        followups = FollowUpTurns(connection)
        end = partial(_end, followups, event, regenerated=attempt.regenerated)
        state = await _check_gates(followups, turn.event, turn.profile, turn.deps, lock=True, attempt=attempt)
        if isinstance(state, FollowUpResult):
            return state
        if reply is None or past_follow_up is None:
            return await end(attempt.state)
        if loaded.state.is_inferred and _repeats_earlier(loaded, reply):
            return await end("suppressed", gate="repeated")
        finished = await followups.deliver(
            event,
            turn.input.message,
            reply,
            agent_name=turn.profile.name,
            push=push,
            plan=plan,
            regenerated=attempt.regenerated,
            brought_up=past_follow_up.sources,
        )
    return FollowUpResult(
        _get_trigger_type(event),
        "delivered",
        reply=finished.reply,
        has_more=finished.has_more,
        regenerated=attempt.regenerated,
    )


# ---- the parts of these steps


async def _load_follow_up(event: ClaimedEvent, deps: TurnDeps) -> _LoadedFollowUp | FollowUpResult:
    """Load the input of the follow-up; end it if a gate is closed."""
    timer = PhaseTimer(deps.metrics)
    profile = get_agent(event.agent_id, chat_handle=event.handle)
    trigger = _build_trigger(event, profile)
    async with deps.database.statement() as connection:
        followups = FollowUpTurns(connection)
        if event.attempts > MAX_ATTEMPTS:
            return await _end(followups, event, "failed")
        state = await _check_gates(followups, event, profile, deps)
        if isinstance(state, FollowUpResult):
            return state
        turn_input = await load_turn_input(
            connection,
            event,
            limit=MAX_CHAT_HISTORY,
            embedder=deps.retriever.embedder.name,
            question=_build_trigger_message(event, trigger),
        )
        if turn_input is None:
            return await _end(followups, event, "failed")
        own_messages = find_own_messages(turn_input.earlier, owner_id=get_sole_speaker(event))
        past_follow_ups = turn_input.past_follow_ups
        if state.is_inferred and is_closed(state.topic, state.sources, earlier=past_follow_ups, own=own_messages):
            return await _end(followups, event, "suppressed", gate="repeated")
    timer.record("load")
    return _LoadedFollowUp(Turn(event, profile, turn_input, deps, timer), trigger, state, own_messages)


async def _check_gates(
    followups: FollowUpTurns,
    event: ClaimedEvent,
    profile: AgentProfile,
    deps: TurnDeps,
    *,
    lock: bool = False,
    attempt: _Attempt | None = None,
) -> GateInput | FollowUpResult:
    """Return the gates' input if every gate is open; otherwise end the follow-up."""
    end = partial(_end, followups, event, regenerated=attempt is not None and attempt.regenerated)
    state = await followups.load_gate_input(event, lock=lock)
    if state is None:
        return await end("superseded")
    if state.lateness_seconds > EXPIRY_SECONDS:  # the timer fired in time, but then no server was running
        return await end("expired")
    gate = find_closed_gate(state, server=deps.autonomy, autonomy=profile.autonomy)
    return state if gate is None else await end("suppressed", gate=gate)


async def _end(
    followups: FollowUpTurns,
    event: ClaimedEvent,
    state: TimerState,
    *,
    gate: Gate | None = None,
    regenerated: bool = False,
) -> FollowUpResult:
    """End the follow-up without a message."""
    has_more = await followups.end(event, state, gate=gate, regenerated=regenerated)
    return FollowUpResult(_get_trigger_type(event), state, gate, has_more=has_more, regenerated=regenerated)


def _choose_lookup(turn: Turn, trigger: HumanMessage) -> Lookup:
    """Return the last message of a person as the query. The trigger's text is never used as one."""
    query = query_for(trigger, turn.input.earlier, turn.input.summary)
    if query.source != "last_user_message":
        return Lookup(query, question=None)
    messages = [message for message in turn.input.earlier if message.role == "user"]
    asker = get_author_id(messages[-1])
    # The last message is the question itself, so it is not among the earlier ones.
    return Lookup(query, query.text, [message.text for message in messages[:-1] if get_author_id(message) == asker])


def _repeats_earlier(loaded: _LoadedFollowUp, reply: Reply) -> bool:
    """Return True if the text mentions an earlier topic. The model does not know the planned topic, so this can happen."""
    past_follow_ups = loaded.turn.input.past_follow_ups
    return repeats(extract_text(reply.content), loaded.state.sources, earlier=past_follow_ups, own=loaded.own)


def _describe_past_follow_up(loaded: _LoadedFollowUp, reply: Reply) -> PastFollowUp:
    """Return the record of this follow-up for later ones: its topic, and every message that its text mentions."""
    state = loaded.state
    sources = dict.fromkeys([*state.sources, *find_mentioned(extract_text(reply.content), loaded.own)])
    return PastFollowUp(state.topic, tuple(sources), state.now, state.is_inferred, in_this_silence=True)


def _list_hidden_prompts(profile: AgentProfile) -> set[str]:
    return {*PROMPTS.values(), *(profile.autonomy.prompts.values() if profile.autonomy else ())}


def _build_trigger(event: ClaimedEvent, profile: AgentProfile) -> HumanMessage:
    trigger_type = _get_trigger_type(event)
    prompt = profile.autonomy.prompt(trigger_type) if profile.autonomy else PROMPTS[trigger_type]
    return synthetic_message(trigger_type, prompt=prompt, reason=event.trigger_reason, id=event.id)


def _build_trigger_message(event: ClaimedEvent, trigger: HumanMessage) -> Message:
    """Return the trigger as a message that can be stored, for operators."""
    tags = trigger.additional_kwargs
    return Message(event.id, event.conversation_id, "user", str(trigger.text), datetime.now(UTC), metadata=tags)


def _get_trigger_type(event: ClaimedEvent) -> TriggerType:
    assert event.trigger_type is not None
    return event.trigger_type
