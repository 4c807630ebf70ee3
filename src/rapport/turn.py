"""One turn: an event in, a stored reply out. Safe to repeat after a crash at any line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import structlog
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from rapport.agent.failures import ModelFailed
from rapport.context.window import MAX_CHAT_HISTORY, as_chat_message, as_history, system_prompt
from rapport.domain import failpoints
from rapport.domain.agents import AGENTS, LIBRARIAN, AgentProfile
from rapport.domain.conversation import Message
from rapport.domain.draft import Draft
from rapport.domain.event import ClaimedEvent, Finished, Reply
from rapport.reply.fallback import fallback_text
from rapport.reply.text import storable
from rapport.storage.database import Database
from rapport.storage.events import Events, Superseded
from rapport.storage.messages import Messages

log = structlog.get_logger()

MAX_ATTEMPTS = 10
"""After so many tries an event gets the fallback: one message must not bring the process down for ever."""


class Agent(Protocol):
    """What a turn needs of an agent."""

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


class OnToken(Protocol):
    def __call__(self, token: str, /) -> None: ...


async def take_turn(event: ClaimedEvent, *, database: Database, agent: Agent, draft: Draft, push: bool) -> Finished:
    """Answer one event: load, ask, commit. No transaction is open while the model thinks."""
    profile = AGENTS.get(event.agent_id, LIBRARIAN)
    clock = _Phases()
    async with database.statement() as connection:
        window = await Messages(connection).window(
            event.owner_id, event.conversation_id, upto=event.id, limit=MAX_CHAT_HISTORY
        )
    if not window:
        raise Superseded("The conversation was deleted.")
    clock.passed("load")
    failpoints.reach("turn.loaded")
    reply = await _answer(event, window, profile=profile, agent=agent, draft=draft)
    clock.passed("model")
    failpoints.reach("turn.answered")
    async with database.statement() as connection:
        finished = await Events(connection).finish(event, reply, agent_name=profile.name, push=push)
    clock.passed("commit")
    failpoints.reach("turn.committed")
    return finished


async def _answer(
    event: ClaimedEvent, window: Sequence[Message], *, profile: AgentProfile, agent: Agent, draft: Draft
) -> Reply:
    """What to say: the model's answer, what there is of it if it was cancelled, or the fallback."""
    if event.attempts > MAX_ATTEMPTS:
        return _fallback("attempts", f"tried {event.attempts - 1} times")
    draft.begin()
    try:
        answer = await agent.run(
            _as_human(window[-1], event),
            thread_id=event.id,
            system=system_prompt(profile, event.kind),
            history=as_history(window[:-1], event.kind),
            on_token=draft.add if draft.listeners else None,
            fresh=event.attempts == 1,
            tags={"conversation_id": event.conversation_id, "agent_id": event.agent_id},
        )
    except ModelFailed as failure:
        return _fallback(failure.kind, str(failure))
    except asyncio.CancelledError:
        if not draft.cancelled:
            raise
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        return Reply(storable(draft.text), metadata={"cancelled": True})
    finally:
        draft.end()
    return Reply(storable(str(answer.text)))


def _as_human(message: Message, event: ClaimedEvent) -> HumanMessage:
    current = as_chat_message(message, event.kind)
    assert isinstance(current, HumanMessage)
    return current


def _fallback(kind: str, reason: str) -> Reply:
    log.warning("chat.error", errorType=kind, message=reason)
    return Reply(fallback_text(), metadata={"fallback_used": True})


class _Phases:
    """Says how long each part of a turn took."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def passed(self, phase: str) -> None:
        now = time.perf_counter()
        log.info("chat.metrics", phase=phase, ms=round((now - self._at) * 1000, 2))
        self._at = now
