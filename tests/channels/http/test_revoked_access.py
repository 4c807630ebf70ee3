"""Test that a revoked key or a signed-out session ends its open streams at once, whichever process ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from rapport.channels.http.auth.authentication import COOKIE
from rapport.channels.http.live import event_feed as watching
from rapport.storage.access.api_keys import ApiKeys
from rapport.storage.access.sessions import Sessions
from tests.support.commands import Run
from tests.support.listening import listening
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World

LIMIT = LIMIT_SECONDS
PAGE = {"X-Rapport": "page"}


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the periodic check off, so that only notifications can end a stream."""
    monkeypatch.setattr(watching, "ACCESS_CACHE_SECONDS", 3600.0)
    monkeypatch.setattr(watching, "KEEPALIVE_SECONDS", 3600.0)


async def make_key(world: World, user: str = "ada") -> tuple[str, str]:
    async with world.database.statement() as connection:
        row, secret = await ApiKeys(connection).create(user, name=user)
    return row.id, secret


async def sign_in(world: World, secret: str) -> str:
    async with world.database.statement() as connection:
        token = await Sessions(connection).open(secret)
    assert token is not None
    return token


@contextlib.asynccontextmanager
async def calling(world: World, thread: str, **options: Any) -> AsyncGenerator[ClientConnection]:
    address = str(world.http.base_url).rstrip("/").replace("http://", "ws://")
    async with connect(f"{address}/api/chat/ws?threadId={thread}", **options) as connection:
        yield connection


def with_key(secret: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {secret}"}}


def with_cookie(world: World, token: str) -> dict[str, Any]:
    origin = Origin(str(world.http.base_url).rstrip("/"))
    return {"additional_headers": {"Cookie": f"{COOKIE}={token}"}, "origin": origin}


async def assert_ended(socket: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await asyncio.wait_for(socket.recv(), LIMIT)
    assert socket.close_code == 4401


async def test_revoking_a_key_in_another_process_ends_its_streams(world: World, rapport: Run) -> None:
    key_id, secret = await make_key(world)
    thread = await world.conversation(owner="ada")
    async with (
        listening(world.http, thread, Authorization=f"Bearer {secret}") as listener,
        calling(world, thread, **with_key(secret)) as socket,
    ):
        revoked = await asyncio.to_thread(rapport, "keys", "revoke", key_id)
        assert revoked.code == 0, revoked
        await asyncio.wait_for(listener.ended.wait(), LIMIT)
        await assert_ended(socket)


async def test_revoking_a_key_ends_the_streams_of_its_sessions(world: World) -> None:
    key_id, secret = await make_key(world)
    token = await sign_in(world, secret)
    thread = await world.conversation(owner="ada")
    async with (
        listening(world.http, thread, Cookie=f"{COOKIE}={token}") as listener,
        calling(world, thread, **with_cookie(world, token)) as socket,
    ):
        async with world.database.statement() as connection:
            assert await ApiKeys(connection).revoke(key_id)
        await asyncio.wait_for(listener.ended.wait(), LIMIT)
        await assert_ended(socket)


async def test_signing_out_ends_the_streams_of_that_browser_and_no_other(world: World) -> None:
    _, secret = await make_key(world)
    here, elsewhere = await sign_in(world, secret), await sign_in(world, secret)
    thread = await world.conversation(owner="ada", kind="group")
    async with (
        listening(world.http, thread, Cookie=f"{COOKIE}={here}") as listener,
        listening(world.http, thread, Cookie=f"{COOKIE}={elsewhere}") as other,
        calling(world, thread, **with_cookie(world, here)) as socket,
    ):
        out = await world.http.delete("/api/session", headers={**PAGE, "Cookie": f"{COOKIE}={here}"})
        assert out.status_code == 204
        await asyncio.wait_for(listener.ended.wait(), LIMIT)
        await assert_ended(socket)
        headers = {**PAGE, "Cookie": f"{COOKIE}={elsewhere}"}
        said = await world.http.post(
            f"/chat/conversations/{thread}/messages", json={"content": "still here"}, headers=headers
        )
        assert said.status_code == 202
        await other.until_said("still here")


async def test_another_key_of_the_owner_goes_on(world: World) -> None:
    key_id, secret = await make_key(world)
    _, kept = await make_key(world)
    thread = await world.conversation(owner="ada")
    async with (
        calling(world, thread, **with_key(secret)) as socket,
        calling(world, thread, **with_key(kept)) as other,
    ):
        async with world.database.statement() as connection:
            assert await ApiKeys(connection).revoke(key_id)
        await assert_ended(socket)
        await other.send(json.dumps({"type": "message", "requestId": "1", "content": "hello"}))
        while (frame := json.loads(await asyncio.wait_for(other.recv(), LIMIT)))["type"] != "final":
            pass
        assert frame["message"]["content"] == "re: hello"


@pytest.mark.parametrize("frame", ["message", "cancel"])
async def test_a_message_after_the_key_was_revoked_is_not_taken(world: World, frame: str) -> None:
    """Also without a notification: here only the row is changed."""
    _, secret = await make_key(world)
    thread = await world.conversation(owner="ada")
    async with calling(world, thread, **with_key(secret)) as socket:
        await world.sql("UPDATE api_keys SET revoked_at = clock_timestamp()")
        content = {"content": "a last word"} if frame == "message" else {}
        await socket.send(json.dumps({"type": frame, "requestId": "1", **content}))
        refused = json.loads(await asyncio.wait_for(socket.recv(), LIMIT))
        assert (refused["type"], refused["status"], refused["requestId"]) == ("error", 401, "1")
        await assert_ended(socket)
    assert await world.sql("SELECT count(*) FROM messages") == [(0,)]


async def test_the_first_key_ends_the_streams_of_those_who_have_none(world: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as listener, calling(world, thread) as socket:
        await make_key(world)
        await asyncio.wait_for(listener.ended.wait(), LIMIT)
        await assert_ended(socket)


async def test_a_key_of_a_user_with_a_very_long_name_can_be_revoked(world: World) -> None:
    key_id, _ = await make_key(world, "ä" * 9_000)
    async with world.database.statement() as connection:
        assert await ApiKeys(connection).revoke(key_id)
        assert not await ApiKeys(connection).revoke(key_id)
