"""Simulate Telegram's Bot API on loopback, as strict as the real one, with people who write and faults on demand.

    async with telegram_peer() as peer:
        ann, ben = peer.person("Ann", username="ann"), peer.person("Ben")
        team = peer.group("Team", [ann, ben])
        asked = team.says(ann, "@rapport_bot when do we meet?")
        peer.will(flood(2), on="sendMessage")
        ...
        assert peer.sent(team) == ["At noon."]

Import it as `tests.telegram.peer`: a package named `telegram` beside the tests would hide python-telegram-bot, so this
folder must stay without an `__init__.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web

from tests.channels.telegram.peer_chats import Chat, Person, Platform, Posted, Press
from tests.channels.telegram.peer_faults import Fault, Faults, Refusal, babbles, bad, fails, flood, hangs, resets
from tests.channels.telegram.peer_methods import Methods, readable
from tests.channels.telegram.peer_updates import Delivery, Updates
from tests.support.waiting import LIMIT_SECONDS

__all__ = [
    "Chat",
    "Delivery",
    "Fault",
    "Person",
    "Posted",
    "Press",
    "Request",
    "TelegramPeer",
    "babbles",
    "fails",
    "flood",
    "hangs",
    "resets",
    "telegram_peer",
]

Json = dict[str, Any]

BOT_NAME = "rapport_bot"
BOT_ID = 7_000_000_001


@dataclass(slots=True)
class Request:
    """One call of a method, as it came and as it ended."""

    method: str
    params: Json
    at: float
    accepted: bool = False
    """True if it had its effect, whatever the response was."""
    status: int | None = None
    """The response to the caller; None if there was none."""
    fault: Fault | None = None


@dataclass(slots=True, eq=False)
class TelegramPeer:
    """A bot's Telegram. Everything may be looked at and changed while it runs."""

    token: str
    platform: Platform
    url: str = ""
    """Without the token: what TELEGRAM_API_URL is set to."""
    requests: list[Request] = field(default_factory=list[Request])
    is_revoked: bool = False
    _faults: Faults = field(default_factory=Faults)
    _methods: Methods = field(init=False)

    def __post_init__(self) -> None:
        self._methods = Methods(self.platform)

    @property
    def bot(self) -> Person:
        return self.platform.bot

    @property
    def chats(self) -> dict[int, Chat]:
        return self.platform.chats

    @property
    def updates(self) -> Updates:
        """The queue: `pending`, `made`, `deliveries`, `webhook`, `allowed`."""
        return self.platform.updates

    @property
    def commands(self) -> dict[str, list[Json]]:
        return self._methods.commands

    def person(
        self, name: str, *, username: str | None = None, last_name: str | None = None, is_bot: bool = False
    ) -> Person:
        person = Person(5_000_000_000 + self.platform.number(), name, username, last_name, is_bot, self.platform)
        self.platform.people[person.id] = person
        return person

    def private(self, person: Person) -> Chat:
        """The chat of somebody with the bot, opened by its first use."""
        if person.id not in self.chats:
            self.chats[person.id] = Chat(person.id, "private", self.platform, people=[person])
        return self.chats[person.id]

    def group(
        self,
        title: str,
        people: Sequence[Person],
        *,
        forum: bool = False,
        supergroup: bool = True,
        admins: Sequence[Person] = (),
    ) -> Chat:
        """A group with the bot in it; the first of the people has created it."""
        number = self.platform.number()
        chat = Chat(
            -1_002_000_000_000 - number if supergroup or forum else -4_000_000_000 - number,
            "supergroup" if supergroup or forum else "group",
            self.platform,
            title=title,
            people=list(people),
            admins=list(admins),
            is_forum=forum,
        )
        self.chats[chat.id] = chat
        return chat

    def posted(self, chat: Chat) -> list[Posted]:
        """Return the bot's messages in a chat that still exist."""
        return [message for message in chat.messages if message.by_bot]

    def sent(self, chat: Chat) -> list[str]:
        """The words of what the bot has said in a chat, as people read them."""
        return [message.text for message in self.posted(chat)]

    def calls(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method.lower() == method.lower()]

    def will(self, fault: Fault, *, on: str | None = None, times: int | None = 1, skip: int = 0) -> None:
        """Let the next calls of a method (of any, without one) fail; `times=None` is until it heals."""
        self._faults.plan(fault, on, times, skip)

    def heals(self) -> None:
        """Nothing planned goes wrong any more, and what hangs breaks."""
        self._faults.heal()
        self.updates.copies, self.updates.shuffle = 1, None

    def revokes_token(self) -> None:
        """401 from now on, for the poll that is waiting too."""
        self.is_revoked = True
        self.updates.stop()
        self.updates.end_poll(Refusal(401, "Unauthorized"))

    def repeats_updates(self, times: int) -> None:
        """Every update from now on is delivered so many times, confirmed or not."""
        self.updates.copies = times

    def shuffles_updates(self, seed: int = 0) -> None:
        """Deliver the waiting updates out of order."""
        self.updates.shuffle = random.Random(seed)

    def redeliver(self, *what: Posted | Press | int) -> None:
        """Deliver updates once more, whatever has been confirmed: a message with its edits, a press, or by their ids."""
        for one in what:
            found = one.updates if isinstance(one, Posted) else [one.update_id if isinstance(one, Press) else one]
            for update_id in found:
                assert update_id is not None, "the bot was never told of this"
                self.updates.again(update_id)

    async def until(self, holds: Callable[[], object], *, seconds: float = LIMIT_SECONDS) -> None:
        """Until something holds; AssertionError if it doesn't in time."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not within {seconds} s; last calls: {self.requests[-5:]}"
            await asyncio.sleep(0.02)

    async def until_sent(self, chat: Chat, count: int, *, seconds: float = LIMIT_SECONDS) -> list[str]:
        """Wait for this many messages of the bot in a chat and return them."""
        await self.until(lambda: len(self.sent(chat)) >= count, seconds=seconds)
        return self.sent(chat)

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer one HTTP request, or fail as planned."""
        token, method = http.match_info["token"], http.match_info["method"]
        if not re.fullmatch(r"\d+:[\w-]+", token):
            return Refusal(404, "Not Found").response()
        if token != self.token or self.is_revoked:
            return Refusal(401, "Unauthorized").response()
        request = Request(method, {}, self.platform.clock(), fault=self._faults.next(method))
        self.requests.append(request)
        try:
            request.params = readable(await _parameters(http))
            response = await self._respond(http, request)
        except Refusal as refusal:
            response = refusal.response()
        if request.fault is None or request.fault.how in ("refuse", "babble"):
            request.status = response.status
        return response

    async def _respond(self, http: web.Request, request: Request) -> web.Response:
        fault = request.fault
        if fault is not None and not fault.after:
            return await self._faults.strike(fault, http)
        if not self._methods.knows(request.method):
            raise Refusal(404, "Not Found")
        result = await self._methods.call(request.method, request.params)
        request.accepted = True
        if fault is not None:
            return await self._faults.strike(fault, http)
        return web.json_response({"ok": True, "result": result})


