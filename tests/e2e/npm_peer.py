"""Run an independent Bot API on loopback (npm's `telegram-test-api`), and people who write through it.

It leaves out many fields, refuses unknown methods with 500, and delivers an update once: an update that it gave to a killed
process is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.installing import packages
from tests.support.waiting import LIMIT_SECONDS

FOLDER = Path(__file__).parent / "bot_api"
BOT_NAME = "TestNameBot"
TOKEN = "4242:" + "x" * 35

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Room:
    """A chat, in the form of updates."""

    id: int
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class Account:
    """A person, in the form of updates."""

    id: int
    first_name: str
    username: str

    @property
    def alone(self) -> Room:
        """The chat of this person with the bot."""
        return Room(self.id, self.first_name, "private")


@dataclass(slots=True)
class NpmPeer:
    """The server, and the actions of its clients."""

    url: str
    session: aiohttp.ClientSession
    failed_calls: list[object] = field(default_factory=list[object])
    """The results of webhook calls that were not accepted."""

    async def says(
        self, who: Account, text: str, *, where: Room | None = None, entities: Sequence[Json] | None = None
    ) -> None:
        """Send a message as a person; without `entities` the update has none."""
        await self._post("sendMessage", self.message(who, text, where=where, entities=entities))

    async def commands(self, who: Account, text: str, *, where: Room | None = None) -> None:
        command = {"type": "bot_command", "offset": 0, "length": len(text.split()[0])}
        await self._post("sendCommand", self.message(who, text, where=where, entities=[command]))

    def message(
        self, who: Account, text: str, *, where: Room | None = None, entities: Sequence[Json] | None = None
    ) -> Json:
        """Send a command, in the form that the package's own client uses."""
        room = where or who.alone
        names = {"first_name": who.first_name, "username": who.username}
        made: Json = {
            "botToken": TOKEN,
            "date": int(time.time()),
            "from": {"id": who.id, "is_bot": False, **names},
            "chat": {"id": room.id, "title": room.title, "type": room.kind, **names},
            "text": text,
        }
        return made if entities is None else {**made, "entities": list(entities)}

    async def told(self, room: Room) -> list[Json]:
        """Return the bot's messages in a chat."""
        return [one["message"] for one in await self._history() if str(one["message"].get("chat_id")) == str(room.id)]

    async def until_told(self, room: Room, count: int, *, seconds: float = LIMIT_SECONDS) -> list[Json]:
        """Wait for this many messages of the bot in a chat and return them."""
        deadline = time.monotonic() + seconds
        while len(found := await self.told(room)) < count:
            assert time.monotonic() < deadline, f"only {found} within {seconds} s"
            await asyncio.sleep(0.05)
        return found

    async def number_of(self, text: str) -> int:
        """Return the id of a person's message."""
        return next(
            one["messageId"]
            for one in await self._history()
            if one["message"].get("text") == text and "from" in one["message"]
        )

    async def _history(self) -> list[Json]:
        return await self._post("getUpdatesHistory", {"token": TOKEN})

    async def _post(self, route: str, body: Json) -> Any:
        async with self.session.post(f"{self.url}/{route}", json=body) as response:
            assert response.status == 200, await response.text()
            return (await response.json())["result"]


@contextlib.asynccontextmanager
async def npm_peer(session: aiohttp.ClientSession) -> AsyncGenerator[NpmPeer]:
    """Run the server in a separate process during the block."""
    await asyncio.to_thread(packages, FOLDER)
    process = await asyncio.create_subprocess_exec(
        "node", "serve.cjs", cwd=FOLDER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    peer = NpmPeer("", session)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            peer.url = f"http://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
        listening = asyncio.create_task(_listen(process.stdout, peer.failed_calls))
        yield peer
        process.stdin.close()
        await listening
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listen(said: asyncio.StreamReader, failed: list[object]) -> None:
    while line := await said.readline():
        failed.append(json.loads(line)["failed"])
