"""Follow up: turn a timer's event into a message, or end it without one. Safe to repeat after a crash (AUTO)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import structlog
from langchain_core.messages import HumanMessage

from rapport.agents.directory import add_chat_handle
from rapport.agents.failures import ModelFailed
from rapport.context.prompt import build_window_selection
from rapport.context.question import get_author_id
from rapport.context.summary_rules import get_window_limit, needs_summary
from rapport.domain import failpoints
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Message, extract_text
from rapport.domain.draft import Draft
from rapport.domain.event import ClaimedEvent, Reply
from rapport.domain.follow_up import (
    EXPIRY_SECONDS,
    PLAIN_VARIANT,
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
from rapport.memory.query import derive_query
from rapport.storage.followups.follow_up_turns import FollowUpTurns
from rapport.storage.work.events import Superseded
from rapport.storage.work.turn_input import load_turn_input
from rapport.turns.ask import TurnPrompt, ask_model
from rapport.turns.check import PromptLeaked, check_reply
from rapport.turns.deps import TurnDeps
from rapport.turns.findings import Lookup, Search
from rapport.turns.plan import plan_follow_up
from rapport.turns.prompt_input import PROMPT_BUILDERS, PromptInput
from rapport.turns.speak_first import (
    AS_YOURSELF,
    NAME_THE_TOPIC,
    Fault,
    PlainPrompt,
    describe_moment,
    find_fault,
    list_hidden_texts,
    write_plain_prompt,
)
from rapport.turns.trigger import build_trigger, build_trigger_message, get_trigger_type
from rapport.turns.turn import MAX_ATTEMPTS, PhaseTimer, Turn, get_sole_speaker
from rapport.turns.usage import attach_usage, find_spent_budget, settle_usage, store_usage

log = structlog.get_logger()


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
    has_plan: bool = False
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
    variant: str
    """The name of the variant that its trigger has."""
    state: GateInput
    own: Sequence[Message]
    """The messages that the person wrote themselves."""

    @property
    def last_message(self) -> Message | None:
        """Return the last message of a person; None in an empty conversation."""
        people = (message for message in reversed(self.turn.input.earlier) if message.role == "user")
        return next((message for message in people if message.text.strip()), None)


_Fault: TypeAlias = Fault | Literal["leaked"]


@dataclass(frozen=True, slots=True)
class _Draft:
    """The model's text for a trigger, and what is wrong with it."""

    reply: Reply
    prompt_input: PromptInput
    variant: str
    """The name of the wording that the model has read."""
    fault: _Fault | None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A reply to send, or the state in which the follow-up ends without one."""

    state: TimerState
    variant: str
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
            await asyncio.shield(store_usage(event, deps, settle_usage(event, deps, turn.meter)))
            raise
        attempt = _Attempt("superseded", loaded.variant)  # a person has cancelled it
    finally:
        draft.end()
    turn.timer.record("model")
    usage = settle_usage(event, deps, turn.meter)
    past_follow_up, plan = None, None
    if attempt.reply is not None:
        attempt = replace(attempt, reply=(reply := attach_usage(attempt.reply, usage)))
        past_follow_up = _describe_past_follow_up(loaded, reply)
        plan = plan_follow_up(turn, reply, just_made=[past_follow_up])
    failpoints.reach("turn.answered")
    try:
        result = await _commit(loaded, attempt, past_follow_up, plan, push=push)
    except Superseded:
        await store_usage(event, deps, usage)
        raise
    if result.reply is None:
        await store_usage(event, deps, usage)
        return result
    turn.timer.record("commit")
    failpoints.reach("turn.committed")
    if not event.traits.is_summarized:
        return replace(result, has_plan=plan is not None)
    messages, has_summary = [*turn.input.earlier, result.reply], turn.input.summary is not None
    is_long = needs_summary(messages, has_summary=has_summary, max_history=turn.max_chat_history)
    return replace(result, needs_summary=is_long, has_plan=plan is not None)


async def _make_reply(loaded: _LoadedFollowUp) -> _Attempt:
    """Return a reply to the person that shows nothing of the trigger, after a second draft if needed; or how it failed."""
    turn = loaded.turn
    if isinstance(turn.model, ModelFailed):
        log.warning("chat.error", errorType=turn.model.kind, message=f"no follow-up: {turn.model}")
        return _Attempt("failed", loaded.variant)
    record = turn.model.record
    search = Search(turn, _choose_lookup(turn, loaded.trigger))
    is_plain = record.needs_plain_trigger
    try:
        draft = await _write_draft(loaded, search, is_plain=is_plain)
        if draft.variant == PLAIN_VARIANT:
            record.count_plain_trigger()
        elif not is_plain and loaded.last_message is not None:
            record.count_trigger(was_answered=draft.fault is not None)
        if regenerated := draft.fault is not None:
            draft = await _write_draft(loaded, search, is_plain=True, fault=draft.fault)
    except ModelFailed as failure:
        log.warning("chat.error", errorType=failure.kind, message=f"no follow-up: {failure}")
        return _Attempt("failed", loaded.variant)
    if draft.fault == "leaked":
        return _Attempt("leaked", draft.variant, regenerated=True)
    if draft.fault in ("answers_trigger", "copies_example") or not draft.reply.content:
        log.info("autonomy.no_follow_up", reason=draft.fault or "empty")
        return _Attempt("failed", draft.variant, regenerated=regenerated)
    receipt = {**search.findings.audit, "context": draft.prompt_input.receipt}
    tags = {
        "autonomous": True,
        "trigger_type": turn.event.trigger_type,
        "agent": {"id": turn.profile.id, "version": turn.profile.version},
        "prompt_variant": draft.variant,
    }
    metadata = {**draft.reply.metadata, **receipt, **tags}
    return _Attempt("delivered", draft.variant, replace(draft.reply, metadata=metadata), regenerated)


async def _write_draft(
    loaded: _LoadedFollowUp, search: Search, *, is_plain: bool, fault: _Fault | None = None
) -> _Draft:
    """Return the model's text for the trigger, and what is wrong with it. `fault` is what was wrong with the draft before.

    With `is_plain` the prompt is written for models that answer the usual trigger.
    """
    turn, last_message = loaded.turn, loaded.last_message
    plain = _write_plain_prompt(loaded) if is_plain else None
    hints: list[str] = []
    if plain is not None:
        trigger = loaded.trigger.model_copy(update={"content": plain.trigger})
        prompt_input = PromptInput(trigger, plain.history, build_window_selection(plain.quoted))
    else:
        prompt_input = PROMPT_BUILDERS[turn.event.kind].build_for_trigger(turn, loaded.trigger)
        if last_message is not None:
            hints.append(_describe_moment(turn, last_message))
    if fault is not None:
        hints.append(AS_YOURSELF if fault == "leaked" else NAME_THE_TOPIC)
    instructions = plain.instructions if plain is not None else None
    variant = loaded.variant if plain is None else PLAIN_VARIANT
    answer = await ask_model(
        TurnPrompt(turn, prompt_input, search, instructions=instructions, hint="\n\n".join(hints)),
        fresh=turn.event.attempts == 1 and fault is None,
        purpose="follow_up" if fault is None else "leak_retry",
    )
    assert answer is not None  # this prompt refuses nothing
    try:
        hidden = list_hidden_texts(turn.profile.autonomy, plain)
        reply = check_reply(answer, search.findings, prompt_input.selection, hidden_prompts=hidden)
    except PromptLeaked:
        return _Draft(Reply(""), prompt_input, variant, "leaked")
    if last_message is None or not reply.content:
        return _Draft(reply, prompt_input, variant, None)
    examples = plain.examples if plain is not None else ()
    found = find_fault(extract_text(reply.content), turn.input.earlier, loaded.state.topic, examples)
    return _Draft(reply, prompt_input, variant, found)


async def _commit(
    loaded: _LoadedFollowUp, attempt: _Attempt, past_follow_up: PastFollowUp | None, plan: Plan | None, *, push: bool
) -> FollowUpResult:
    """Store the follow-up, or its end: under the conversation's lock, after the gates have been checked again."""
    turn, event, reply = loaded.turn, loaded.turn.event, attempt.reply
    async with turn.deps.database.transaction() as connection:
        followups = FollowUpTurns(connection)
        end = partial(_end, followups, event, variant=attempt.variant, regenerated=attempt.regenerated)
        state = await _check_gates(
            followups, turn.event, turn.profile, turn.deps, variant=attempt.variant, lock=True, attempt=attempt
        )
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
            variant=attempt.variant,
            regenerated=attempt.regenerated,
            brought_up=past_follow_up.sources,
        )
    return FollowUpResult(
        get_trigger_type(event),
        "delivered",
        reply=finished.reply,
        has_more=finished.has_more,
        regenerated=attempt.regenerated,
    )


