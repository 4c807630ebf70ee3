"""Fire timers: turn due timers into events, in batches. Any number of processes may do so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.metrics import Metrics
from rapport.runtime.background import run_when_due
from rapport.storage.database import Database
from rapport.storage.followups.timers import FiredTimer, Timers
from rapport.storage.work.events import Events

log = structlog.get_logger()

BATCH = 1_000
MAX_FIRED_AT_ONCE = 20_000
"""The number of timers that are fired before the first of their turns begins."""
POLL_SECONDS = 1.0
"""The longest sleep. A timer that another process sets is due after this time or later, so it is found in time."""
MIN_PAUSE_SECONDS = 0.005


class TimerLoop:
    """Sleeps until the next timer is due. The database's clock gives the duration, the monotonic clock measures it."""

    def __init__(self, database: Database, *, metrics: Metrics, on_fired: Callable[[], None]) -> None:
        self._database = database
        self._metrics = metrics
        self._on_fired = on_fired
        self._woken = asyncio.Event()
        self.is_firing_many = False
        """True while many timers are due at once: their turns begin when all of them have fired."""

    def wake(self) -> None:
        """Check for due timers at once: the next due time may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Fire timers until cancelled."""
        await run_when_due("timers", self._fire_due, self._woken, retry_seconds=POLL_SECONDS)

    async def _fire_due(self) -> float:
        """Fire all due timers; return the seconds to sleep."""
        while await self._fire_batches():
            pass
        async with self._database.statement() as connection:
            seconds_to_next = await Timers(connection).get_seconds_to_next()
        return POLL_SECONDS if seconds_to_next is None else min(max(seconds_to_next, MIN_PAUSE_SECONDS), POLL_SECONDS)

    async def _fire_batches(self) -> bool:
        """Fire up to MAX_FIRED_AT_ONCE timers, then begin their turns and log them; return True if more are due."""
        fired: list[FiredTimer] = []
        has_more = True
        try:
            while has_more and len(fired) < MAX_FIRED_AT_ONCE:
                async with self._database.statement() as connection:
                    batch = await Timers(connection).fire(limit=BATCH)
                fired += batch
                has_more = self.is_firing_many = len(batch) == BATCH
        finally:
            self.is_firing_many = False
            if fired:
                await self._report(fired)
        return has_more

    async def _report(self, fired: Sequence[FiredTimer]) -> None:
        self._on_fired()
        if any(timer.state == "fired" for timer in fired):
            with contextlib.suppress(Transient, Permanent):  # if it fails, the others find the events by polling
                async with self._database.statement() as connection:
                    await Events(connection).hint("queued")
        for number, timer in enumerate(fired, 1):
            self._log_fired(timer)
            if number % 100 == 0:
                await asyncio.sleep(0)  # let turns run in between

    def _log_fired(self, timer: FiredTimer) -> None:
        fields = {"conversationId": timer.conversation_id, "timerId": timer.id, "trigger_type": timer.trigger_type}
        if timer.state == "expired":
            self._metrics.count_expired()
            log.warning("timer.expired", **fields, late_seconds=round(timer.lateness_seconds, 1))
        elif timer.state == "superseded":
            log.info("timer.superseded", **fields)
        else:
            self._metrics.count_fired(timer.lateness_seconds)
            log.info("timer.fired", **fields, late_ms=round(timer.lateness_seconds * 1000, 1))
