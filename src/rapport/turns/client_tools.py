"""Answer a request with a client's tools: guard, budget and citations hold as in a turn, and only its usage is stored (ADR 96)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import structlog
from langchain_core.messages import BaseMessage, HumanMessage

from rapport.agents.client_tools import ClientToolAnswer
from rapport.agents.failures import ModelFailed
from rapport.context.client_prompt import NOTE_RULE, build_client_prompt
from rapport.context.prompt import build_system_prompt
from rapport.context.situation import Situation
from rapport.context.source_block import BLENDED, render_sources
from rapport.domain.agent_profile import AgentProfile, ModelChoice
from rapport.domain.client_tools import (
    BudgetSpent,
    ClientMessage,
    ClientToolReply,
    ClientToolRequest,
    RequestRefused,
)
from rapport.domain.conversation import Author, Message
from rapport.domain.draft import Draft
from rapport.domain.errors import Transient
from rapport.domain.event import ClaimedEvent
from rapport.domain.ids import new_id
from rapport.domain.model_problems import ModelProblem
from rapport.domain.server_note import ServerNote
from rapport.memory.query import derive_query
from rapport.memory.recall import render_memories
from rapport.replies.citations import CitationFilter
from rapport.replies.defusing import defuse_ids, make_storable
from rapport.replies.quoting import quote_content
from rapport.replies.reply_kinds import make_guard_reply, make_model_reply
from rapport.turns.ask import FIRST_MODELS_SHARE
from rapport.turns.deps import OnToken, TurnDeps
from rapport.turns.findings import Findings, Lookup, Search
from rapport.turns.turn import Turn
from rapport.turns.unstored_turn import load_unstored_turn, make_unstored_event
from rapport.turns.usage import find_spent_budget, settle_usage, store_usage

log = structlog.get_logger()

_REFUSED = frozenset[ModelProblem]({"request_refused", "too_long"})
RETRY_SECONDS = 5.0
"""After a failure of the model a client shall wait this long."""


async def answer_with_client_tools(
    request: ClientToolRequest, profile: AgentProfile, deps: TurnDeps, *, draft: Draft | None = None
) -> ClientToolReply:
    """Return the agent's answer: text, or calls for the client to run. With a draft the text is streamed into it.

    Raise BudgetSpent, ToolsRefused or RequestRefused, which a retry does not help, and Transient if the model or the
    database fails.
    """
    event = make_unstored_event(request.owner_id, profile.id)
    turn = await load_unstored_turn(event, profile, deps, _list_talk(request.messages, event), has_memories=True)
    try:
        reply = await _make_reply(turn, request, draft)
    except ModelFailed as failure:
        log.warning("chat.error", errorType=failure.kind, message=str(failure))
        if failure.problem in _REFUSED:
            raise RequestRefused(
                f"The agent's model refused the request: {failure}.", is_too_long=failure.problem == "too_long"
            ) from failure
        raise Transient("The agent's model gives no answer at the moment.", retry_after=RETRY_SECONDS) from failure
    finally:
        usage = settle_usage(turn.event, deps, turn.meter)
        await asyncio.shield(store_usage(turn.event, deps, usage))
    return replace(reply, usage=usage)


def _list_talk(messages: Sequence[ClientMessage], event: ClaimedEvent) -> list[Message]:
    """Return what user and agent said up to the user's newest message, for the searches in notes and memories."""
    newest = max(number for number, message in enumerate(messages) if message.role == "user")
    return [
        _to_message(message, event)
        for message in messages[: newest + 1]
        if message.role == "user" or (message.role == "assistant" and message.text.strip())
    ]


def _to_message(message: ClientMessage, event: ClaimedEvent) -> Message:
    author = Author(message.name, message.name) if message.name else None
    role = "assistant" if message.role == "assistant" else "user"
    at = datetime.now(UTC)
    return Message(new_id(), event.conversation_id, role, message.content, at, author)


