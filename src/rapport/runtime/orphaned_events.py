"""Put back orphaned events: the database assigns them to a worker that does not run them."""

from __future__ import annotations

import time
from collections.abc import Collection

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.domain.event import ClaimedEvent
from rapport.storage.database import Database
from rapport.storage.work.events import Events

log = structlog.get_logger()

ORPHANED_AFTER_SECONDS = 1.0


class OrphanedEvents:
    """Puts back events that stay unknown to this process for ORPHANED_AFTER_SECONDS: a new event is unknown for a moment."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._unknown_since: dict[str, float] = {}

    async def put_back(self, events: Events, running: Collection[str]) -> None:
        """Put back the events that are this worker's in the database and are not `running` here."""
        now = time.monotonic()
        unknown = await events.list_running(self._worker_id) - set(running)
        self._unknown_since = {event_id: self._unknown_since.get(event_id, now) for event_id in unknown}
        orphaned = {
            event_id for event_id, since in self._unknown_since.items() if now - since >= ORPHANED_AFTER_SECONDS
        }
        if orphaned:
            await events.requeue_orphaned(self._worker_id, orphaned)
            log.warning("worker.orphaned_events", events=len(orphaned))


async def put_back(database: Database, event: ClaimedEvent, reason: str, *, delay: float) -> None:
    """Requeue an event of this process, due in `delay` seconds."""
    try:
        async with database.transaction() as connection:
            events = Events(connection)
            if await events.put_back(event, error=reason, delay=delay):
                await events.hint("queued")
    except (Transient, Permanent) as error:
        # The event stays assigned to this worker but does not run: OrphanedEvents puts it back.
        log.warning("turn.put_back_failed", conversationId=event.conversation_id, reason=str(error))
