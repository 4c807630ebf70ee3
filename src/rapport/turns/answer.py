"""Answer one message: turn an event into a stored reply. Safe to repeat after a crash at any line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from rapport.agents.directory import add_chat_handle
from rapport.agents.failures import ModelFailed
from rapport.agents.graph_run import Answer
from rapport.context.summary_rules import needs_summary
from rapport.domain import failpoints
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.draft import Draft
from rapport.domain.event import ClaimedEvent, Finished, Reply
from rapport.domain.follow_up import Plan
from rapport.domain.follow_up_requests import Preference
from rapport.domain.model_problems import ModelSetup
from rapport.domain.note import Passage
from rapport.domain.usage import Purpose
from rapport.memory.memory_store import PreparedMemory
from rapport.memory.query import derive_query
from rapport.replies.citations import CitationFilter
from rapport.replies.defusing import make_storable
from rapport.replies.reply_kinds import make_budget_reply, make_fallback_reply, make_guard_reply
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.messages.neighbours import LinkedMessages, load_linked
from rapport.storage.work.events import Events, Superseded
from rapport.storage.work.outbox import Outbox
from rapport.storage.work.tool_calls import ToolCalls
from rapport.storage.work.turn_input import TurnInput, load_turn_input
from rapport.turns.ask import TurnPrompt, ask_model
from rapport.turns.check import check_reply
from rapport.turns.deps import OnToken, TurnDeps
from rapport.turns.findings import Lookup, Search
from rapport.turns.outside_calls import TurnCalls, describe_open_questions
from rapport.turns.plan import plan_follow_up
from rapport.turns.prompt_input import PROMPT_BUILDERS, PromptInput
from rapport.turns.remember import prepare_memories, store_memories
from rapport.turns.set_reminders import add_reminders, lock_preference, store_reminders
from rapport.turns.turn import MAX_ATTEMPTS, PhaseTimer, Turn
from rapport.turns.turn_tools import wait_for_tools
from rapport.turns.usage import attach_usage, find_spent_budget, settle_usage, store_usage

TOO_LONG = frozenset({"http_400", "http_413"})
"""The errors by which providers refuse a conversation that is longer than their model can read."""


async def answer_message(event: ClaimedEvent, deps: TurnDeps, *, draft: Draft, push: bool) -> Finished:
    """Answer one message: load, recall and retrieve, ask the model, check its reply, plan, commit.

    No transaction is open while the model or an embedder works.
    """
    turn = await _load_turn(event, deps, push=push)
    failpoints.reach("turn.loaded")
    draft.begin()
    calls = TurnCalls(turn, flush=deps.flush_checkpoints)
    try:
        if draft.is_cancelled:
            await asyncio.sleep(0)  # cancelled while loading: raise the cancellation here and not at the commit
        reply = await make_reply(turn, draft, calls=calls)
    except asyncio.CancelledError:
        if not draft.accept_cancellation():
            await asyncio.shield(store_usage(event, deps, settle_usage(event, deps, turn.meter)))
            raise
        reply = Reply("", metadata={"cancelled": True})  # the model was not asked yet
    finally:
        draft.end()
    reply = await calls.add_outcomes(reply)
    reply = attach_usage(reply, settle_usage(event, deps, turn.meter))
    memories = await prepare_memories(turn, reply)
    plan = plan_follow_up(turn, reply)
    failpoints.reach("turn.answered")
    try:
        finished = await _commit(turn, reply, plan, memories, push=push)
    except Superseded:
        await store_usage(event, deps, reply.usage)
        raise
    turn.timer.record("commit")
    failpoints.reach("turn.committed")
    return replace(finished, needs_summary=_needs_summary(turn, reply, finished), has_plan=plan is not None)


async def make_reply(turn: Turn, draft: Draft, *, calls: TurnCalls | None = None, purpose: Purpose = "answer") -> Reply:
    """Return the guard reply, the model's reply or the fallback reply, with its receipt.

    `calls` records tool calls with effects outside; without it no such tool is offered. `purpose` is for the usage.
    """
    if turn.event.attempts > MAX_ATTEMPTS:
        return _fall_back(turn, (), "attempts", f"tried {turn.event.attempts - 1} times")
    prompt_input = await PROMPT_BUILDERS[turn.event.kind].build_for_message(turn)
    search = Search(turn, _choose_lookup(turn, prompt_input))
    prompt = TurnPrompt(turn, prompt_input, search, find_refusal=partial(_find_refusal, turn, search))
    prompt.stream = partial(_stream_to, turn, draft) if draft.listeners else None
    await wait_for_tools(turn)
    if calls is not None:
        calls.search = search
        await calls.recover()
        prompt.open_questions = describe_open_questions(await calls.list_open())
    reply = await _ask_and_check(prompt, draft, calls, purpose)
    receipt: dict[str, Any] = {
        **search.findings.audit,
        "context": prompt_input.receipt,
        "agent": {"id": turn.profile.id, "version": turn.profile.version},
    }
    if prompt_input.tools_used:
        receipt["tools"] = prompt_input.tools_used
    return replace(reply, metadata={**reply.metadata, **receipt})


async def _find_refusal(turn: Turn, search: Search) -> Reply | None:
    """Return the reply that is made without the model once the notes are searched; None if the model is asked."""
    findings = await search.run()
    if search.failure and turn.profile.grounding == "strict":  # a retry would only make people wait
        return _fall_back(turn, (), "retrieval", search.failure)
    if findings.retrieval is not None:
        turn.timer.record("retrieval")
    if turn.profile.grounding == "strict" and not findings.passages:
        reason = findings.retrieval.refusal if findings.retrieval else "no_notes"
        return make_guard_reply(reason, turn.profile.guard_text)
    if turn.input.is_breaker_open:
        detail = "the model failed too often in this conversation and rests for a while"
        return _fall_back(turn, findings.passages, "breaker", detail, "resting")
    if (spent := await find_spent_budget(turn)) is not None:
        return make_budget_reply(findings.passages, spent, model=turn.describe_model(), is_kept=turn.is_kept)
    return None


async def _ask_and_check(prompt: TurnPrompt, draft: Draft, calls: TurnCalls | None, purpose: Purpose) -> Reply:
    """Return the model's reply with checked citations; the fallback reply if it fails; the text so far if cancelled."""
    turn, search = prompt.turn, prompt.search
    notice = _describe_replacement(turn)
    try:
        answer = await ask_model(prompt, outside_calls=calls, purpose=purpose)
        if answer is None:
            assert prompt.refusal is not None
            return prompt.refusal
        if answer.undecided and calls is not None:
            reply = calls.make_request(answer.text, answer.undecided)
        else:
            reply = check_reply(answer, search.findings, prompt.prompt_input.selection)
        if not reply.content:  # only citations
            raise ModelFailed("empty", "nothing is left of the model's answer")
        if notice:
            reply = replace(reply, content=f"{notice}{reply.content}")
        if not answer.undecided:
            reply = await add_reminders(turn, reply, answer)
    except ModelFailed as failure:
        setup = turn.describe_model(failure)
        reply = _fall_back(turn, search.findings.passages, failure.kind, str(failure), failure.problem, setup)
        reply = replace(reply, model_failed=True, was_refused=failure.kind in TOO_LONG)
    except asyncio.CancelledError:
        if not draft.accept_cancellation():
            raise
        reply = check_reply(Answer(AIMessage(draft.text)), search.findings, prompt.prompt_input.selection)
        reply = replace(reply, model_failed=None, metadata={**reply.metadata, "cancelled": True})
    else:
        draft.complete(str(reply.content))
    turn.timer.record("model")
    return reply


