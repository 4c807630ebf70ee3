"""Work that follows a turn: beside the turns, one job at a time per conversation, given up without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rapport.agents.profiles import get_agent
from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.turns.deps import TurnDeps
from rapport.turns.reflect import PAUSE_SECONDS, reflect
from rapport.turns.summarize import summarize

log = structlog.get_logger()

SUMMARY_WAIT_SECONDS = 5.0
"""Seconds that a turn waits for such work in its conversation; then it goes without it."""
MAX_RUNNING = 4
"""Conversations at a time, unless somebody waits: the model's time belongs to those who do."""


class PostTurnJobs:
    """Jobs after a reply: summarize a conversation that has become long, and reflect on it when it pauses."""

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps
        self._summaries = _Jobs("summary")
        self._reflections = _Jobs("reflection")

    def close(self) -> list[asyncio.Task[None]]:
        """Begin nothing of what waits; returns what is under way, for whoever closes to end it."""
        self._reflections.cancel_scheduled()
        return [*self._summaries.tasks.values(), *self._reflections.tasks.values()]

    def begin(self, event: ClaimedEvent, *, needs_summary: bool) -> None:
        """Begin the jobs that follow this event's reply, when no further event waits."""
        deps = self._deps
        if needs_summary:
            where = (event.owner_id, event.conversation_id)
            self._summaries.begin(event, lambda: summarize(*where, database=deps.database, writer=deps.agent))
        profile = get_agent(event.agent_id)
        # A model that calls tools can also answer in a given form; for another one the rules have decided.
        if deps.agent.calls_tools and (profile.autonomy is not None or profile.remembers):
            self._reflections.begin(event, lambda: reflect(event, profile, deps), after=PAUSE_SECONDS)

    async def wait_for_summary(self, conversation_id: str) -> None:
        """Until no summary of the conversation is being made here, for a moment: its next turn goes with it, not beside it.

        Who answers at leisure never waits for this; who is faster than the model waits as long as it takes, within limits.
        """
        if (task := self._summaries.tasks.get(conversation_id)) is not None:
            self._summaries.hurry(conversation_id)
            await asyncio.wait({task}, timeout=SUMMARY_WAIT_SECONDS)

    def cancel_reflection(self, conversation_id: str) -> None:
        """Cancel the reflection of a conversation in which somebody has written."""
        self._reflections.cancel(conversation_id)

    def cancel(self, conversation_id: str) -> None:
        """Cancel every job of a conversation that is being erased."""
        self._summaries.cancel(conversation_id)
        self._reflections.cancel(conversation_id)


class _Jobs:
    """Runs one kind of job in tasks of its own. What it leaves undone is noticed again after the next turn."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._running: set[asyncio.Task[None]] = set()
        self._queued: dict[asyncio.Task[None], asyncio.Event] = {}
        self._scheduled: dict[str, asyncio.TimerHandle] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]], *, after: float = 0.0) -> None:
        """Do this for the conversation of the event, after some seconds, unless that is under way."""
        if event.conversation_id in self.tasks or event.conversation_id in self._scheduled:
            return
        if after:
            # Not a task that sleeps: nearly all of these are given up because somebody speaks, and a timer costs little.
            timer = asyncio.get_running_loop().call_later(after, self._start, event, job)
            self._scheduled[event.conversation_id] = timer
        else:
            self._start(event, job)

    def hurry(self, conversation_id: str) -> None:
        """Start the queued job at once: a turn waits for it."""
        if (task := self.tasks.get(conversation_id)) is not None:
            self._release(task)

    def cancel(self, conversation_id: str) -> None:
        if (timer := self._scheduled.pop(conversation_id, None)) is not None:
            timer.cancel()
        if (task := self.tasks.pop(conversation_id, None)) is not None:
            task.cancel()

    def cancel_scheduled(self) -> None:
        """Begin nothing of what has yet to begin."""
        for timer in self._scheduled.values():
            timer.cancel()
        self._scheduled.clear()

    def _start(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]]) -> None:
        self._scheduled.pop(event.conversation_id, None)
        released = asyncio.Event()
        task = asyncio.create_task(self._run(event, job, released), name=f"{self._kind} {event.conversation_id}")
        task.add_done_callback(lambda ended: self._remove(event.conversation_id, ended))
        self.tasks[event.conversation_id] = task
        self._queued[task] = released
        if len(self._running) < MAX_RUNNING:
            self._release(task)

    def _release(self, task: asyncio.Task[None]) -> None:
        if (released := self._queued.pop(task, None)) is not None:
            self._running.add(task)
            released.set()

    async def _run(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]], released: asyncio.Event) -> None:
        structlog.contextvars.bind_contextvars(conversationId=event.conversation_id, agentId=event.agent_id)
        try:
            await released.wait()
            await job()
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType=type(error).__name__, message=f"no {self._kind} this time: {error}")
        except Exception as error:
            log.exception("chat.error", errorType=type(error).__name__, message=str(error))

    def _remove(self, conversation_id: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(conversation_id) is task:
            del self.tasks[conversation_id]
        self._running.discard(task)
        self._queued.pop(task, None)
        if self._queued and len(self._running) < MAX_RUNNING:
            self._release(next(iter(self._queued)))
