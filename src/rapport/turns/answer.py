"""One turn: an event in, a stored reply out. Safe to repeat after a crash at any line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog
from langchain_core.messages import HumanMessage

from rapport.agents.failures import ModelFailed
from rapport.agents.profiles import get_agent
from rapport.agents.tools import MaySave
from rapport.context.situation import Situation
from rapport.context.summary_rules import is_crowded
from rapport.domain import failpoints
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.draft import Draft
from rapport.domain.errors import InvalidInput, Permanent, Transient
from rapport.domain.event import ClaimedEvent, Finished, Reply
from rapport.domain.follow_up import Plan
from rapport.domain.memory import MemoryCandidate
from rapport.followups.own_words import find_own_messages, is_founded, keep_own_text
from rapport.memory.extraction import remarks_in
from rapport.memory.memory_store import Applied, Prepared
from rapport.memory.query import query_for
from rapport.memory.recall import RecalledMemory
from rapport.replies.citations import CitationFilter
from rapport.replies.reply_kinds import checked, fallback, guarded
from rapport.replies.text import storable
from rapport.storage.database import attempt
from rapport.storage.messages.neighbours import LinkedMessages, load_linked
from rapport.storage.work.events import Events, Superseded
from rapport.storage.work.outbox import Outbox
from rapport.storage.work.turn_input import TurnInput, load_turn_input
from rapport.turns.prompt_input import PromptInput, given_to_group, given_to_one, messages_to_load
from rapport.turns.steps import (
    MAX_ATTEMPTS,
    Findings,
    PhaseTimer,
    TurnDeps,
    ask_model,
    build_findings,
    describe_situation,
    look_up,
    plan_follow_up,
    recall_memories,
)

log = structlog.get_logger()

TOO_LONG = frozenset({"http_400", "http_413"})
"""How providers refuse a conversation that is longer than their model can read."""
NEIGHBOURS = 20
"""So much is looked at of what stands around a message that somebody replies to: along its replies, and on either side."""
EMBEDDING_SECONDS = 5.0
"""So long a reply that is ready waits for what is to be remembered with it."""
MEMORY_PATIENCE = 1.0
"""Seconds that a commit, which holds up its conversation, waits for others who write to the same memory."""


async def answer_message(event: ClaimedEvent, tools: TurnDeps, *, draft: Draft, push: bool) -> Finished:
    """Answer one event: load, look up, ask, check, commit. No transaction is open while others think."""
    profile = get_agent(event.agent_id, chat_handle=event.handle)
    clock = PhaseTimer(tools.metrics)
    async with tools.database.statement() as connection:
        if push:  # what was about to be said when somebody spoke, and is not, must not be answered from either
            await Outbox(connection).take_back(event.conversation_id)
        embedder = tools.retriever.embedder.name
        material = await load_turn_input(connection, event, limit=messages_to_load(event.traits), embedder=embedder)
        if material is None:
            raise Superseded("The conversation was deleted.")
        near = NEIGHBOURS if event.traits.selects_context else 0
        where = (event.owner_id, event.conversation_id)
        links = await load_linked(connection, *where, material.message, depth=near, neighbours=near)
    clock.record("load")
    failpoints.reach("turn.loaded")
    draft.begin()
    try:
        if draft.cancelled:
            await asyncio.sleep(0)  # cancelled while it was loading: that takes effect here, and not at the commit
        reply = await _reply(event, material, links, profile, tools, draft=draft, clock=clock)
    except asyncio.CancelledError:
        if not draft.goes_on():
            raise
        reply = Reply("", metadata={"cancelled": True})  # before the model was asked
    finally:
        draft.end()
    remarks = await _worth_remembering(event, material, profile, reply, tools)
    plan = plan_follow_up(event, material, profile, reply, tools)
    failpoints.reach("turn.answered")
    finished = await _commit(event, reply, profile, tools, plan=plan, remarks=remarks, push=push)
    clock.record("commit")
    failpoints.reach("turn.committed")
    # Summed up by the model, so only when it has just worked, or would if it were given less. Not in a group: what belongs
    # to a call is chosen there, and a summary would mix everybody's topics.
    can_sum_up = event.traits.is_summarized and (reply.model_failed is False or reply.was_refused)
    crowded = can_sum_up and is_crowded([*material.earlier, material.message, finished.reply])
    return replace(finished, crowded=crowded)


async def _reply(
    event: ClaimedEvent,
    material: TurnInput,
    links: LinkedMessages,
    profile: AgentProfile,
    tools: TurnDeps,
    *,
    draft: Draft,
    clock: PhaseTimer,
) -> Reply:
    """What to say: the guard's words, the model's, or the fallback's; with the receipt of what it was made from."""
    if event.attempts > MAX_ATTEMPTS:
        return fallback((), "attempts", f"tried {event.attempts - 1} times", model=tools.model)
    given = await _given(event, material, links, profile, tools)
    if event.traits.selects_context:
        clock.record("context")
    try:
        findings = await _findings(event, material, given, profile, tools, clock)
    except (Transient, Permanent) as error:  # trying again would only let people wait
        reply = fallback((), "retrieval", str(error), model=tools.model)
        return replace(reply, metadata={**reply.metadata, "context": given.receipt})
    if profile.grounding == "strict" and not findings.passages:
        reply = guarded(findings.retrieval.refusal if findings.retrieval else "no_notes")
    elif material.is_resting:
        why = "the model failed too often in this conversation and rests for a while"
        reply = fallback(findings.passages, "breaker", why, problem="resting", model=tools.model)
    else:
        situation = describe_situation(event, material, profile, tools)
        may_save = _may_save(event, material, profile)
        reply = await _answer(event, given, profile, findings, situation, tools, draft=draft, may_save=may_save)
        clock.record("model")
    return replace(reply, metadata={**reply.metadata, **findings.audit, "context": given.receipt})