async def _parameters(http: web.Request) -> Json:
    """The parameters of a call, from wherever they may come."""
    params: Json = dict(http.query)
    if http.content_type == "application/json":
        try:
            body: Any = json.loads(await http.read() or b"{}")
        except ValueError as error:
            raise bad("can't parse JSON object") from error
        if not isinstance(body, dict):
            raise bad("object expected")
        return params | cast("Json", body)
    return params | dict(await http.post())


@asynccontextmanager
async def telegram_peer(*, username: str = BOT_NAME, reads_all: bool = True) -> AsyncGenerator[TelegramPeer]:
    """A Telegram that listens for as long as the block lasts; without `reads_all`, the bot is in privacy mode."""
    bot = Person(BOT_ID, "Rapport", username, is_bot=True)
    platform = Platform(bot, can_read_all_group_messages=reads_all)
    bot.platform = platform
    peer = TelegramPeer(f"{BOT_ID}:AAf{random.getrandbits(128):032x}", platform)
    app = web.Application(client_max_size=64_000_000)
    app.router.add_route("*", "/bot{token}/{method}", peer.answer)
    # With cancellation a poll whose client is gone ends at once, and takes no updates with it.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    host, port = runner.addresses[0][:2]
    peer.url = f"http://{host}:{port}"
    try:
        yield peer
    finally:
        await peer.updates.close()
        await runner.cleanup()
