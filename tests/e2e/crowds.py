"""Run many Telegram chats at once, with every update repeated and out of order, through kill -9; then audit them."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from tests.channels.telegram.peer import Chat, Posted, TelegramPeer, hangs

from .audit import Rows, query
from .harness import Home, Server

GROUPS, ALONE = 16, 4
CALLS, COMMANDS, EDITS = 0.1, 0.01, 0.02
"""Shares of the messages that address the agent, are commands, and are edited later."""
COPIES = 3
"""Deliveries of each update: all but one in a row, and one long afterwards."""
HASTE = 20
"""Messages that are sent at once."""

_LEFT = """
SELECT (SELECT count(*) FROM telegram_updates WHERE done_at IS NULL),
       (SELECT count(*) FROM events WHERE state <> 'done'),
       (SELECT count(*) FROM outbox WHERE state IN ('queued', 'sending', 'unconfirmed'))
"""
_SAID = """
SELECT c.chat_id, m.platform_id, m.content, m.id FROM messages m JOIN telegram_chats c USING (conversation_id)
WHERE m.role = 'user' AND NOT m.synthetic ORDER BY c.chat_id, m.created_at, m.id
"""
_REPLIES = """
SELECT c.chat_id, asked.platform_id FROM messages m JOIN telegram_chats c USING (conversation_id)
LEFT JOIN messages asked ON asked.conversation_id = m.conversation_id AND asked.id = m.event_id
WHERE m.role = 'assistant' ORDER BY c.chat_id, m.created_at, m.id
"""
# The message that each row answers; a notice names it in its text.
_OUTBOX = """
SELECT c.chat_id, o.id, o.state, coalesce(o.notice ->> 'reply_to_platform_id', asked.platform_id) FROM outbox o
JOIN telegram_chats c USING (conversation_id)
LEFT JOIN messages m ON m.conversation_id = o.conversation_id AND m.id = o.message_id
LEFT JOIN messages asked ON asked.conversation_id = m.conversation_id AND asked.id = m.reply_to_id
"""


@dataclass(slots=True)
class Figures:
    """The counts of an audit. Those in `expected` may be above zero; all others are violations."""

    updates: int = 0
    messages: int = 0
    calls: int = 0
    shown: int = 0
    """Messages of the bot that people can see."""
    cut_off: int = 0
    """Sends that a kill interrupted: their outcome is unknown, and they are not repeated."""
    cut_off_unseen: int = 0
    """Of them, those that did not arrive."""
    lost: int = 0
    double: int = 0
    """messages that are stored, answered or shown more than once"""
    changed: int = 0
    """messages that do not say what was said last"""
    disordered: int = 0
    """neighbours of what was said in another order than the platform's"""
    answered_in_disorder: int = 0
    shown_in_disorder: int = 0
    """of the replies; what a command is told need not wait for the answer to something else"""
    unanswered: int = 0
    uncalled: int = 0
    """answers to what was for nobody"""
    unseen: int = 0
    """sent, as it is stored, and not shown"""
    unaccounted: int = 0
    """rows of the outbox that are neither sent nor were under way at a kill; or were, and are told to be sent"""

    @property
    def troubles(self) -> dict[str, int]:
        expected = {"updates", "messages", "calls", "shown", "cut_off", "cut_off_unseen"}
        return {name: count for name, count in asdict(self).items() if count and name not in expected}


