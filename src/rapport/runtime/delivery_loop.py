"""The delivery of a process: sends what the outbox holds, to several conversations at once, beside everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import structlog

from rapport.delivery.sender import claim_due, deliver
from rapport.domain.channel import OutgoingChannel
from rapport.domain.errors import Permanent, Transient
from rapport.domain.outgoing import Notice
from rapport.runtime.tasks import end_all, wait_until_set
from rapport.storage.database import Database
from rapport.storage.work.outbox import Effect, Outbox

log = structlog.get_logger()

POLL_SECONDS = 1.0
MAX_CONCURRENT_SENDS = 8
"""Conversations that are sent to at once: one that hangs holds up nobody else."""


class DeliveryLoop:
    """Sends whatever is due, in order within each conversation."""

    def __init__(self, database: Database, channels: Mapping[str, OutgoingChannel], *, worker_id: str) -> None:
        self._database = database
        self._channels = channels
        self._worker_id = worker_id
        self._woken = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._claiming = asyncio.Lock()
        self._is_draining = False

    def wake(self) -> None:
        """Look at once for something to send."""
        self._woken.set()

    async def post_notice(
        self, owner_id: str, conversation_id: str, notice: Notice, *, name: str, channel: str
    ) -> None:
        """Queue a notice for sending. The same name again sends nothing."""
        async with self._database.statement() as connection:
            await Outbox(connection).post(owner_id, conversation_id, notice, name=name, channel=channel)
        self._woken.set()

    async def drain(self, seconds: float) -> None:
        """Begin nothing new, and let what is under way arrive: cut off, nobody would know whether it has."""
        self._is_draining = True
        end = time.monotonic() + seconds
        async with self._claiming:  # what has just been claimed is under way, too
            pass
        if self._sending:
            await asyncio.wait(list(self._sending.values()), timeout=max(end - time.monotonic(), 0.0))

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            while True:
                try:
                    while await self._start_sends():
                        pass
                except (Transient, Permanent) as error:
                    log.warning("deliver.waiting", reason=str(error))
                except Exception as error:  # whatever went wrong with one message, the others are to be sent
                    log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
                await wait_until_set(self._woken, timeout=POLL_SECONDS)
                self._woken.clear()
        finally:
            await end_all(list(self._sending.values()))

    async def _start_sends(self) -> bool:
        """Begin to send what is due, if anything is and there are lanes; whether there was."""
        async with self._claiming:
            under_way, free = self._sending, MAX_CONCURRENT_SENDS - len(self._sending)
            if self._is_draining or free <= 0:
                return False
            who = self._worker_id
            claimed = await claim_due(self._database, self._channels, worker_id=who, limit=free, sending=under_way)
            for effect in claimed:
                under_way[effect.id] = asyncio.create_task(self._deliver(effect), name=f"deliver {effect.id}")
            return bool(claimed)

    async def _deliver(self, effect: Effect) -> None:
        try:
            await deliver(self._database, self._channels, effect)
        except Permanent as error:
            # What became of it can't be marked: it counts as unknown.
            log.error("deliver.unmarked", conversationId=effect.conversation_id, reason=str(error))
        finally:
            del self._sending[effect.id]
            self._woken.set()  # the next one of that conversation may go, and there is a lane
