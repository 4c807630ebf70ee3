"""The timekeeper: turns timers into events when they are due, on time and in batches. Any number of processes may keep time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.metrics import Metrics
from rapport.runtime.tasks import is_set
from rapport.storage.database import Database
from rapport.storage.events import Events
from rapport.storage.timers import Fired, Timers

log = structlog.get_logger()

BATCH = 1_000
POLL_SECONDS = 1.0
"""The longest sleep: a timer that another process has set is known by then, and none is due sooner than that."""
SOONEST = 0.005
EXPIRES_AFTER = 3_600.0
"""Seconds after which a timer that nobody fired is dropped: whoever it was for is somewhere else by now."""


class Timekeeper:
    """Sleeps until the next timer is due by the database's clock; how long that is, the monotonic clock tells."""

    def __init__(
        self,
        database: Database,
        *,
        metrics: Metrics,
        on_fired: Callable[[], None],
        expires_after: float = EXPIRES_AFTER,
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._on_fired = on_fired
        self._expires_after = expires_after
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A timer may have become due sooner than was known."""
        self._woken.set()

    async def run(self) -> None:
        """Keep time until cancelled."""
        while True:
            try:
                pause = await self._fire()
            except (Transient, Permanent) as error:
                log.warning("timers.waiting", reason=str(error))
                pause = POLL_SECONDS
            await is_set(self._woken, timeout=pause)
            self._woken.clear()

    async def _fire(self) -> float:
        """Fire everything that is due; returns how long to sleep."""
        while True:
            async with self._database.statement() as connection:
                gone = await Timers(connection).fire(limit=BATCH, late=self._expires_after)
                if any(timer.state == "fired" for timer in gone):
                    await Events(connection).hint("queued")
            for timer in gone:
                self._note(timer)
            if gone:
                self._on_fired()
            if len(gone) < BATCH:
                break
        async with self._database.statement() as connection:
            following = await Timers(connection).next_due()
        return POLL_SECONDS if following is None else min(max(following, SOONEST), POLL_SECONDS)

    def _note(self, timer: Fired) -> None:
        where = {"conversationId": timer.conversation_id, "timerId": timer.id, "trigger_type": timer.trigger_type}
        if timer.state == "expired":
            self._metrics.expired()
            log.warning("timer.expired", **where, late_seconds=round(timer.lateness, 1))
        elif timer.state == "superseded":
            log.info("timer.superseded", **where)
        else:
            self._metrics.fired(timer.lateness)
            log.info("timer.fired", **where, late_ms=round(timer.lateness * 1000, 1))
