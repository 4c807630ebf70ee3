"""Deliver reminders when they are due, in batches. Any number of processes may do so; no model is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from rapport.domain.ids import new_id
from rapport.metrics import Metrics
from rapport.reminders.fire import fire
from rapport.runtime.background import run_when_due
from rapport.storage.database import Database
from rapport.storage.reminders.due_reminders import Delivery, DueReminder, DueReminders

log = structlog.get_logger()

BATCH = 500
POLL_SECONDS = 1.0
"""The longest sleep: a reminder that another process sets is found in time."""
RELEASE_SECONDS = 5.0
"""The interval at which reminders of muted and unreachable conversations are looked at."""
MIN_PAUSE_SECONDS = 0.005


class ReminderLoop:
    """Sleeps until the next reminder is due. The database's clock gives the duration, the monotonic clock measures it."""

    def __init__(
        self,
        database: Database,
        *,
        metrics: Metrics,
        channels: Collection[str],
        on_delivered: Callable[[Collection[str]], None],
    ) -> None:
        """`channels` send messages to a platform; `on_delivered` is called with the ids of conversations that have a new message."""
        self._database = database
        self._metrics = metrics
        self._channels = channels
        self._on_delivered = on_delivered
        self._woken = asyncio.Event()
        self._released_at = 0.0

    def wake(self) -> None:
        """Check for due reminders at once: the next due time may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Deliver reminders until cancelled."""
        await run_when_due("reminders", self._deliver_due, self._woken, retry_seconds=POLL_SECONDS)

    async def _deliver_due(self) -> float:
        """Deliver all due reminders; return the seconds to sleep."""
        if time.monotonic() - self._released_at >= RELEASE_SECONDS:
            async with self._database.statement() as connection:
                released = await DueReminders(connection).release(limit=BATCH)
            if released < BATCH:
                self._released_at = time.monotonic()
        while await self._deliver_batch() == BATCH:
            pass
        async with self._database.statement() as connection:
            seconds_to_next = await DueReminders(connection).get_seconds_to_next()
        return POLL_SECONDS if seconds_to_next is None else min(max(seconds_to_next, MIN_PAUSE_SECONDS), POLL_SECONDS)

    async def _deliver_batch(self) -> int:
        async with self._database.transaction() as connection:
            reminders = DueReminders(connection)
            due = await reminders.load(limit=BATCH)
            deliveries = [_decide(each) for each in due]
            if deliveries:
                await reminders.deliver(deliveries, channels=self._channels)
        for each, delivery in zip(due, deliveries, strict=True):
            self._report(each, delivery)
        if said := {each.reminder.conversation_id for each in deliveries if each.content is not None}:
            self._on_delivered(said)
        return len(due)

    def _report(self, due: DueReminder, delivery: Delivery) -> None:
        fields = {"conversationId": due.reminder.conversation_id, "reminderId": due.reminder.id}
        if delivery.content is None:
            log.info("reminder.held", **fields, state=delivery.reminder.state)
            return
        late = (due.now - due.reminder.due_at).total_seconds()
        self._metrics.count_reminder(late)
        log.info("reminder.sent", **fields, late_ms=round(late * 1000, 1))


def _decide(due: DueReminder) -> Delivery:
    reminder = due.reminder
    if due.is_closed:
        return Delivery(replace(reminder, state="held"))
    fired = fire(reminder, now=due.now, own_zone=due.own_zone, quiet=due.quiet, is_group=due.is_group)
    if fired.content is None:
        return Delivery(fired.reminder)
    metadata = {"reminder": {"id": reminder.id, "due_at": fired.occurrence.isoformat()}}
    return Delivery(fired.reminder, new_id(), fired.content, metadata)
