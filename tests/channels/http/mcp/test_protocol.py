"""Test the messages of the protocol as they go over the wire: malformed, huge and unknown ones, limits, and a missing package."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rapport.channels.http.auth.rate_limits import Limiter, MemoryWindows, Rules, WindowCounts
from rapport.channels.http.mcp.caller_access import CallerAccess
from rapport.channels.http.mcp.messages import METHODS, answer_message
from rapport.channels.http.openai.conversation_choice import ConversationChoice
from rapport.channels.http.problems import SERVER_ERROR
from rapport.domain.caller import LOCAL_CALLER
from tests.channels.http.mcp.clients import connected, post
from tests.support.world import World, open_world, until
from tests.turns.test_autonomous_messages import everything_logged

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


def request(method: str, id_: Any = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


MALFORMED: list[tuple[bytes, int]] = [
    (b"", PARSE_ERROR),
    (b"nonsense", PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', PARSE_ERROR),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', PARSE_ERROR),
    (b"\xff\xfe", PARSE_ERROR),
    (b"[" * 100_000, PARSE_ERROR),
    (b"[]", INVALID_REQUEST),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', INVALID_REQUEST),
    (b"7", INVALID_REQUEST),
    (b"null", INVALID_REQUEST),
    (b"{}", INVALID_REQUEST),
    (b'{"id": 1, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": 7}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "quokka"}', INVALID_REQUEST),
]


async def test_what_is_no_message_gets_one_sentence(world: World) -> None:
    with everything_logged() as logs:
        for body, code in MALFORMED:
            answer = await post(world, body)
            assert answer.status_code == 400, (body[:80], answer.text)
            error = answer.json()["error"]
            assert (error["code"], "\n" in error["message"]) == (code, False), body[:80]
            assert len(error["message"]) < 200
    assert "quokka" not in str(logs)


async def test_a_request_that_can_t_be_answered_gets_one_sentence_and_its_id(world: World) -> None:
    cases: list[tuple[bytes, int, str]] = [
        (request("tools/delete"), METHOD_NOT_FOUND, "There is no method 'tools/delete'; there are initialize, ping"),
        (request("resources/read", uri=""), INVALID_PARAMS, "`params.uri` must be a whole address, such as"),
        (request("x" * 10_000), METHOD_NOT_FOUND, "There is no method 'xxx"),
        (request("prompts/list"), METHOD_NOT_FOUND, "There is no method"),
        (request("logging/setLevel", level="debug"), METHOD_NOT_FOUND, "There is no method"),
        (request("tools/call"), INVALID_PARAMS, "The field `params.name` is missing."),
        (request("tools/call", name=["quokka"]), INVALID_PARAMS, "`params.name` must be a text."),
        (request("tools/call", name="ask", arguments="quokka"), INVALID_PARAMS, "`params.arguments` must be"),
        (request("resources/read"), INVALID_PARAMS, "The field `params.uri` is missing."),
        (request("resources/read", uri="no address, quokka"), INVALID_PARAMS, "`params.uri`"),
        (request("resources/list", cursor=7), INVALID_PARAMS, "`params.cursor` must be a text."),
        (request("initialize"), INVALID_PARAMS, "missing"),
    ]
    with everything_logged() as logs:
        for body, code, sentence in cases:
            answer = await post(world, body)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert (told["id"], told["error"]["code"]) == (1, code), told
            assert sentence in told["error"]["message"], told
            assert len(told["error"]["message"]) < 300
    assert "quokka" not in str(logs)


async def test_ids_come_back_as_they_were_sent(world: World) -> None:
    for id_ in (0, -1, 2**53, "", "a", "7"):
        answer = await post(world, request("ping", id_))
        assert answer.json() == {"jsonrpc": "2.0", "id": id_, "result": {}}


async def test_every_method_is_answered_without_a_session(world: World) -> None:
    """Each message stands alone: no header of a session is needed, sent or believed."""
    params: dict[str, dict[str, Any]] = {
        "initialize": {
            "protocolVersion": "1999-01-01",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
        "tools/call": {"name": "list_conversations"},
    }
    for headers in ({}, {"Mcp-Session-Id": "of-somebody-else"}, {"MCP-Protocol-Version": "2025-06-18"}):
        for method in set(METHODS) - {"resources/read"}:
            answer = await post(world, request(method, **params.get(method, {})), **headers)
            assert answer.status_code == 200
            assert "result" in answer.json(), answer.text
            assert answer.headers["Cache-Control"] == "no-store"
            assert "Mcp-Session-Id" not in answer.headers
    unknown = await post(world, request("ping"), **{"MCP-Protocol-Version": "1999-01-01"})
    assert unknown.status_code == 400
    assert unknown.json()["detail"].startswith("`MCP-Protocol-Version` is none of ")


async def test_notifications_and_answers_of_a_client_get_no_answer(world: World) -> None:
    for body in (
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "method": "notifications/nonsense", "params": {"a": 1}}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}',
    ):
        answer = await post(world, body)
        assert (answer.status_code, answer.content) == (202, b""), body


async def test_a_huge_message_is_refused(world: World) -> None:
    answer = await post(world, request("tools/call", name="ask", arguments={"message": "x" * 2_000_000}))
    assert (answer.status_code, answer.json()["detail"]) == (413, "The request is larger than 2,000,000 bytes.")


async def test_there_is_no_stream_to_open_or_session_to_end(world: World) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = await world.http.request(method, "/mcp", headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


async def test_a_message_in_another_format_is_refused(world: World) -> None:
    for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
        answer = await post(world, request("ping"), **{"Content-Type": kind})
        assert answer.status_code == 415, kind


async def test_the_text_of_an_unexpected_error_is_not_told(world: World) -> None:
    async def fail(_conversation_id: str) -> None:
        raise RuntimeError("the password is quokka")

    access = CallerAccess(world.app.core, ConversationChoice(world.app.core), LOCAL_CALLER, 1_000, fail)
    answer = await answer_message(access, request("tools/call", name="ask", arguments={"message": "Hi"}))
    assert json.loads(answer.data or b"")["error"] == {"code": -32603, "message": SERVER_ERROR}


async def test_messages_to_agents_count_as_messages(database_url: str) -> None:
    moments = [0.0]

    def clock() -> float:
        return moments[0]

    limiter = Limiter(WindowCounts(MemoryWindows(clock), clock), rules=Rules(requests=2, window=300))
    async with open_world(database_url, limiter=limiter) as world, connected(str(world.http.base_url)) as client:
        for _ in range(2):
            assert (await client.call("ask", message="Hi"))["reply"] == "re: Hi"
        refused = await client.refuse("ask", message="Hi", keep=True)
        assert refused.startswith("Too many messages from this address: at most 2 in 300 seconds. Try again in")
        assert (await client.call("list_conversations"))["conversations"] == []
        moments[0] = 301.0
        assert (await client.call("ask", message="Hi"))["reply"] == "re: Hi"


async def test_a_client_that_leaves_loses_no_message_and_leaves_nothing_behind(world: World) -> None:
    """The turn of a stored conversation goes on; an ephemeral conversation is erased after its turn."""
    here = await world.conversation()
    for arguments in ({"message": "Kept?", "conversation_id": here}, {"message": "Kept?"}):
        step = world.model.will_wait("at last")
        asking = asyncio.create_task(post(world, request("tools/call", name="ask", arguments=arguments)))
        await step.begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        step.go_on()
        await world.drain()
    assert [one["content"] for one in await world.history(here)] == ["Kept?", "at last"]

    async def only_one_is_left() -> bool:
        return await world.sql("SELECT id FROM conversations") == [(here,)]

    await until(only_one_is_left)
