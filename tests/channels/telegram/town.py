"""Set up a simulated Telegram with five people and their groups, and the wired app, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from structlog.testing import capture_logs

from rapport.channels.telegram import albums, api, bot
from rapport.channels.telegram import update_worker as reader
from rapport.channels.telegram.inbox import Inbox
from rapport.channels.telegram.writing import channel
from tests.channels.telegram.peer import Chat, Person, Posted, TelegramPeer, telegram_peer
from tests.support.world import World, open_world, until

DAY = 86_400.0


@dataclass
class Town:
    """A server, a simulated Telegram, five people and their chats, all of which are allowed."""

    world: World
    peer: TelegramPeer
    ann: Person
    ben: Person
    cara: Person
    dan: Person
    eve: Person
    ann_alone: Chat
    ben_alone: Chat
    team: Chat
    """A supergroup of all five that Ann has created."""
    forum: Chat
    club: Chat
    """A basic group of Ann and Ben."""

    @property
    def inbox(self) -> Inbox:
        """The inbox of the server's bot."""
        source = self.world.app.channels["telegram"].source
        assert isinstance(source, bot.TelegramBot)
        return source.inbox

    async def settled(self) -> None:
        """Wait until every update is processed, answered and sent, as far as possible."""

        async def idle() -> bool:
            waiting = await self.world.sql("SELECT count(*) FROM telegram_updates WHERE done_at IS NULL")
            return waiting == [(0,)] and not self.peer.updates.pending

        await until(idle)
        await self.world.drain()

    async def hears(self, chat: Chat, person: Person, text: str | None = None, **more: Any) -> Posted:
        """Send a message as a person, and wait until it is processed, answered and sent."""
        said = chat.says(person, text, **more)
        await self.settled()
        return said

    async def conversation(self, chat: Chat) -> str:
        """Return the id of a chat's conversation."""
        [row] = await self.world.sql("SELECT conversation_id FROM telegram_chats WHERE chat_id = %s", chat.id)
        return row[0]

    async def told(self, chat: Chat) -> list[tuple[str, str]]:
        """Return the stored authors and texts of a chat, in order."""
        rows = await self.world.sql(
            "SELECT coalesce(m.author_name, m.role), m.content FROM messages m JOIN telegram_chats USING (conversation_id)"
            " WHERE chat_id = %s AND NOT m.synthetic AND m.role <> 'system-summary' ORDER BY m.created_at, m.id",
            chat.id,
        )
        return [(row[0], row[1]) for row in rows]

    async def stored_at(self, posted: Posted) -> datetime:
        [row] = await self.world.sql("SELECT created_at FROM messages WHERE platform_id = %s", posted.platform_id)
        return row[0]

    async def outbox(self) -> list[tuple[str, str | None]]:
        """Return the state and the error of each outgoing message, oldest first."""
        rows = await self.world.sql("SELECT state, error FROM outbox ORDER BY seq")
        return [(row[0], row[1]) for row in rows]

    async def parked(self, count: int = 1) -> list[tuple[str, str | None]]:
        """Return the outcomes of the outgoing messages once none is in progress."""

        async def ended() -> bool:
            states = [state for state, _ in await self.outbox()]
            return len(states) >= count and not {"queued", "sending", "unconfirmed"} & {*states}

        await until(ended)
        return await self.outbox()

    def given(self, call: int = -1) -> tuple[str, str, str]:
        """Return the input of the model: its instructions, the text before the question, and the question."""
        system, *before, asked = (message.text for message in self.world.model.calls[call])
        return system, "\n".join(before), asked


def at(seconds: float) -> datetime:
    """Convert a date of Telegram to a time."""
    return datetime.fromtimestamp(int(seconds), UTC)


def days_ago(days: float, *, minutes: float = 0.0) -> float:
    """Return a date for `says`."""
    return time.time() - days * DAY + minutes * 60


@contextlib.asynccontextmanager
async def open_town(database_url: str, *, starts: bool = True, **changes: Any) -> AsyncGenerator[Town]:
    """Open the town with its server; with `starts`, wait until the server polls Telegram."""
    async with telegram_peer() as peer:
        names = ("Ann", "Ben", "Cara", "Dan", "Eve")
        people = ann, ben, cara, dan, eve = [peer.person(name, username=name.lower()) for name in names]
        alone = peer.private(ann), peer.private(ben)
        groups = (
            peer.group("Team", people),
            peer.group("Forum", [ann, ben], forum=True),
            peer.group("Club", [ann, ben], supergroup=False),
        )
        settings = telegram_settings(peer, groups, (ann, ben), **changes)
        async with open_world(database_url, **settings) as world:
            if starts:
                await peer.until(lambda: peer.calls("getUpdates") or peer.calls("setWebhook"))
            yield Town(world, peer, ann, ben, cara, dan, eve, *alone, *groups)