# ---- the parts of these steps


async def _load_follow_up(event: ClaimedEvent, deps: TurnDeps) -> _LoadedFollowUp | FollowUpResult:
    """Load the input of the follow-up; end it if a gate is closed."""
    timer = PhaseTimer(deps.metrics)
    profile = await deps.agents.reload(event.owner_id, event.agent_id)
    profile = add_chat_handle(profile, event.handle)
    trigger, variant = build_trigger(event, profile)
    async with deps.database.statement() as connection:
        followups = FollowUpTurns(connection)
        end = partial(_end, followups, event, variant=variant)
        if event.attempts > MAX_ATTEMPTS:
            return await end("failed")
        state = await _check_gates(followups, event, profile, deps, variant=variant)
        if isinstance(state, FollowUpResult):
            return state
        turn_input = await load_turn_input(
            connection,
            event,
            limit=get_window_limit(deps.get_max_chat_history(profile)),
            embedder=deps.retriever.embedder.name,
            question=build_trigger_message(event, trigger),
        )
        if turn_input is None:
            return await end("failed")
        own_messages = find_own_messages(turn_input.earlier, owner_id=get_sole_speaker(event))
        past_follow_ups = turn_input.past_follow_ups
        if state.is_inferred and is_closed(state.topic, state.sources, earlier=past_follow_ups, own=own_messages):
            return await end("suppressed", gate="repeated")
    turn = Turn(event, profile, turn_input, deps, timer, await deps.find_model(profile))
    if await find_spent_budget(turn) is not None:
        async with deps.database.statement() as connection:
            return await _end(FollowUpTurns(connection), event, "suppressed", gate="budget", variant=variant)
    timer.record("load")
    return _LoadedFollowUp(turn, trigger, variant, state, own_messages)