# ---- the parts of these steps


async def _load_turn(event: ClaimedEvent, deps: TurnDeps, *, push: bool) -> Turn:
    """Load everything the turn may see. Raise Superseded if the conversation is gone."""
    timer = PhaseTimer(deps.metrics)
    profile = await deps.agents.get_known(event.owner_id, event.agent_id)
    turn_input, links = await _read_input(event, profile, deps, push=push)
    if turn_input.agent_stamp != profile.stamp:  # the agent has changed
        profile = await deps.agents.reload(event.owner_id, event.agent_id)
        turn_input, links = await _read_input(event, profile, deps, push=False)
    timer.record("load")
    if profile.replaces is not None:  # what it writes and uses is recorded under its own id
        event = replace(event, agent_id=profile.id)
    profile = add_chat_handle(profile, event.handle)
    return Turn(event, profile, turn_input, deps, timer, await deps.find_model(profile), links)


async def _read_input(
    event: ClaimedEvent, profile: AgentProfile, deps: TurnDeps, *, push: bool
) -> tuple[TurnInput, LinkedMessages]:
    """Return the input of a turn of this agent, and the messages that the answered one is linked to."""
    builder = PROMPT_BUILDERS[event.kind]
    async with deps.database.statement() as connection:
        if push:  # a follow-up that was not sent because somebody wrote must not be part of the history
            await Outbox(connection).take_back(event.conversation_id)
        turn_input = await load_turn_input(
            connection,
            event,
            limit=builder.get_messages_to_load(deps, profile),
            embedder=deps.retriever.embedder.name,
        )
        if turn_input is None:
            raise Superseded("The conversation was deleted.")
        links = await load_linked(
            connection,
            event.owner_id,
            event.conversation_id,
            turn_input.message,
            depth=builder.neighbours_to_load,
            neighbours=builder.neighbours_to_load,
        )
    return turn_input, links