async def _make_reply(turn: Turn, request: ClientToolRequest, draft: Draft | None) -> ClientToolReply:
    is_strict = turn.profile.grounding == "strict"
    search = Search(turn, _choose_lookup(turn))
    findings = await search.run()
    if is_strict and search.failure:
        raise Transient(search.failure, retry_after=RETRY_SECONDS)
    if is_strict and not findings.passages:
        reason = findings.retrieval.refusal if findings.retrieval else "no_notes"
        return ClientToolReply(str(make_guard_reply(reason, turn.profile.guard_text).content), guard_used=True)
    if (spent := await find_spent_budget(turn)) is not None:
        raise BudgetSpent(spent.sentence)
    answer = await _ask_or_fall_back(turn, request, findings, draft)
    turn.timer.record("model")
    reply = make_model_reply(answer.text, findings.passages)
    if not str(reply.content).strip() and not answer.calls:
        raise ModelFailed("empty", "nothing is left of the model's answer")
    log.info("chat.client_tools", agentId=turn.profile.id, tools=len(request.offer.tools), calls=len(answer.calls))
    return ClientToolReply(str(reply.content), answer.calls, reply.sources, tools_refused=answer.tools_refused)


def _choose_lookup(turn: Turn) -> Lookup:
    """Return the searches for the user's newest message, also where results of tools follow it."""
    message, earlier = turn.input.message, turn.input.earlier
    query = derive_query(HumanMessage(message.text), earlier, None) if turn.may_use_memory else None
    question = None if turn.profile.grounding == "none" else message.text
    return Lookup(query, question, [each.text for each in earlier if each.role == "user"])


async def _ask_or_fall_back(
    turn: Turn, request: ClientToolRequest, findings: Findings, draft: Draft | None
) -> ClientToolAnswer:
    """Ask the agent's model; if it fails, or has just failed, its fallback model. Raise the first model's ModelFailed."""
    prompt = _build_prompt(turn, request, findings)
    fallback = turn.profile.fallback_model

    async def ask(choice: ModelChoice, share: float) -> ClientToolAnswer:
        model = await turn.deps.models.get_for_client_tools(choice)
        if fallback and choice == turn.profile.model and model.health.has_just_failed():
            raise ModelFailed("resting", "the agent's model has just failed")
        count = partial(turn.meter.count, "answer")
        # What a failed model has streamed is not continued.
        on_token = None if draft is None or draft.text else _stream_to(draft, findings)
        return await model.ask(prompt, request.offer, on_token=on_token, on_call=count, deadline_share=share)

    try:
        return await ask(turn.profile.model, FIRST_MODELS_SHARE if fallback else 1.0)
    except ModelFailed as failure:
        if not fallback:
            raise
        log.warning("agent.fallback_model", reason=str(failure), model=fallback)
        try:
            return await ask(ModelChoice(fallback), 1.0 - FIRST_MODELS_SHARE)
        except ModelFailed as error:
            raise error if failure.kind == "resting" else failure from error


def _build_prompt(turn: Turn, request: ClientToolRequest, findings: Findings) -> list[BaseMessage]:
    """Return the agent's instructions and the client's messages.

    The sentences about what an agent can't do are left out: the client's tools may do it.
    """
    citable_ids = {passage.note_id for passage in findings.passages}
    is_strict = turn.profile.grounding == "strict"
    instructions = build_system_prompt(
        turn.profile, turn.event.traits, findings.passages, about=findings.description, abilities=NOTE_RULE
    )
    name = turn.input.message.author.name if turn.input.message.author else None
    situation = Situation(turn.deps.now(), turn.input.time_zone, name)
    rule = "Don't mention this note." if is_strict else ""
    sentences = (situation.time_sentence, situation.person_sentence, rule)
    memories = defuse_ids(render_memories(findings.memories), citable_ids)
    passages = "" if is_strict or not findings.passages else _render_passages(findings)
    note = ServerNote(
        " ".join(sentence for sentence in sentences if sentence),
        "\n\n".join(block for block in (memories, passages) if block),
    )
    messages = [
        message
        if message.role == "assistant"
        else replace(message, content=quote_content(message.content, citable_ids))
        for message in request.messages
    ]
    return build_client_prompt(instructions, request.settings, messages, note)


def _render_passages(findings: Findings) -> str:
    return BLENDED.format(sources_block=render_sources(findings.passages, findings.description))


def _stream_to(draft: Draft, findings: Findings) -> OnToken:
    """Return a callback that adds tokens to the draft, without citations of notes that were not retrieved."""
    citations = CitationFilter({passage.note_id for passage in findings.passages})
    return lambda token: draft.add(citations.feed(make_storable(token)))
