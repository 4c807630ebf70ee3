"""The delivery loop of a process: sends what the outbox holds, beside everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from rapport.deliver.outbox import Channel, deliver_waiting
from rapport.domain.errors import Permanent, Transient
from rapport.runtime.tasks import is_set
from rapport.storage.database import Database

log = structlog.get_logger()

POLL_SECONDS = 1.0


class Delivery:
    """Sends one message after the other: a channel that hangs holds up nothing but this."""

    def __init__(self, database: Database, channels: Mapping[str, Channel], *, worker_id: str) -> None:
        self._database = database
        self._channels = channels
        self._worker_id = worker_id
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is something to send."""
        self._woken.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            try:
                while await deliver_waiting(self._database, self._channels, worker_id=self._worker_id):
                    pass
            except (Transient, Permanent) as error:
                log.warning("deliver.waiting", reason=str(error))
            except Exception as error:  # whatever went wrong with one message, the others are to be sent
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
            await is_set(self._woken, timeout=POLL_SECONDS)
            self._woken.clear()
