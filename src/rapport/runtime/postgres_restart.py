"""Starts the embedded Postgres again when it has ended under this process. See ADR 41."""

from __future__ import annotations

import asyncio
import time

import structlog

from rapport.storage.postgres.embedded import EmbeddedPostgres, EmbeddedPostgresError

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
STABLE_SECONDS = 60.0
"""A server that has run for this long is started again without a pause."""


class PostgresRestart:
    """Restarts the embedded Postgres of this process's data directory, less and less often while that does not help."""

    def __init__(self, embedded: EmbeddedPostgres | None) -> None:
        """`embedded` is None where the database is somebody else's: then nothing is ever started."""
        self._embedded = embedded
        self._pause = 0.0
        self._tried_at = float("-inf")
        self._has_failed = False

    async def restart_if_ended(self) -> None:
        """Start the server if it does not run, unless that was tried a moment ago; never raises what a start raises."""
        if self._embedded is None or time.monotonic() < self._tried_at + self._pause:
            return
        began = time.monotonic()
        try:
            is_started = await asyncio.to_thread(self._embedded.restart_if_ended)
        except EmbeddedPostgresError as error:
            self._back_off()
            if not self._has_failed:  # once: the same again every few seconds would bury everything else
                log.error("postgres.not_started", reason=str(error))
            self._has_failed = True
            return
        if is_started:
            self._back_off()
            self._has_failed = False
            log.warning("postgres.restarted", ms=round((time.monotonic() - began) * 1000))

    def _back_off(self) -> None:
        now = time.monotonic()
        is_repeated = now - self._tried_at < STABLE_SECONDS + self._pause
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS) if is_repeated else FIRST_PAUSE_SECONDS
        self._tried_at = now