async def _check_gates(
    followups: FollowUpTurns,
    event: ClaimedEvent,
    profile: AgentProfile,
    deps: TurnDeps,
    *,
    variant: str,
    lock: bool = False,
    attempt: _Attempt | None = None,
) -> GateInput | FollowUpResult:
    """Return the gates' input if every gate is open; otherwise end the follow-up."""
    is_regenerated = attempt is not None and attempt.regenerated
    end = partial(_end, followups, event, variant=variant, regenerated=is_regenerated)
    state = await followups.load_gate_input(event, lock=lock)
    if state is None:
        return await end("superseded")
    autonomy = None if profile.replaces else profile.autonomy  # a deleted agent does not follow up
    if state.lateness_seconds > (autonomy.expiry if autonomy else EXPIRY_SECONDS):
        return await end("expired")
    gate = find_closed_gate(state, server=deps.autonomy, autonomy=autonomy)
    return state if gate is None else await end("suppressed", gate=gate)


async def _end(
    followups: FollowUpTurns,
    event: ClaimedEvent,
    state: TimerState,
    *,
    variant: str,
    gate: Gate | None = None,
    regenerated: bool = False,
) -> FollowUpResult:
    """End the follow-up without a message."""
    has_more = await followups.end(event, state, variant=variant, gate=gate, regenerated=regenerated)
    return FollowUpResult(get_trigger_type(event), state, gate, has_more=has_more, regenerated=regenerated)


def _choose_lookup(turn: Turn, trigger: HumanMessage) -> Lookup:
    """Return the last message of a person as the query. The trigger's text is never used as one."""
    query = derive_query(trigger, turn.input.earlier, turn.input.summary)
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


def _describe_moment(turn: Turn, last_message: Message) -> str:
    return describe_moment(
        get_trigger_type(turn.event),
        last_message,
        now=turn.deps.now(),
        name=last_message.author.name if last_message.author else None,
        is_group=turn.event.traits.has_many_speakers,
    )


def _write_plain_prompt(loaded: _LoadedFollowUp) -> PlainPrompt | None:
    turn, sources = loaded.turn, loaded.state.sources
    prompt = write_plain_prompt(get_trigger_type(turn.event), turn.input.earlier, sources, now=turn.deps.now())
    # Small models, which call no tools, write best without a persona.
    return prompt.add_persona(turn.profile.persona) if prompt and turn.decides_by_tools else prompt
