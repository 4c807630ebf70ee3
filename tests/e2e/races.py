"""Send messages at the moment when a follow-up is due, to any number of servers on one database."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from rapport.domain.follow_up import PROMPTS

from .audit import query
from .harness import Json
from .scripted import ScriptedModel, reply_to
from .silences import UNASKED, fell_silent, percentile, set_timers, until_nothing_is_due

WITHIN = 0.005
AHEAD = 1.3
"""Seconds: longer than any server sleeps before it looks for new timers."""
FASTEST, SLOWEST = 60.0, 15.0
"""Posts a second: as many as the machine comes along with, so that they arrive when they are meant to."""
PROMPTLY = 0.012
AIMED, LATER = 0.2, 0.15
"""Shares of those that are sent so as to arrive around the due time, and so as to arrive while the follow-up is under way.
The rest is sent around the due time."""
LATEST = 0.25


@dataclass(slots=True)
class Post:
    """A message that was posted around the time its conversation's timer was due; times are seconds after that."""

    conversation: str
    text: str
    due: float
    sent: float = 0.0
    stored: float = 0.0
    took: float = 0.0
    """Seconds until the answer was there."""

    @property
    def is_close(self) -> bool:
        """Whether it was sent, or has arrived in the database, within a few milliseconds of the due time."""
        return abs(self.sent) <= WITHIN or abs(self.stored) <= WITHIN


@dataclass(slots=True)
class Races:
    """`servers` answer at these addresses; `url` is their database."""

    http: aiohttp.ClientSession
    servers: Sequence[str]
    url: str
    chance: random.Random
    posts: list[Post] = field(default_factory=list[Post])
    way: float = 0.004
    """Seconds from sending to the database, as it was last."""
    pace: float = 40.0
    turned_away: list[str] = field(default_factory=list[str])
    """What a server said that was too busy."""

    def think(self, model: ScriptedModel) -> None:
        """Let the model take its time over follow-ups: none, or long enough for somebody to speak meanwhile."""
        model.replies = dict.fromkeys(PROMPTS.values(), UNASKED)
        model.delay = lambda text: (
            self.chance.choice([0.0, self.chance.uniform(0, 0.02)]) if text in model.replies else 0
        )

    async def run(self, *, batch: int, races: int = 0, messages: int = 0) -> None:
        """Until so many messages were posted, and so many of them within a few milliseconds of a due timer."""
        while len(self.posts) < messages or sum(post.is_close for post in self.posts) < races:
            conversations = await fell_silent(self.url, batch)
            waits = {each: AHEAD + number / self.pace for number, each in enumerate(conversations)}
            begun = await set_timers(self.url, waits)
            posts = [Post(each, f"c{each} shall I paint the kitchen?", begun + wait) for each, wait in waits.items()]
            await asyncio.gather(*(self._post(post) for post in posts))
            await until_nothing_is_due(self.url)
            await self._arrivals(posts)
            self.posts += posts

    async def _post(self, post: Post) -> None:
        at = post.due + self.chance.uniform(-WITHIN, WITHIN)
        kind = self.chance.random()
        if kind < AIMED:
            at -= self.way
        elif kind < AIMED + LATER:
            at += self.chance.uniform(0, LATEST)
        await asyncio.sleep(at - time.time())
        post.sent = time.time() - post.due
        answer = await self._answer(post)
        post.took = time.time() - post.due - post.sent
        assert answer["content"] == reply_to(post.text), answer

    async def _answer(self, post: Post) -> Json:
        """Sends again when the server is too busy, as it is told to; the same message is stored once."""
        address = f"{self.chance.choice(self.servers)}/chat/conversations/{post.conversation}/messages"
        body = {"content": post.text, "client_message_id": post.conversation}
        while True:
            async with self.http.post(address, json=body) as response:
                if response.status == 200:
                    return await response.json()
                assert response.status == 503, await response.text()
                self.turned_away.append(await response.text())
            await asyncio.sleep(0.5)

    async def _arrivals(self, posts: Sequence[Post]) -> None:
        names = ", ".join(f"'{post.conversation}'" for post in posts)
        rows = await query(
            self.url,
            "SELECT conversation_id, extract(epoch FROM max(created_at))::float8 FROM messages"
            f" WHERE role = 'user' AND NOT synthetic AND conversation_id IN ({names}) GROUP BY 1",
        )
        stored = dict(rows)
        for post in posts:
            post.stored = float(stored[post.conversation]) - post.due
        self.way = statistics.median(post.stored - post.sent for post in posts)
        self.pace = min(max(self.pace * (1.2 if self.way < PROMPTLY else 0.8), SLOWEST), FASTEST)

    def summary(self) -> str:
        """How close they were, and how long people waited for their answers."""
        close = sum(post.is_close for post in self.posts)
        stored = sorted(post.stored * 1e3 for post in self.posts)
        took = sorted(post.took * 1e3 for post in self.posts)
        return (
            f"{close:,} of {len(self.posts):,} messages within {WITHIN * 1e3:g} ms of the due time; in the database"
            f" p1 {percentile(stored, 1):+.1f}, p50 {percentile(stored, 50):+.1f}, p99 {percentile(stored, 99):+.1f} ms from it;"
            f" answered after p50 {percentile(took, 50):.0f}, p99 {percentile(took, 99):.0f}, max {took[-1]:.0f} ms"
            + (f"; {len(self.turned_away)} were sent again after a 503" if self.turned_away else "")
        )

    def fates(self, ended: Mapping[str, int]) -> str:
        """What became of the timers, those included that a message cancelled before their time: they are gone."""
        gone = len(self.posts) - sum(count for state, count in ended.items() if state != "pending")
        return f"{gone:,} cancelled, " + ", ".join(
            f"{count:,} {state}" for state, count in ended.items() if state != "pending"
        )