def _fall_back(
    turn: Turn,
    passages: Sequence[Passage],
    kind: str,
    reason: str,
    problem: str | None = None,
    setup: ModelSetup | None = None,
) -> Reply:
    model = setup or turn.describe_model()
    return make_fallback_reply(passages, kind, reason, problem=problem, model=model, is_kept=turn.is_kept)


def _choose_lookup(turn: Turn, prompt_input: PromptInput) -> Lookup:
    query = None
    if turn.may_use_memory and turn.input.has_memories:
        query = derive_query(HumanMessage(turn.input.message.text), turn.input.earlier, turn.input.summary)
    question = None if turn.profile.grounding == "none" else prompt_input.question
    return Lookup(query, question, prompt_input.earlier_questions)


def _describe_replacement(turn: Turn) -> str:
    """Return the sentence that the first answer for a deleted agent begins with; empty for an agent that exists."""
    gone = turn.profile.replaces
    return (
        f"(The agent “{gone}” of this conversation was deleted. {turn.profile.name} answers now.)\n\n" if gone else ""
    )


def _stream_to(turn: Turn, draft: Draft, search: Search) -> OnToken:
    """Return a callback that adds tokens to the draft, without citations of notes that were not retrieved."""
    citations = CitationFilter({passage.note_id for passage in search.findings.passages})
    found = len(search.looked_up)
    if notice := _describe_replacement(turn):
        draft.add(notice)

    def add(token: str) -> None:
        nonlocal found
        if len(search.looked_up) > found:  # the model has found more by a tool
            found = len(search.looked_up)
            citations.allow(passage.note_id for passage in search.looked_up)
        draft.add(citations.feed(make_storable(token)))

    return add


async def _commit(
    turn: Turn, reply: Reply, plan: Plan | None, memories: Sequence[PreparedMemory], *, push: bool
) -> Finished:
    """Store reply, event, follow-up, reminders and outbox row, all or nothing. The memories are stored with them, or left out."""
    event, name = turn.event, turn.profile.name
    replaced = turn.profile.replaces is not None and reply.model_failed is False
    if not memories and not replaced and not reply.questions and not reply.reminders:
        async with turn.deps.database.statement() as connection:
            return await Events(connection).finish(event, reply, agent_name=name, push=push, plan=plan)
    async with turn.deps.database.transaction() as connection:
        preference = await lock_preference(connection, event) if reply.reminders else Preference()
        finished = await Events(connection).finish(event, reply, agent_name=name, push=push, plan=plan)
        if replaced:  # from now on it belongs to the agent that has answered, and that was said
            await Conversations(connection).set_agent(event.owner_id, event.conversation_id, turn.profile.id)
        await ToolCalls(connection).ask(event, reply.questions, minutes=turn.deps.approval_minutes)
        await store_reminders(connection, event, reply.reminders, preference)
        applied = await store_memories(connection, turn, memories)
    turn.deps.memory_store.announce(event.owner_id, applied.changes)
    return finished


def _needs_summary(turn: Turn, reply: Reply, finished: Finished) -> bool:
    """Return True if a summary is due, and the model works or refused only because the conversation is too long."""
    if not turn.event.traits.is_summarized or not (reply.model_failed is False or reply.was_refused):
        return False
    messages = [*turn.input.earlier, turn.input.message, finished.reply]
    has_summary = turn.input.summary is not None
    return needs_summary(messages, has_summary=has_summary, max_history=turn.max_chat_history)
