"""Test uploads of several owners: neither slow nor many uploads of one block the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence

import httpx
import pytest

from rapport.channels.http.requests.connection_limits import Connections, ReceivingLimits
from rapport.channels.http.requests.uploads import MAX_PER_OWNER
from rapport.domain.note import Vector
from rapport.storage.access.api_keys import ApiKeys
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until

LIMIT = LIMIT_SECONDS
BOUNDARY = "edge"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
START = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="drip.txt"\r\n\r\n'.encode()


class Slow:
    """An embedder that waits while its gate is closed; its vectors are arbitrary."""

    name = "slow"
    min_similarity = 0.4

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.asked += 1
        await self.gate.wait()
        return [[1.0, 0.0] for _ in texts]

    async def embed_question(self, question: str) -> Vector:
        return [1.0, 0.0]


@pytest.fixture
async def world(database_url: str) -> AsyncGenerator[World]:
    limits = ReceivingLimits(
        upload_bytes_per_second=10_000.0, window_seconds=1.0, sweep_seconds=0.1, linger_seconds=0.5, log_seconds=0.1
    )
    async with open_world(database_url, connections=Connections(limits)) as opened:
        opened.app.library.embedder = Slow()
        yield opened


async def key_of(world: World, user: str) -> dict[str, str]:
    async with world.database.statement() as connection:
        _, secret = await ApiKeys(connection).create(user, name=user)
    return {"Authorization": f"Bearer {secret}"}


async def upload(world: World, key: dict[str, str], name: str, data: bytes) -> httpx.Response:
    return await world.http.post("/api/notes", files={"file": (name, data)}, headers=key)


async def drip(world: World, key: dict[str, str]) -> tuple[int, str]:
    """Upload a byte now and then until there is an answer; return its status and text."""
    url = world.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST /api/notes HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key['Authorization']}\r\n"
    writer.write(f"{head}Content-Type: {FORM}\r\nContent-Length: 5000000\r\n\r\n".encode() + START)
    answering = asyncio.create_task(reader.readuntil(b"}"))
    with contextlib.suppress(ConnectionError):
        while not answering.done():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
    head_, _, body = (await asyncio.wait_for(answering, LIMIT)).partition(b"\r\n\r\n")
    writer.close()
    return int(head_.split(b" ", 2)[1]), json.loads(body)["detail"]


async def test_one_who_uploads_slowly_does_not_keep_others_out(world: World) -> None:
    eve, ada = await key_of(world, "eve"), await key_of(world, "ada")
    dripping = [asyncio.create_task(drip(world, eve)) for _ in range(8)]
    await asyncio.sleep(0.3)
    theirs = await upload(world, ada, "refunds.txt", b"Refunds are paid within two weeks.")
    assert theirs.status_code == 201, theirs.text

    answers = await asyncio.wait_for(asyncio.gather(*dripping), LIMIT)
    # On a busy machine one may be cut off before the next begins: then fewer are refused for their number.
    assert {status for status, _ in answers} <= {408, 429}
    cut = [detail for status, detail in answers if status == 408]
    assert len(cut) >= MAX_PER_OWNER
    assert all("too slowly" in detail for detail in cut)
    own = await upload(world, eve, "parking.txt", b"Parking is free on Sundays.")
    assert own.status_code == 201, own.text


async def test_an_upload_at_an_ordinary_pace_arrives_however_long_it_takes(world: World) -> None:
    """Longer than a window, and faster than the minimum."""
    ada = await key_of(world, "ada")

    async def pieces() -> AsyncGenerator[bytes]:
        yield START
        for _ in range(16):
            yield b"A line of a long text.\n" * 200
            await asyncio.sleep(0.15)
        yield f"\r\n--{BOUNDARY}--\r\n".encode()

    sent = await world.http.post("/api/notes", content=pieces(), headers={**ada, "Content-Type": FORM})
    assert sent.status_code == 201, sent.text


async def test_one_who_adds_many_notes_does_not_keep_others_out(world: World) -> None:
    eve, ada = await key_of(world, "eve"), await key_of(world, "ada")
    slow = world.app.library.embedder
    assert isinstance(slow, Slow)
    slow.gate.clear()
    world.app.library.max_under_way = 1_000

    async def add(key: dict[str, str], text: str) -> httpx.Response:
        return await world.http.post("/api/notes", json={"text": text}, headers=key)

    hers = asyncio.create_task(add(eve, "Eve writes. " * 80))
    await until(lambda: slow.asked == 1)
    assert (await add(eve, "Eve writes more. " * 10)).status_code == 503
    theirs = asyncio.create_task(add(ada, "Ada writes one line. " * 10))
    await until(lambda: slow.asked == 2)
    slow.gate.set()
    assert (await hers).status_code == (await theirs).status_code == 201