@dataclass(slots=True)
class Crowd:
    """People who write in groups and in direct chats with the bot, and a server that is killed meanwhile."""

    home: Home
    peer: TelegramPeer
    chance: random.Random
    groups: list[Chat] = field(default_factory=list[Chat])
    alone: list[Chat] = field(default_factory=list[Chat])
    said: list[Posted] = field(default_factory=list[Posted])
    commands: list[Posted] = field(default_factory=list[Posted])
    calls: list[Posted] = field(default_factory=list[Posted])
    """Messages that must be answered, commands included."""
    cut_off: set[str] = field(default_factory=set[str])
    """Outbox rows that were being sent when the server was killed."""
    downtimes: list[float] = field(default_factory=list[float])
    errors: list[object] = field(default_factory=list[object])
    """Errors in the servers' logs."""
    _again: list[int] = field(default_factory=list[int])
    """Updates that will be delivered once more."""

    def __post_init__(self) -> None:
        people = [self.peer.person(name, username=name.lower()) for name in ("Ann", "Ben", "Cleo", "Dan", "Eve")]
        people += [self.peer.person(f"P{number}") for number in range(ALONE)]
        self.groups = [self.peer.group(f"Group {number}", people[:5]) for number in range(GROUPS)]
        self.alone = [self.peer.private(person) for person in people[5:]]
        self.home.env |= {
            "TELEGRAM_BOT_TOKEN": self.peer.token,
            "TELEGRAM_API_URL": self.peer.url,
            "TELEGRAM_ALLOWED_CHATS": ",".join(str(chat.id) for chat in self.groups),
            "TELEGRAM_ALLOWED_USERS": ",".join(str(chat.id) for chat in self.alone),
        }

    # ---- actions

    async def run(self, *, updates: int, kills: int, seconds: float) -> None:
        """Send messages and kill the server; one of the kills is a SIGTERM. Then wait until everything is done."""
        self._trouble()
        server = await self.home.serve()
        share = updates // (kills + 1)
        for number in range(kills):
            await self._talk(share * 3 // 4)
            killed = time.monotonic()
            await (self._stop(server) if number == kills // 2 else self._kill(server))
            self.errors += server.errors()
            self.say(share - share * 3 // 4)
            server = await self.home.serve()
            self.downtimes.append(time.monotonic() - killed)
        await self._talk(updates - kills * share)
        self.peer.redeliver(*self._again)
        await self.until_done(seconds=seconds)
        self.errors += server.errors()

    async def until_done(self, *, seconds: float) -> None:
        """Wait until every update is confirmed, processed, answered and sent."""
        deadline = time.monotonic() + seconds
        while True:
            left = (await query(self.home.database_url, _LEFT))[0]
            if left == (0, 0, 0) and not self.peer.updates.pending:
                return
            assert time.monotonic() < deadline, f"left: {left}, unconfirmed: {len(self.peer.updates.pending)}"
            await asyncio.sleep(0.1)

    def say(self, count: int) -> None:
        """Make this many updates at once."""
        for _ in range(count):
            self._say()

    async def _talk(self, count: int) -> None:
        for begun in range(0, count, HASTE):
            self.say(min(HASTE, count - begun))
            # Earlier updates are delivered again, long after they were confirmed.
            late = [self._again.pop(self.chance.randrange(len(self._again))) for _ in range(len(self._again) // 50)]
            self.peer.redeliver(*late)
            await asyncio.sleep(self.chance.uniform(0, 0.1))

    def _say(self) -> None:
        number = len(self.peer.updates.made)
        drawn = self.chance.random()
        if drawn < EDITS and (posted := self._changeable()) is not None:
            self._again.append(posted.chat.edits(posted, f"{posted.text}, no: {number}"))
            return
        # Direct chats are a fifth of the chats, and have a third of the messages for the agent.
        is_call = drawn < EDITS + CALLS
        chat = self.chance.choice(self.alone if is_call and self.chance.random() < 1 / 3 else self.groups)
        who, text = self.chance.choice(chat.people), f"c{chat.id} says #{number}"
        if drawn > 1 - COMMANDS:
            posted = chat.says(who, f"/help@{self.peer.bot.username}")
            self.commands.append(posted)
        else:
            tag = f"@{self.peer.bot.username} " if is_call and chat.kind != "private" else ""
            posted = chat.says(who, tag + text)
            self.said.append(posted)
        if is_call or posted in self.commands[-1:]:
            self.calls.append(posted)
        self._again.append(posted.update_id)

    def _changeable(self) -> Posted | None:
        """Return a recent group message that does not address the agent and was not edited yet."""
        lately = [one for one in self.said[-100:] if len(one.updates) == 1 and one.chat.kind != "private"]
        lately = [one for one in lately if not one.text.startswith("@")]
        return self.chance.choice(lately) if lately else None

    def _trouble(self) -> None:
        self.peer.repeats_updates(COPIES - 1)
        self.peer.shuffles_updates(self.chance.randrange(1_000_000))

    async def _kill(self, server: Server) -> None:
        """Send SIGKILL at a random moment, often during a send that has arrived already or never will."""
        self.peer.will(hangs(after=self.chance.random() < 0.5), on="sendMessage", times=self.chance.randint(1, 3))
        await asyncio.sleep(self.chance.uniform(0, 1.5))
        server.signal(signal.SIGKILL)
        assert await server.exit_code() == -signal.SIGKILL
        self.cut_off |= {row[0] for row in await self._under_way()}
        self.peer.heals()
        self._trouble()

    async def _stop(self, server: Server) -> None:
        """Send SIGTERM: running sends finish first, so none counts as interrupted."""
        server.signal(signal.SIGTERM)
        assert await server.exit_code() == 0

    async def _under_way(self) -> Rows:
        return await query(self.home.database_url, "SELECT conversation_id || id FROM outbox WHERE state = 'sending'")

    # ---- the audit

    async def audit(self) -> Figures:
        figures = Figures(updates=len(self.peer.updates.made), messages=len(self.said), calls=len(self.calls))
        url = self.home.database_url
        self._stored(figures, await query(url, _SAID))
        self._answered(figures, await query(url, _REPLIES))
        await self._sent(figures)
        return figures

    def _stored(self, figures: Figures, rows: Rows) -> None:
        stored = Counter(row[1] for row in rows)
        content = {row[1]: row[2] for row in rows}
        figures.lost = sum(posted.platform_id not in stored for posted in self.said)
        figures.changed = sum(posted.text != content.get(posted.platform_id, posted.text) for posted in self.said)
        figures.double += sum(count - 1 for count in stored.values())
        figures.double += len(stored.keys() - {posted.platform_id for posted in self.said})
        figures.disordered = _inversions((row[0], row[1]) for row in rows)

    def _answered(self, figures: Figures, rows: Rows) -> None:
        answered = Counter(row[1] for row in rows)
        wanted = {posted.platform_id for posted in self.calls} - {posted.platform_id for posted in self.commands}
        figures.unanswered = len(wanted - answered.keys())
        figures.uncalled = len(answered.keys() - wanted)
        figures.double += sum(count - 1 for count in answered.values())
        figures.answered_in_disorder = _inversions((row[0], row[1]) for row in rows)

    async def _sent(self, figures: Figures) -> None:
        shown = [
            (chat.id, f"{chat.id}/{posted.reply_to}")
            for chat in (*self.groups, *self.alone)
            for posted in self.peer.posted(chat)
        ]
        figures.shown = len(shown)
        seen = Counter(answered for _, answered in shown)
        figures.double += sum(count - 1 for count in seen.values())
        figures.uncalled += len(seen.keys() - {posted.platform_id for posted in self.calls})
        commands = {posted.platform_id for posted in self.commands}
        figures.shown_in_disorder = _inversions(one for one in shown if one[1] not in commands)
        rows = await query(self.home.database_url, _OUTBOX)
        unknown = [row for row in rows if row[2] == "unknown"]
        figures.cut_off = len(self.cut_off)
        figures.cut_off_unseen = sum(row[3] not in seen for row in unknown)
        figures.unseen = sum(row[2] == "sent" and row[3] not in seen for row in rows)
        figures.unaccounted = sum(row[2] not in ("sent", "unknown") for row in rows)
        known = await query(self.home.database_url, "SELECT conversation_id || id FROM outbox WHERE state = 'unknown'")
        figures.unaccounted += len({row[0] for row in known} - self.cut_off)
        figures.unanswered += len(commands - {row[3] for row in rows})


def _inversions(said: Iterable[tuple[int, str]]) -> int:
    """Count neighbouring messages of a chat in the wrong order, by the platform's numbers."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for chat, platform_id in said:
        numbers[chat].append(int(platform_id.partition("/")[2]))
    return sum(first > second for series in numbers.values() for first, second in pairwise(series))