async def _given(
    event: ClaimedEvent, material: TurnInput, links: LinkedMessages, profile: AgentProfile, tools: TurnDeps
) -> PromptInput:
    """What the model is given of the conversation: a window of a direct chat, and what was chosen of a group's."""
    if not event.traits.selects_context:
        return given_to_one(material, links.anchor)
    gathered = await tools.context_selector.select(event.owner_id, material.message, material.earlier, links)
    return given_to_group(
        gathered,
        profile,
        event.owner_id,
        tools.context_selector,
        may_look_up=tools.agent.calls_tools,
        time_zone=material.time_zone,
    )


async def _findings(
    event: ClaimedEvent,
    material: TurnInput,
    given: PromptInput,
    profile: AgentProfile,
    tools: TurnDeps,
    clock: PhaseTimer,
) -> Findings:
    """What is remembered and what the notes say. Of the notes a strict agent can't do without, and it raises."""
    memories: Sequence[RecalledMemory] = ()
    if event.traits.may_use_memory:
        query = query_for(HumanMessage(material.message.text), material.earlier, material.summary)
        memories = await recall_memories(event, material, profile, query, tools)
    try:
        retrieval = await look_up(event, material, given.question, tools.retriever, earlier=given.earlier)
    except (Transient, Permanent) as error:
        if profile.grounding == "strict":
            raise
        log.warning("chat.error", errorType="retrieval", message=str(error))
        retrieval = None
    if retrieval is not None:
        clock.record("retrieval")
    return build_findings(retrieval, memories)


def _may_save(event: ClaimedEvent, material: TurnInput, profile: AgentProfile) -> MaySave | None:
    """Return what decides whether a fact may be kept: it must be made of the person's own words. None: nothing is kept."""
    if not profile.remembers or not event.traits.may_use_memory:
        return None
    own = _own(event, material)
    return lambda content: is_founded(content, own)


