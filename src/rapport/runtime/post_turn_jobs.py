"""Work that follows a turn: beside the turns, one job at a time per conversation, given up without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rapport.agents.profiles import get_agent
from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.turns.reflect import PAUSE_SECONDS, reflect
from rapport.turns.steps import TurnDeps
from rapport.turns.summarize import summarize

log = structlog.get_logger()

PATIENCE = 5.0
"""Seconds that a turn waits for such work in its conversation; then it goes without it."""
AT_ONCE = 4
"""Conversations at a time, unless somebody waits: the model's time belongs to those who do."""


class PostTurnJobs:
    """What is done after a reply: the conversation is summed up when it has become long, and thought about when it pauses."""

    def __init__(self, tools: TurnDeps) -> None:
        self._tools = tools
        self._summaries = _Jobs("summary")
        self._reflections = _Jobs("reflection")

    def close(self) -> list[asyncio.Task[None]]:
        """Begin nothing of what waits; returns what is under way, for whoever closes to end it."""
        self._reflections.give_up_waiting()
        return [*self._summaries.tasks.values(), *self._reflections.tasks.values()]

    def begin(self, event: ClaimedEvent, *, crowded: bool) -> None:
        """Something was just said to this event, and nobody waits for more."""
        tools = self._tools
        if crowded:
            where = (event.owner_id, event.conversation_id)
            self._summaries.begin(event, lambda: summarize(*where, database=tools.database, writer=tools.agent))
        profile = get_agent(event.agent_id)
        # A model that calls tools can also answer in a given form; for another one the rules have decided.
        if tools.agent.calls_tools and (profile.autonomy is not None or profile.remembers):
            self._reflections.begin(event, lambda: reflect(event, profile, tools), after=PAUSE_SECONDS)

    async def settled(self, conversation_id: str) -> None:
        """Until no summary of the conversation is being made here, for a moment: its next turn goes with it, not beside it.

        Who answers at leisure never waits for this; who is faster than the model waits as long as it takes, within limits.
        """
        if (task := self._summaries.tasks.get(conversation_id)) is not None:
            self._summaries.hurry(conversation_id)
            await asyncio.wait({task}, timeout=PATIENCE)

    def give_way(self, conversation_id: str) -> None:
        """Somebody has spoken: the pause is over."""
        self._reflections.give_up(conversation_id)

    def give_up(self, conversation_id: str) -> None:
        """The conversation is being erased: nothing more of it goes to the model."""
        self._summaries.give_up(conversation_id)
        self._reflections.give_up(conversation_id)


class _Jobs:
    """Runs one kind of job in tasks of its own. What it leaves undone is noticed again after the next turn."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._at_work: set[asyncio.Task[None]] = set()
        self._line: dict[asyncio.Task[None], asyncio.Event] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]], *, after: float = 0.0) -> None:
        """Do this for the conversation of the event, after some seconds, unless that is under way."""
        if event.conversation_id in self.tasks or event.conversation_id in self._waiting:
            return
        if after:
            # Not a task that sleeps: nearly all of these are given up because somebody speaks, and a timer costs little.
            timer = asyncio.get_running_loop().call_later(after, self._start, event, job)
            self._waiting[event.conversation_id] = timer
        else:
            self._start(event, job)

    def hurry(self, conversation_id: str) -> None:
        """Somebody waits for it: it stands in line no longer."""
        if (task := self.tasks.get(conversation_id)) is not None:
            self._call(task)

    def give_up(self, conversation_id: str) -> None:
        if (timer := self._waiting.pop(conversation_id, None)) is not None:
            timer.cancel()
        if (task := self.tasks.pop(conversation_id, None)) is not None:
            task.cancel()

    def give_up_waiting(self) -> None:
        """Begin nothing of what has yet to begin."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _start(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]]) -> None:
        self._waiting.pop(event.conversation_id, None)
        called = asyncio.Event()
        task = asyncio.create_task(self._run(event, job, called), name=f"{self._what} {event.conversation_id}")
        task.add_done_callback(lambda ended: self._over(event.conversation_id, ended))
        self.tasks[event.conversation_id] = task
        self._line[task] = called
        if len(self._at_work) < AT_ONCE:
            self._call(task)

    def _call(self, task: asyncio.Task[None]) -> None:
        if (called := self._line.pop(task, None)) is not None:
            self._at_work.add(task)
            called.set()

    async def _run(self, event: ClaimedEvent, job: Callable[[], Awaitable[None]], called: asyncio.Event) -> None:
        structlog.contextvars.bind_contextvars(conversationId=event.conversation_id, agentId=event.agent_id)
        try:
            await called.wait()
            await job()
        except (Transient, Permanent) as error:
            log.warning("chat.error", errorType=type(error).__name__, message=f"no {self._what} this time: {error}")
        except Exception as error:
            log.exception("chat.error", errorType=type(error).__name__, message=str(error))

    def _over(self, conversation_id: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(conversation_id) is task:
            del self.tasks[conversation_id]
        self._at_work.discard(task)
        self._line.pop(task, None)
        if self._line and len(self._at_work) < AT_ONCE:
            self._call(next(iter(self._line)))
