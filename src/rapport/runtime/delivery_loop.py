"""Send the rows of the outbox, to several conversations at once, in a loop of its own."""

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
"""The number of conversations that are sent to at once, so that one that hangs does not block the others."""


class DeliveryLoop:
    """Sends due outbox rows, in order within each conversation."""

    def __init__(self, database: Database, channels: Mapping[str, OutgoingChannel], *, worker_id: str) -> None:
        self._database = database
        self._channels = channels
        self._worker_id = worker_id
        self._woken = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._claiming = asyncio.Lock()
        self._is_draining = False

    def wake(self) -> None:
        """Poll the outbox at once."""
        self._woken.set()

    async def post_notice(
        self, owner_id: str, conversation_id: str, notice: Notice, *, name: str, channel: str
    ) -> None:
        """Queue a notice for sending, once per name."""
        async with self._database.statement() as connection:
            await Outbox(connection).post(owner_id, conversation_id, notice, name=name, channel=channel)
        self._woken.set()

    async def drain(self, seconds: float) -> None:
        """Start no new sends, and wait for running ones: an interrupted send is unconfirmed."""
        self._is_draining = True
        end = time.monotonic() + seconds
        async with self._claiming:  # wait for a claim in progress, whose rows are sent too
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
                    log.warning("deliver.retrying", reason=str(error))
                except Exception as error:  # an unexpected error must not stop the delivery of other messages
                    log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
                await wait_until_set(self._woken, timeout=POLL_SECONDS)
                self._woken.clear()
        finally:
            await end_all(list(self._sending.values()))

    async def _start_sends(self) -> bool:
        """Claim due rows up to the number of free slots and start sending them; return True if there were any."""
        async with self._claiming:
            sending, free_slots = self._sending, MAX_CONCURRENT_SENDS - len(self._sending)
            if self._is_draining or free_slots <= 0:
                return False
            claimed = await claim_due(
                self._database, self._channels, worker_id=self._worker_id, limit=free_slots, sending=sending
            )
            for effect in claimed:
                sending[effect.id] = asyncio.create_task(self._deliver(effect), name=f"deliver {effect.id}")
            return bool(claimed)

    async def _deliver(self, effect: Effect) -> None:
        try:
            await deliver(self._database, self._channels, effect)
        except Permanent as error:
            # The result could not be stored: the row counts as unconfirmed.
            log.error("deliver.mark_failed", conversationId=effect.conversation_id, reason=str(error))
        finally:
            del self._sending[effect.id]
            self._woken.set()  # a slot is free, and the conversation's next row may be sent