def telegram_settings(
    peer: TelegramPeer, groups: Sequence[Chat], people: Sequence[Person], **changes: Any
) -> dict[str, Any]:
    """Return the settings that admit these groups, and these people directly."""
    return {
        "telegram_bot_token": peer.token,
        "telegram_api_url": peer.url,
        "telegram_allowed_users": ",".join(str(person.id) for person in people),
        "telegram_allowed_chats": ", ".join(str(group.id) for group in groups),
        **changes,
    }


@contextlib.asynccontextmanager
async def another_world(town: Town, **changes: Any) -> AsyncGenerator[World]:
    """Open a second server with the same settings on the same database."""
    settings = {
        name: getattr(town.world.settings, name)
        for name in type(town.world.settings).model_fields
        if "telegram" in name
    }
    assert town.world.settings.database_url is not None
    async with open_world(town.world.settings.database_url, **{**settings, **changes}) as world:
        yield world


@contextlib.asynccontextmanager
async def restarted(
    town: Town, *, meanwhile: Callable[[], object] = lambda: None, **changes: Any
) -> AsyncGenerator[Town]:
    """Stop the server, optionally do something, and start it again."""
    await town.world.worker.stop()
    meanwhile()
    async with another_world(town, **changes) as world:
        yield replace(town, world=world)


@contextlib.contextmanager
def database_away(postgres_url: str, database_url: str) -> Generator[None]:
    """Close all connections to the database and allow no new ones during the block."""
    name = str(conninfo_to_dict(database_url)["dbname"])
    with psycopg.connect(postgres_url, autocommit=True) as connection:

        def allow(allowed: bool) -> None:
            statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Literal(allowed)))

        allow(False)
        try:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            yield
        finally:
            allow(True)


class Road:
    """A TCP proxy to a server. When it is closed, connections break and new ones are refused; when it holds, nothing arrives."""

    def __init__(self) -> None:
        self._to = ("", 0)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_free = asyncio.Event()
        self._is_free.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def leads_to(self, url: str) -> None:
        address = urlsplit(url)
        self._to = (str(address.hostname), address.port or 80)

    async def opens(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def closes(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def holds(self) -> None:
        """Hold everything back until `lets_go`."""
        self._is_free.clear()

    def lets_go(self) -> None:
        self._is_free.set()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._to)
        both = {writer, back}
        self._writers |= both
        try:
            await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer))
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                await self._is_free.wait()
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def road_to(peer: TelegramPeer) -> AsyncGenerator[Road]:
    async with road() as opened:
        opened.leads_to(peer.url)
        yield opened


@contextlib.asynccontextmanager
async def road() -> AsyncGenerator[Road]:
    """Open a proxy that has no destination yet."""
    road = Road()
    await road.opens()
    try:
        yield road
    finally:
        await road.closes()


@contextlib.contextmanager
def logged() -> Generator[list[Any]]:
    """Collect the log lines of the block."""
    with capture_logs() as lines:
        yield lines


class Impatient:
    """Shorten waiting times that are minutes in production."""

    def __init__(self, monkeypatch: Any) -> None:
        self._patch = monkeypatch.setattr

    def for_answers(self, seconds: float) -> None:
        self._patch(api, "ANSWER_TIMEOUT_SECONDS", seconds)

    def for_news(self, seconds: int) -> None:
        self._patch(bot, "POLL_SECONDS", seconds)

    def for_rivals(self, seconds: float) -> None:
        self._patch(api, "CONFLICT_SECONDS", seconds)

    def for_albums(self, seconds: float) -> None:
        self._patch(albums, "ALBUM_QUIET_SECONDS", seconds)

    def for_chats_that_fail(self, seconds: float) -> None:
        self._patch(reader, "PAUSE_SECONDS", seconds)

    def for_the_webhook(self, seconds: float) -> None:
        self._patch(bot, "WEBHOOK_CHECK_SECONDS", seconds)

    def for_what_is_on_its_way(self, seconds: float) -> None:
        self._patch(channel, "CHECK_DELAY_SECONDS", seconds)

    def for_a_token(self, seconds: float) -> None:
        self._patch(channel, "TOKEN_RETRY_SECONDS", seconds)
        self._patch(bot, "MAX_BACKOFF_SECONDS", 2 * seconds)


__all__ = [
    "DAY",
    "Impatient",
    "Town",
    "another_world",
    "at",
    "database_away",
    "days_ago",
    "logged",
    "open_town",
    "restarted",
    "road",
    "road_to",
    "telegram_settings",
]
