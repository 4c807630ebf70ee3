"""Start the embedded Postgres again when its process has ended. See ADR 41."""

from __future__ import annotations

import asyncio
import time

import structlog

from rapport.storage.postgres.embedded import EmbeddedPostgres, EmbeddedPostgresError

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
STABLE_SECONDS = 60.0
"""A server that has run this long is restarted without a pause."""


class PostgresRestart:
    """Restarts the embedded Postgres of this process's data directory, with a growing pause while it fails."""

    def __init__(self, embedded: EmbeddedPostgres | None) -> None:
        """`embedded` is None if the database is not the embedded one: then nothing is started."""
        self._embedded = embedded
        self._pause = 0.0
        self._tried_at = float("-inf")
        self._has_failed = False

    async def restart_if_ended(self) -> None:
        """Start the server if it does not run and the pause is over. A failed start is logged, not raised."""
        if self._embedded is None or time.monotonic() < self._tried_at + self._pause:
            return
        started_at = time.monotonic()
        try:
            is_started = await asyncio.to_thread(self._embedded.restart_if_ended)
        except EmbeddedPostgresError as error:
            self._back_off()
            if not self._has_failed:  # log a repeated failure once
                log.error("postgres.not_started", reason=str(error))
            self._has_failed = True
            return
        if is_started:
            self._back_off()
            self._has_failed = False
            log.warning("postgres.restarted", ms=round((time.monotonic() - started_at) * 1000))

    def _back_off(self) -> None:
        now = time.monotonic()
        is_repeated = now - self._tried_at < STABLE_SECONDS + self._pause
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS) if is_repeated else FIRST_PAUSE_SECONDS
        self._tried_at = now
