"""One turn: an event in, a stored reply out. Safe to repeat after a crash at any line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from rapport.agent.failures import ModelFailed
from rapport.context.summaries import MAX_CHAT_HISTORY, is_crowded
from rapport.context.window import as_history, as_question, system_prompt
from rapport.domain import failpoints
from rapport.domain.agents import AGENTS, LIBRARIAN, AgentProfile
from rapport.domain.conversation import Message
from rapport.domain.draft import Draft
from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent, Finished, Reply
from rapport.domain.notes import Passage
from rapport.knowledge.retrieval import Retrieval, Retriever
from rapport.reply.citations import CitationFilter
from rapport.reply.quoting import quoted_message, quoted_passage
from rapport.reply.replies import checked, fallback, guarded
from rapport.reply.text import storable
from rapport.storage.database import Database
from rapport.storage.events import Events, Superseded
from rapport.storage.turns import Material, load

log = structlog.get_logger()

MAX_ATTEMPTS = 10
"""After so many tries an event gets the fallback: one message must not bring the process down for ever."""

TOO_LONG = frozenset({"http_400", "http_413"})
"""How providers refuse a conversation that is longer than their model can read."""


class Agent(Protocol):
    """What turns and what follows them need of an agent."""

    async def run(
        self,
        message: str | HumanMessage,
        *,
        thread_id: str,
        system: str,
        history: Sequence[BaseMessage],
        on_token: OnToken | None,
        fresh: bool,
        tags: dict[str, str],
    ) -> AIMessage: ...

    async def ask(self, system: str, text: str) -> str: ...


class OnToken(Protocol):
    def __call__(self, token: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What turns are made with."""

    database: Database
    agent: Agent
    retriever: Retriever


async def take_turn(event: ClaimedEvent, tools: Tools, *, draft: Draft, push: bool) -> Finished:
    """Answer one event: load, look up, ask, check, commit. No transaction is open while others think."""
    profile = AGENTS.get(event.agent_id, LIBRARIAN)
    clock = _Phases()
    async with tools.database.statement() as connection:
        material = await load(connection, event, limit=MAX_CHAT_HISTORY, embedder=tools.retriever.embedder.name)
    if material is None:
        raise Superseded("The conversation was deleted.")
    clock.passed("load")
    failpoints.reach("turn.loaded")
    draft.begin()
    try:
        if draft.cancelled:
            await asyncio.sleep(0)  # cancelled while it was loading: that takes effect here, and not at the commit
        reply = await _reply(event, material, profile, tools, draft=draft, clock=clock)
    except asyncio.CancelledError:
        if not _goes_on(draft):
            raise
        reply = Reply("", metadata={"cancelled": True})  # before the model was asked
    finally:
        draft.end()
    failpoints.reach("turn.answered")
    async with tools.database.statement() as connection:
        finished = await Events(connection).finish(event, reply, agent_name=profile.name, push=push)
    clock.passed("commit")
    failpoints.reach("turn.committed")
    # Summed up by the model, so only when it has just worked, or would if it were given less.
    can_sum_up = reply.model_failed is False or reply.was_refused
    crowded = can_sum_up and is_crowded([*material.earlier, material.asked, finished.reply])
    return replace(finished, crowded=crowded)


async def _reply(
    event: ClaimedEvent, material: Material, profile: AgentProfile, tools: Tools, *, draft: Draft, clock: _Phases
) -> Reply:
    """What to say: the guard's words, the model's, or the fallback's."""
    if event.attempts > MAX_ATTEMPTS:
        return fallback((), "attempts", f"tried {event.attempts - 1} times")
    try:
        retrieval = await _look_up(event, material, tools.retriever)
    except (Transient, Permanent) as error:  # trying again would only let people wait
        if profile.grounding == "strict":
            return fallback((), "retrieval", str(error))
        log.warning("chat.error", errorType="retrieval", message=str(error))
        retrieval = None
    audit: dict[str, object] = {}
    passages: list[Passage] = []
    if retrieval is not None:
        clock.passed("retrieval")
        audit = {"retrieved": retrieval.audit}
    if retrieval is not None and retrieval.is_relevant:
        passages = [quoted_passage(passage) for passage in retrieval.passages]
    if profile.grounding == "strict" and not passages:
        reply = guarded("low_similarity" if material.shelf.chunks else "no_notes")
    elif material.is_resting:
        reply = fallback(passages, "breaker", "the model failed too often in this conversation and rests for a while")
    else:
        reply = await _answer(event, material, profile, passages, agent=tools.agent, draft=draft)
        clock.passed("model")
    return replace(reply, metadata={**reply.metadata, **audit})


async def _look_up(event: ClaimedEvent, material: Material, retriever: Retriever) -> Retrieval | None:
    """What the notes say to the question; None when there are none to ask."""
    if not material.shelf.chunks:
        return None
    asker = _speaker(material.asked)
    earlier = [one.text for one in material.earlier if one.role == "user" and _speaker(one) == asker]
    found = await retriever.retrieve(event.owner_id, material.asked.text, earlier=earlier, shelf=material.shelf)
    log.info("chat.retrieval", ids=[one["id"] for one in found.audit], scores=[one["score"] for one in found.audit])
    return found


def _speaker(message: Message) -> str | None:
    """Who says it; somebody who has a new name is still the same."""
    return message.author.id if message.author else None


async def _answer(
    event: ClaimedEvent,
    material: Material,
    profile: AgentProfile,
    passages: Sequence[Passage],
    *,
    agent: Agent,
    draft: Draft,
) -> Reply:
    """The model's answer with its citations checked, while it streams and as a whole; or the fallback."""
    stream = CitationFilter({passage.note_id for passage in passages})
    try:
        answer = await agent.run(
            as_question(quoted_message(material.asked), event.kind),
            thread_id=event.id,
            system=system_prompt(profile, event.kind, passages),
            history=as_history(material.summary, [quoted_message(one) for one in material.earlier], event.kind),
            on_token=(lambda token: draft.add(stream.feed(storable(token)))) if draft.listeners else None,
            fresh=event.attempts == 1,
            tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
        )
    except ModelFailed as failure:
        refused = failure.kind in TOO_LONG
        return replace(fallback(passages, failure.kind, str(failure)), model_failed=True, was_refused=refused)
    except asyncio.CancelledError:
        if not _goes_on(draft):
            raise
        return replace(checked(draft.text, passages), metadata={"cancelled": True})
    reply = replace(checked(str(answer.text), passages), model_failed=False)
    if not reply.content:  # it named sources and said nothing
        return replace(fallback(passages, "empty", "nothing is left of the model's answer"), model_failed=True)
    draft.complete(str(reply.content))
    return reply


def _goes_on(draft: Draft) -> bool:
    """Whether the user has cancelled the reply, and not somebody this task: then what there is of it is stored."""
    current = asyncio.current_task()
    if draft.cancelled and current is not None:
        current.uncancel()
    return draft.cancelled


class _Phases:
    """Says how long each part of a turn took."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def passed(self, phase: str) -> None:
        now = time.perf_counter()
        log.info("chat.metrics", phase=phase, ms=round((now - self._at) * 1000, 2))
        self._at = now
