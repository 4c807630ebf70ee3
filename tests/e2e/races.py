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
"""Seconds: longer than any server sleeps between two polls for timers."""
FASTEST, SLOWEST = 60.0, 15.0
"""Messages a second: as many as the machine can handle, so that they arrive at the intended time."""
PROMPTLY = 0.012
AIMED, LATER = 0.2, 0.15
"""Shares of the messages that arrive around the due time, and that arrive while the follow-up is in progress.
The others are sent around the due time."""
LATEST = 0.25


@dataclass(slots=True)
class Post:
    """A message that was sent around the due time of its conversation's timer; times are seconds after that."""

    conversation: str
    text: str
    due: float
    sent: float = 0.0
    stored: float = 0.0
    took: float = 0.0
    """Seconds until the answer arrived."""

    @property
    def is_close(self) -> bool:
        """Return whether it was sent or stored within a few milliseconds of the due time."""
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
    """Seconds from sending to storing, of the latest message."""
    pace: float = 40.0
    turned_away: list[str] = field(default_factory=list[str])
    """Answers of servers that were too busy."""

    def think(self, model: ScriptedModel) -> None:
        """Delay the model's follow-ups: not at all, or long enough for a message to arrive meanwhile."""
        model.replies = dict.fromkeys(PROMPTS.values(), UNASKED)
        model.delay = lambda text: (
            self.chance.choice([0.0, self.chance.uniform(0, 0.02)]) if text in model.replies else 0
        )

    async def run(self, *, batch: int, races: int = 0, messages: int = 0) -> None:
        """Run until this many messages were sent, and enough of them within a few milliseconds of a due timer."""
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
        """Send a message, and again if the server is too busy; it is stored once."""
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
        """Return how close to the due time the messages were, and the times of their answers."""
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
        """Return the outcomes of the timers, including those that a message cancelled, which are deleted."""
        gone = len(self.posts) - sum(count for state, count in ended.items() if state != "pending")
        return f"{gone:,} cancelled, " + ", ".join(
            f"{count:,} {state}" for state, count in ended.items() if state != "pending"
        )
