"""Run the jobs that follow a turn, one per kind and conversation. A job can be cancelled at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.domain.usage import UsageMeter
from rapport.turns.deps import TurnDeps
from rapport.turns.reflect import PAUSE_SECONDS, reflect
from rapport.turns.summarize import summarize
from rapport.turns.usage import find_metered_writer, settle_usage, store_usage

log = structlog.get_logger()

MAX_RUNNING = 4
"""The number of jobs of a kind that run at once, so that they leave the model to turns."""


class PostTurnJobs:
    """Jobs after a reply: summarize a conversation that has become long, and reflect on it when it pauses."""

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps
        self._summaries = _Jobs("summary")
        self._reflections = _Jobs("reflection")

    def close(self) -> list[asyncio.Task[None]]:
        """Cancel scheduled jobs; return the tasks of the others, for the caller to end."""
        self._reflections.cancel_all_scheduled()
        return [*self._summaries.tasks.values(), *self._reflections.tasks.values()]

    def begin(self, event: ClaimedEvent, *, needs_summary: bool, is_open: bool) -> None:
        """Start the jobs that follow this event's reply. Call it when no further event of the conversation waits.

        `is_open`: the rules have planned a follow-up.
        """
        deps = self._deps
        if needs_summary:
            self._summaries.begin(event, lambda: self._summarize(event))
        profile = deps.agents.find_known(event.owner_id, event.agent_id)
        model = profile and deps.models.find(profile.model)
        if profile is None or model is None:
            return
        mode = deps.get_reflection(profile)
        # Only a model that calls tools can answer in the form that a reflection needs. For others the rules' plan stays.
        can_reflect = model.calls_tools and (profile.autonomy is not None or profile.remembers)
        if can_reflect and (mode == "always" or (mode == "when_open" and is_open)):
            self._reflections.begin(event, lambda: reflect(event, profile, deps), after=PAUSE_SECONDS)

    def end_pause(self, conversation_id: str) -> None:
        """Cancel the reflection, which waits for a pause, of a conversation in which somebody has written."""
        self._reflections.cancel(conversation_id)

    def cancel(self, conversation_id: str) -> None:
        """Cancel every job of a conversation that is being erased."""
        self._summaries.cancel(conversation_id)
        self._reflections.cancel(conversation_id)

    async def _summarize(self, event: ClaimedEvent) -> None:
        deps, meter = self._deps, UsageMeter()
        profile = await deps.agents.get_known(event.owner_id, event.agent_id)
        if (spent := await deps.budgets.find_spent_of_job(event.owner_id, profile)) is not None:
            log.info("usage.budget_spent", job="summary", kind=spent.kind)  # it is due again after the next answer
            return
        try:
            await summarize(
                event.owner_id,
                event.conversation_id,
                database=deps.database,
                find_writer=partial(find_metered_writer, profile, deps, meter),
                max_history=deps.get_max_chat_history(profile),
            )
        finally:
            await store_usage(event, deps, settle_usage(event, deps, meter))


class _Jobs:
    """Runs one kind of job in tasks of its own. A job that was not finished is started again after the next turn."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._running: set[asyncio.Task[None]] = set()
        self._queued: dict[asyncio.Task[None], asyncio.Event] = {}
        self._scheduled: dict[str, asyncio.TimerHandle] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]], *, after: float = 0.0) -> None:
        """Run the job for the event's conversation in `after` seconds, unless one is scheduled or running."""
        if event.conversation_id in self.tasks or event.conversation_id in self._scheduled:
            return
        if after:
            # A timer instead of a sleeping task: it costs less, and nearly all are cancelled by a new message.
            timer = asyncio.get_running_loop().call_later(after, self._start, event, job)
            self._scheduled[event.conversation_id] = timer
        else:
            self._start(event, job)

    def cancel(self, conversation_id: str) -> None:
        self.cancel_scheduled(conversation_id)
        if (task := self.tasks.pop(conversation_id, None)) is not None:
            task.cancel()

    def cancel_scheduled(self, conversation_id: str) -> None:
        """Cancel the conversation's job if it has not started."""
        if (timer := self._scheduled.pop(conversation_id, None)) is not None:
            timer.cancel()

    def cancel_all_scheduled(self) -> None:
        """Cancel the jobs that have not started."""
        for timer in self._scheduled.values():
            timer.cancel()
        self._scheduled.clear()

    def _start(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]]) -> None:
        self._scheduled.pop(event.conversation_id, None)
        may_start = asyncio.Event()
        task = asyncio.create_task(self._run(event, job, may_start), name=f"{self._kind} {event.conversation_id}")
        task.add_done_callback(lambda ended: self._remove(event.conversation_id, ended))
        self.tasks[event.conversation_id] = task
        self._queued[task] = may_start
        if len(self._running) < MAX_RUNNING:
            self._release(task)

    def _release(self, task: asyncio.Task[None]) -> None:
        if (may_start := self._queued.pop(task, None)) is not None:
            self._running.add(task)
            may_start.set()

    async def _run(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]], may_start: asyncio.Event) -> None:
        structlog.contextvars.bind_contextvars(conversationId=event.conversation_id, agentId=event.agent_id)
        try:
            await may_start.wait()
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
