"""Test the WebSocket: messages and answers over one connection, and live updates of the conversation."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rapport.channels.http.auth.authentication import COOKIE
from rapport.channels.http.auth.rate_limits import Rules, open_limiter
from rapport.storage.access.api_keys import ApiKeys
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until

Frame = dict[str, Any]


class Phone:
    """A client of the WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: list[Frame] = []

    async def send(self, **frame: Any) -> None:
        await self.connection.send(json.dumps(frame))

    async def ask(self, request_id: str, content: Any, **more: Any) -> None:
        await self.send(type="message", requestId=request_id, content=content, **more)

    async def hear(self) -> Frame:
        frame: Frame = json.loads(await asyncio.wait_for(self.connection.recv(), LIMIT_SECONDS))
        self.heard.append(frame)
        return frame

    async def until(self, kind: str) -> Frame:
        """Wait for the next frame of that type and return it."""
        while True:
            if (frame := await self.hear())["type"] == kind:
                return frame

    def tokens(self, request_id: str) -> str:
        return "".join(one["token"] for one in self.heard if one["type"] == "token" and one["requestId"] == request_id)


@contextlib.asynccontextmanager
async def calling(world: World, thread: str, *, more: str = "", **options: Any) -> AsyncGenerator[Phone]:
    address = str(world.http.base_url).rstrip("/").replace("http://", "ws://")
    async with connect(f"{address}/api/chat/ws?threadId={thread}{more}", **options) as connection:
        yield Phone(connection)