def _own(event: ClaimedEvent, material: TurnInput) -> list[str]:
    """Return what the person who asks wrote of what the turn sees; nothing if that is not the owner."""
    said = [*material.earlier, material.message]
    return [message.text for message in find_own_messages(said, of=material.message, owner_id=event.owner_id)]


async def _answer(
    event: ClaimedEvent,
    given: PromptInput,
    profile: AgentProfile,
    findings: Findings,
    situation: Situation,
    tools: TurnDeps,
    *,
    draft: Draft,
    may_save: MaySave | None,
) -> Reply:
    """The model's answer with its citations checked, while it streams and as a whole; or the fallback."""
    passages = findings.passages
    stream = CitationFilter({passage.note_id for passage in passages})

    def relay(token: str) -> None:
        draft.add(stream.feed(storable(token)))

    on_token = relay if draft.listeners else None
    try:
        reply = await ask_model(
            event,
            given,
            profile,
            findings,
            agent=tools.agent,
            situation=situation,
            on_token=on_token,
            may_save=may_save,
        )
    except ModelFailed as failure:
        refused = failure.kind in TOO_LONG
        reply = fallback(passages, failure.kind, str(failure), problem=failure.problem, model=tools.model)
        return replace(reply, model_failed=True, was_refused=refused)
    except asyncio.CancelledError:
        if not draft.goes_on():
            raise
        return replace(checked(draft.text, passages), metadata={"cancelled": True})
    if not reply.content:  # it named sources and said nothing
        reply = fallback(passages, "empty", "nothing is left of the model's answer", model=tools.model)
        return replace(reply, model_failed=True)
    draft.complete(str(reply.content))
    return reply


async def _worth_remembering(
    event: ClaimedEvent, material: TurnInput, profile: AgentProfile, reply: Reply, tools: TurnDeps
) -> Sequence[Prepared]:
    """What this turn adds to the memory: what the model asked for or, of one that can't ask, what the rules find.

    That it can't be done now harms nobody but the memory.
    """
    if not profile.remembers or not event.traits.may_use_memory:
        return ()
    remarks = reply.remarks if tools.agent.calls_tools else _by_rules(event, material)
    if not remarks:
        return ()
    where = {"conversation_id": event.conversation_id, "message_id": event.id}
    try:
        async with asyncio.timeout(EMBEDDING_SECONDS):
            return await tools.memory_store.prepare([replace(remark, **where) for remark in remarks])
    except (InvalidInput, Transient, Permanent, TimeoutError) as error:
        log.warning("memory.not_saved", reason=str(error) or "no vectors in time")
        return ()


def _by_rules(event: ClaimedEvent, material: TurnInput) -> list[MemoryCandidate]:
    """Return what the rules find in what the owner wrote themselves."""
    if not _own(event, material):
        return []
    return remarks_in(replace(material.message, content=keep_own_text(material.message.text)))


async def _commit(
    event: ClaimedEvent,
    reply: Reply,
    profile: AgentProfile,
    tools: TurnDeps,
    *,
    plan: Plan | None,
    remarks: Sequence[Prepared],
    push: bool,
) -> Finished:
    """Reply, event, follow-up and outbox: all of it or nothing. What is remembered goes with it, or is left out."""
    if not remarks:
        async with tools.database.statement() as connection:
            return await Events(connection).finish(event, reply, agent_name=profile.name, push=push, plan=plan)
    async with tools.database.transaction() as connection:
        finished = await Events(connection).finish(event, reply, agent_name=profile.name, push=push, plan=plan)
        applied = Applied()
        try:
            async with attempt(connection, patience=MEMORY_PATIENCE):
                applied = await tools.memory_store.apply(connection, event.owner_id, event.agent_id, remarks)
        except (Transient, Permanent) as error:
            log.warning("memory.not_saved", reason=str(error))
            applied = Applied()
    tools.memory_store.announce(event.owner_id, applied.changes)
    return finished
