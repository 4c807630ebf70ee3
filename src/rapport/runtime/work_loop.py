"""Poll for work: claim queued events, take over those of dead workers, and put back orphaned ones."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from rapport.domain.errors import NotFound, Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.runtime.orphaned_events import OrphanedEvents
from rapport.runtime.running_turns import RunningTurns
from rapport.runtime.tasks import wait_until_set
from rapport.runtime.timer_loop import TimerLoop
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.work.events import Events
from rapport.storage.work.tool_calls import ToolCalls
from rapport.storage.work.workers import Workers

log = structlog.get_logger()

POLL_SECONDS = 1.0


class WorkLoop:
    """Polls every second, and at once after a hint."""

    def __init__(
        self, database: Database, running_turns: RunningTurns, timer_loop: TimerLoop, *, worker_id: str
    ) -> None:
        self._database = database
        self._running_turns = running_turns
        self._timer_loop = timer_loop
        self._worker_id = worker_id
        self._orphaned_events = OrphanedEvents(worker_id)
        self._has_more_follow_ups = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Poll at once: an event may be waiting."""
        self._woken.set()

    def handle_ended_follow_up(self) -> None:
        """Poll at once if a further follow-up waits for the slot that has become free."""
        if self._has_more_follow_ups:
            self._woken.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                await self._poll_work()
            except (Transient, Permanent) as error:
                log.warning("worker.poll_failed", reason=str(error))
            except Exception as error:
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
            await wait_until_set(self._woken, timeout=POLL_SECONDS)
            self._woken.clear()

    async def _poll_work(self) -> None:
        turns = self._running_turns
        if turns.is_stopping:
            return
        async with self._database.transaction() as connection:
            requeued = await Workers(connection).reap_dead_workers(except_for=self._worker_id)
        if requeued:
            log.warning("worker.took_over", events=requeued)
        await self._resume_stalled_turns()
        async with self._database.statement() as connection:
            events = Events(connection)
            for event_id in await events.list_cancelled(worker_id=self._worker_id):
                turns.cancel(event_id)
            await self._orphaned_events.put_back(events, turns.event_ids)
            free_slots = turns.free_slots
            claimed = await events.claim_waiting(worker_id=self._worker_id, limit=free_slots) if free_slots > 0 else []
            free_slots = min(free_slots - len(claimed), turns.free_follow_up_slots)
            follow_ups: list[ClaimedEvent] = []
            if free_slots > 0 and not self._timer_loop.is_firing_many:
                follow_ups = await events.claim_waiting(worker_id=self._worker_id, limit=free_slots, followups=True)
            self._has_more_follow_ups = len(follow_ups) >= free_slots
        await turns.begin_all([*claimed, *follow_ups])

    async def _resume_stalled_turns(self) -> None:
        """Queue the rest of turns whose last questions have expired, if another call of theirs is allowed."""
        async with self._database.statement() as connection:
            stalled = await ToolCalls(connection).list_stalled()
        for turn in stalled:
            with contextlib.suppress(NotFound):  # deleted meanwhile
                async with self._database.transaction() as connection:
                    await Conversations(connection).lock(turn.owner_id, turn.conversation_id)
                    await ToolCalls(connection).resume_stalled(turn)