async def refused(world: World, thread: str, **options: Any) -> tuple[int, Frame]:
    """Return the response to a client that is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        async with calling(world, thread, **options):
            pass
    response = refusal.value.response
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.status_code, json.loads(response.body or b"")


# ---- talking


async def test_a_message_is_answered_word_by_word_and_then_as_a_whole(world: World) -> None:
    thread = await world.conversation()
    world.model.will_say("Take the **night** train.")
    async with calling(world, thread) as phone:
        await phone.ask("r1", "How do I get to Lisbon?")
        final = await phone.until("final")
        assert final["requestId"] == "r1"
        assert final["message"]["content"] == "Take the **night** train."
        assert "<strong>night</strong>" in final["message"]["html"]
        assert phone.tokens("r1") == "Take the **night** train."
        assert {frame["type"] for frame in phone.heard} == {"token", "final"}
    assert [one["content"] for one in await world.history(thread)] == [
        "How do I get to Lisbon?",
        "Take the **night** train.",
    ]


async def test_several_messages_are_answered_in_their_order_each_under_its_own_name(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        for number in range(5):
            await phone.ask(f"r{number}", f"question {number}")
        finals = [await phone.until("final") for _ in range(5)]
        assert [one["requestId"] for one in finals] == [f"r{number}" for number in range(5)]
        assert [one["message"]["content"] for one in finals] == [f"re: question {number}" for number in range(5)]
        assert [phone.tokens(f"r{number}") for number in range(5)] == [f"re: question {number}" for number in range(5)]


async def test_what_is_cancelled_keeps_what_was_said_so_far(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("one two three")
    async with calling(world, thread) as phone:
        await phone.ask("r1", "Count!")
        assert (await phone.until("token"))["token"] == "one"
        await step.begun.wait()
        await phone.send(type="cancel", requestId="r1")
        cancelled = await phone.until("cancelled")
        assert cancelled["requestId"] == "r1"
        assert (cancelled["message"]["content"], cancelled["message"]["cancelled"]) == ("one", True)
        await phone.send(type="cancel", requestId="r1")
        assert (await phone.until("error"))["status"] == 404


async def test_cancelling_one_request_leaves_the_others_alone(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("first answer")
    async with calling(world, thread) as one, calling(world, thread) as other:
        await one.ask("r1", "first")
        await step.begun.wait()
        await other.ask("r2", "second")
        await until(lambda: world.sql("SELECT 1 FROM events WHERE state = 'queued'"))
        await other.send(type="cancel", requestId="r2")
        await until(lambda: world.sql("SELECT 1 FROM events WHERE cancel_requested AND state = 'queued'"))
        step.go_on()
        assert (await one.until("final"))["message"]["content"] == "first answer"
        answer = await other.until("cancelled") if not other.heard else other.heard[-1]
        assert answer["requestId"] == "r2"


async def test_a_message_that_is_sent_again_is_answered_with_the_same_answer(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        await phone.ask("r1", "hello", client_message_id="c1")
        first = await phone.until("final")
    async with calling(world, thread) as phone:
        await phone.ask("r9", "hello", client_message_id="c1")
        again = await phone.until("final")
        assert (again["requestId"], again["message"]["id"]) == ("r9", first["message"]["id"])
    assert len(await world.history(thread)) == 2


async def test_in_a_group_what_is_not_for_the_agent_is_stored_and_not_answered(world: World) -> None:
    thread = await world.conversation(kind="group")
    async with calling(world, thread) as phone:
        await phone.ask("r1", "Lunch?", author={"id": "7", "name": "Ada"})
        final = await phone.until("final")
        assert (final["requestId"], final["message"]) == ("r1", None)
        await phone.ask("r2", "@bot what about Thai?", author={"id": "8", "name": "Ben"})
        assert (await phone.until("final"))["message"]["reply_to_id"]
    assert (await world.history(thread))[0]["id"] == final["id"]


# ---- what else happens


async def test_what_others_say_and_what_is_said_unasked_comes_as_messages(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        await world.says(thread, "from elsewhere")
        assert [(await phone.until("message"))["message"]["content"] for _ in range(2)] == [
            "from elsewhere",
            "re: from elsewhere",
        ]
        await world.silence(thread)
        unasked = (await phone.until("message"))["message"]
        assert (unasked["autonomous"], unasked["content"]) == (True, "How is it going?")
        assert "Continue our conversation" not in json.dumps(phone.heard)


async def test_what_is_remembered_is_pushed(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        made = (await world.http.post("/api/memories", json={"content": "Likes tea."})).json()
        assert (await phone.until("memory.created"))["memory"]["content"] == "Likes tea."
        await world.http.patch(f"/api/memories/{made['id']}", json={"content": "Likes coffee."})
        assert (await phone.until("memory.updated"))["memory"]["content"] == "Likes coffee."
        await world.http.delete(f"/api/memories/{made['id']}")
        assert (await phone.until("memory.deleted"))["memory"] == {"id": made["id"]}


async def test_a_reconnecting_client_gets_the_messages_it_missed(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        await world.says(thread, "one")
        seq = [await phone.until("message") for _ in range(2)][-1]["seq"]
    await world.says(thread, "two")
    async with calling(world, thread, more=f"&after={seq}") as phone:
        assert [(await phone.until("message"))["message"]["content"] for _ in range(2)] == ["two", "re: two"]


async def test_a_client_that_disconnects_during_a_turn_is_still_answered(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("patience pays")
    async with calling(world, thread) as phone:
        await phone.ask("r1", "Are you there?")
        await step.begun.wait()
    step.go_on()
    await world.drain()
    assert [one["content"] for one in await world.history(thread)] == ["Are you there?", "patience pays"]
    await until(lambda: world.worker.live_updates.count_subscriptions(thread) == 0)


# ---- what is refused


async def test_a_malformed_frame_is_refused_and_the_connection_stays_open(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        for raw, request_id, status in (
            ("not json", None, 400),
            ("[1]", None, 400),
            ('{"type": "message", "content": "hi"}', None, 400),
            ('{"type": "message", "requestId": 7, "content": "hi"}', None, 400),
            ('{"type": "sing", "requestId": "a"}', "a", 400),
            ('{"type": "cancel", "requestId": "b", "content": "x"}', "b", 400),
            ('{"type": "cancel", "requestId": "c"}', "c", 404),
            ('{"type": "message", "requestId": "d"}', "d", 422),
            ('{"type": "message", "requestId": "e", "content": "x", "synthetic": true}', "e", 422),
            ('{"type": "message", "requestId": "f", "content": ""}', "f", 400),
            ('{"type": "message", "requestId": "g", "content": "a\\u0000b"}', "g", 400),
            ('{"type": "message", "requestId": "h", "content": "hi", "reply_to_id": "nobody"}', "h", 400),
            (json.dumps({"type": "message", "requestId": "i", "content": "x" * 40_000}), "i", 413),
        ):
            await phone.connection.send(raw)
            error = await phone.hear()
            assert (error["type"], error["requestId"], error["status"]) == ("error", request_id, status), raw
            assert error["detail"]
        await phone.connection.send(b"\x00\xff")
        assert (await phone.hear())["status"] == 400
        assert await world.history(thread) == []
        await phone.ask("z", "And now properly.")
        assert (await phone.until("final"))["requestId"] == "z"


async def test_the_id_of_a_pending_request_cannot_be_used_again(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("yes")
    async with calling(world, thread) as phone:
        await phone.ask("r1", "one")
        await step.begun.wait()
        await phone.ask("r1", "two")
        assert (await phone.until("error"))["status"] == 400
        step.go_on()
        assert (await phone.until("final"))["message"]["content"] == "yes"


async def test_who_writes_too_fast_is_told_when_to_come_back(database_url: str) -> None:
    async with (
        open_limiter(rules=Rules(requests=1, window=60)) as limiter,
        open_world(database_url, limiter=limiter) as world,
    ):
        thread = await world.conversation()
        async with calling(world, thread) as phone:
            await phone.ask("r1", "one")
            await phone.until("final")
            await phone.ask("r2", "two")
            error = await phone.until("error")
            assert (error["requestId"], error["status"]) == ("r2", 429)
            assert error["retryAfter"] >= 1
        assert len(await world.history(thread)) == 2


async def test_a_too_large_frame_ends_the_connection(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        with contextlib.suppress(ConnectionClosed):
            await phone.connection.send("x" * 3_000_000)
        with pytest.raises(ConnectionClosed):
            await phone.hear()
    assert (await world.http.get("/healthz")).status_code == 200


async def test_a_conversation_that_is_not_yours_can_not_be_opened(world: World) -> None:
    foreign = await world.conversation(owner="somebody")
    for thread in (foreign, "", "nonsense"):
        status, problem = await refused(world, thread)
        assert (status, problem["title"]) == (404, "Not found")
    assert (await refused(world, await world.conversation(), more="&after=x"))[0] == 400


async def test_whoever_is_not_let_in_is_no_error_of_the_server(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody can send an invalid request; that must not cause an error in the log."""
    assert (await refused(world, "nonsense"))[0] == 404
    async with calling(world, await world.conversation()):
        pass
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


