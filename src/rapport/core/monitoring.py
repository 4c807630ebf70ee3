"""Monitoring: database health, the number of waiting timers, and an owner's recent activity."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rapport.domain.errors import RapportError, Transient
from rapport.domain.follow_up_outcomes import OutcomeCount
from rapport.domain.read_models import HourlyReplies
from rapport.storage.conversations.statistics import ConversationStatistics
from rapport.storage.database import Database
from rapport.storage.followups.follow_up_turns import FollowUpTurns
from rapport.storage.followups.timers import Timers

PENDING_CACHE_SECONDS = 5.0
"""A count of the waiting timers is reused for this time, so that frequent scrapes put no load on the database."""


@dataclass(frozen=True, slots=True)
class Activity:
    """An owner's replies by hour, also hours without any, and the outcomes of their follow-ups."""

    since: datetime
    hours: Sequence[HourlyReplies]
    follow_ups: Sequence[OutcomeCount]


class Monitoring:
    """Figures about this server for operators."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: int | None = None
        self._pending_until = 0.0

    async def is_database_ready(self, *, timeout_seconds: float) -> bool:
        """Return True if the database answers in time."""
        try:
            async with asyncio.timeout(timeout_seconds), self._database.statement() as connection:
                await connection.execute("SELECT 1")
        except (RapportError, TimeoutError):
            return False
        return True

    async def count_pending_timers(self) -> int | None:
        """Return how many timers wait, counted at most every few seconds; None when the database can't be reached."""
        if time.monotonic() >= self._pending_until:
            try:
                async with self._database.statement() as connection:
                    self._pending = await Timers(connection).count_pending()
            except Transient:
                self._pending = None
            self._pending_until = time.monotonic() + PENDING_CACHE_SECONDS
        return self._pending

    async def load_activity(self, owner_id: str, *, hours: int) -> Activity:
        """Return the activity in an owner's conversations in the last hours."""
        async with self._database.statement() as connection:
            start, replies = await ConversationStatistics(connection).count_replies(owner_id, hours=hours)
            follow_ups = await FollowUpTurns(connection).count_outcomes(owner_id, days=hours / 24)
        return Activity(start, replies, follow_ups)
