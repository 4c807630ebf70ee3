"""Kill the server with kill -9 while timers become due, repeatedly, and sometimes its Postgres too."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from dataclasses import dataclass, field

from rapport.domain.follow_up import PROMPTS

from .harness import Home
from .scripted import ScriptedModel
from .silences import UNASKED, fell_silent, set_timers, until_nothing_is_due

AHEAD, SPREAD = 1.0, 2.0
"""Seconds until the first timer of a round is due, and from the first to the last."""
OVERDUE = 7_200.0
"""Seconds: longer than the lateness of any timer that still fires."""


@dataclass(slots=True)
class Kills:
    """The timers that were set and the times of the kills; follow-ups are allowed in every fifth conversation."""

    home: Home
    model: ScriptedModel
    chance: random.Random
    timers: int = 0
    overdue: int = 0
    """Of them, those that were long overdue when they were set."""
    power_cuts: int = 0
    downtimes: list[float] = field(default_factory=list[float])
    """Seconds from each kill until a server was ready again."""
    errors: list[object] = field(default_factory=list[object])
    """Errors in the servers' logs."""

    async def run(self, *, rounds: int, timers: int, seconds: float = 120.0) -> None:
        """Set timers and kill, this many times; then wait until nothing is due and nothing is in progress."""
        self.model.replies = dict.fromkeys(PROMPTS.values(), UNASKED)
        self.model.delay = lambda _text: self.chance.uniform(0, 0.05)
        server = await self.home.serve()
        for number in range(rounds):
            await self._set(timers)
            await asyncio.sleep(self.chance.uniform(0, AHEAD + SPREAD + 0.5))
            server.signal(signal.SIGKILL)
            killed = time.monotonic()
            if number % 3 == 2:  # as if the whole machine had crashed
                await asyncio.to_thread(self.home.kill_postgres)
                self.power_cuts += 1
            await server.exit_code()
            self.errors += server.errors()
            if number % 3 != 2:
                await self._set_overdue(timers // 100)
            server = await self.home.serve()
            self.downtimes.append(time.monotonic() - killed)
        await asyncio.sleep(AHEAD + SPREAD)
        await until_nothing_is_due(self.home.database_url, seconds=seconds)
        self.errors += server.errors()

    async def _set(self, count: int) -> None:
        url = self.home.database_url
        talks = await fell_silent(url, count // 5)
        talks += await fell_silent(url, count - count // 5, autonomy=False)
        self.timers += count
        await set_timers(url, {talk: AHEAD + self.chance.uniform(0, SPREAD) for talk in talks})

    async def _set_overdue(self, count: int) -> None:
        """Set overdue timers while no server runs."""
        url = self.home.database_url
        self.timers += count
        self.overdue += count
        await set_timers(url, dict.fromkeys(await fell_silent(url, count), -OVERDUE))