async def test_without_keys_a_page_of_another_site_is_not_let_in(world: World) -> None:
    thread = await world.conversation()
    for origin in ("https://evil.example", "null", "http://localhost.evil.example", "http://localhost:3000"):
        status, problem = await refused(world, thread, origin=origin)
        assert status == 401
        assert "other sites" in problem["detail"]
    async with calling(world, thread, origin=str(world.http.base_url).rstrip("/")) as phone:
        await phone.ask("r1", "hi")
        await phone.until("final")


async def test_with_keys_a_key_opens_it_and_nothing_else_does(world: World) -> None:
    async with world.database.statement() as connection:
        _, secret = await ApiKeys(connection).create("ada", name="ada")
    thread = await world.conversation(owner="ada")
    assert (await refused(world, thread))[0] == 401
    assert (await refused(world, thread, additional_headers={"Authorization": "Bearer wrong"}))[0] == 401
    async with calling(world, thread, additional_headers={"Authorization": f"Bearer {secret}"}) as phone:
        await phone.ask("r1", "hi")
        assert (await phone.until("final"))["message"]["content"] == "re: hi"


async def test_a_cookie_opens_it_only_for_a_page_of_this_server(world: World) -> None:
    async with world.database.statement() as connection:
        _, secret = await ApiKeys(connection).create("ada", name="ada")
    thread = await world.conversation(owner="ada")
    here = str(world.http.base_url).rstrip("/")
    signed_in = await world.http.post("/api/session", json={"key": secret}, headers={"X-Rapport": "page"})
    assert signed_in.status_code == 204, signed_in.text
    cookie = {"Cookie": f"{COOKIE}={signed_in.cookies[COOKIE]}"}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert (await refused(world, thread, additional_headers=cookie, origin=origin))[0] == 403, origin
    async with calling(world, thread, additional_headers=cookie, origin=here) as phone:
        await phone.ask("r1", "hi")
        await phone.until("final")


async def test_a_stopping_server_closes_the_socket_with_a_code_to_reconnect(world: World) -> None:
    thread = await world.conversation()
    async with calling(world, thread) as phone:
        world.worker.begin_drain(1)
        with pytest.raises(ConnectionClosed) as closed:
            await phone.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    assert (await refused(world, thread))[0] == 503
