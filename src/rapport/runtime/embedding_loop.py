"""Embed the messages of groups in the background, in a loop of its own."""

from __future__ import annotations

import asyncio
import time

import structlog

from rapport.domain.errors import RapportError
from rapport.ingest.embed_messages import MessageEmbedding
from rapport.runtime.tasks import wait_until_set

log = structlog.get_logger()

SWEEP_INTERVAL_SECONDS = 30.0
"""Seconds between two searches for messages that a crashed process or an import left without vectors."""
BATCH_DELAY_SECONDS = 0.5
"""Messages that arrive within this time are embedded together."""
MAX_BACKOFF_SECONDS = 60.0
LOG_INTERVAL_SECONDS = 300.0
"""Seconds between two warnings about the same unavailable embedder."""


class EmbeddingLoop:
    """Embeds batches of one group after the other. Only their order is in memory; the progress is in the database."""

    def __init__(self, index: MessageEmbedding) -> None:
        self._index = index
        self._waiting: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._pause = 1.0
        self._logged_at = float("-inf")

    def enqueue(self, conversation_id: str) -> None:
        """Embed the new messages of this conversation soon."""
        self._waiting[conversation_id] = None
        self._woken.set()

    def discard(self, conversation_id: str) -> None:
        """Remove a conversation that is being erased from the queue. Vectors in progress are not stored without their message."""
        self._waiting.pop(conversation_id, None)

    async def run(self) -> None:
        """Embed until cancelled. A failure is retried later."""
        sweep_at = 0.0
        while True:
            self._woken.clear()
            try:
                if time.monotonic() >= sweep_at:
                    await self._sweep()
                    sweep_at = time.monotonic() + SWEEP_INTERVAL_SECONDS
                while self._waiting and time.monotonic() < sweep_at:  # a long chat must not delay the sweep
                    await self._embed_next()
                    self._pause = 1.0
                await wait_until_set(self._woken, timeout=max(0.0, sweep_at - time.monotonic()))
                await asyncio.sleep(BATCH_DELAY_SECONDS)
            except RapportError as error:
                self._log_failure(str(error))
                await asyncio.sleep(self._pause)
                self._pause = min(self._pause * 2, MAX_BACKOFF_SECONDS)
            except Exception as error:  # an unexpected error with one group must not stop the others
                log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
                await asyncio.sleep(MAX_BACKOFF_SECONDS)

    async def _sweep(self) -> None:
        """Queue every group that has messages without vectors."""
        after = ""
        while groups := await self._index.list_pending_groups(after=after):
            self._waiting |= dict.fromkeys(groups)
            after = groups[-1]

    async def _embed_next(self) -> None:
        """Embed one batch of the first group in the queue; a group with more messages goes to the end."""
        conversation_id = next(iter(self._waiting))
        del self._waiting[conversation_id]
        try:
            if (await self._index.embed_next(conversation_id)).has_more:
                self._waiting.setdefault(conversation_id)
        except RapportError:
            self._waiting.setdefault(conversation_id)
            raise

    def _log_failure(self, reason: str) -> None:
        if time.monotonic() >= self._logged_at + LOG_INTERVAL_SECONDS:
            self._logged_at = time.monotonic()
            log.warning("messages.not_embedded", reason=reason, groups=len(self._waiting))
