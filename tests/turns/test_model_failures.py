"""Test that every failure of the model gives exactly one reply, in time, and the next turn works (RES-2, RES-4).

What the agent makes of a single failure is told in tests/agents/test_models.py; here it is what people see of it, with
notes and without, over HTTP and as a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import pytest
from bench.processes import free_port

from rapport.agents.openai import make_openai
from rapport.domain.server_note import strip_note
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world

FALLBACK = "Temporary issue generating response. Here are the relevant documents summary: "
REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
HOW_LONG = "How long can I return something I bought?"
MOONS = "Which planet has the most moons?"
ANSWER = "Within 30 days [source: refunds], that much is sure."

DEADLINE = 3.0
SILENCE = 1.5
"""Time limits of a world whose model never answers. The limits of other worlds are so long that only a hang reaches them."""

Behaviour: TypeAlias = "Callable[[Wire, int], Awaitable[None]]"


@dataclass
class Wire:
    """One request to the model: how it shall be answered, and the bare connection to do so."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    streamed: bool

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def head(self, *, status: str = "200 OK", **headers: object) -> None:
        kind = "text/event-stream" if self.streamed else "application/json"
        told = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in told.items())]
        self.send("\r\n".join(lines).encode(), b"\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        """A piece of a body that is sent in chunks; an empty one ends it."""
        self.send(f"{len(data):x}\r\n".encode(), data, b"\r\n")

    def whole(self, body: bytes, *, status: str = "200 OK", **headers: object) -> None:
        self.head(status=status, Content_Length=len(body), **headers)
        self.send(body)

    def answer(self, text: str) -> bytes:
        """A sound answer's body."""
        if not self.streamed:
            message = {"role": "assistant", "content": text}
            return _completion([{"index": 0, "message": message, "finish_reason": "stop"}])
        words = [f"{word} " for word in text.split(" ")]
        words[-1] = words[-1].rstrip()
        return b"".join([*map(delta, words), delta(None), b"data: [DONE]\n\n"])

    def abort(self) -> None:
        """Reset the connection: what the other side has not read yet is lost."""
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Until the other side gives up."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()


def _completion(choices: list[dict[str, Any]]) -> bytes:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "faulty",
        "choices": choices,
        "usage": usage,
    }
    return json.dumps(whole).encode()


def delta(text: str | None) -> bytes:
    choice = {
        "index": 0,
        "delta": {} if text is None else {"role": "assistant", "content": text},
        "finish_reason": "stop" if text is None else None,
    }
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "faulty", "choices": [choice]}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


# ---- what it can do wrong


async def fine(wire: Wire, attempt: int) -> None:
    wire.whole(wire.answer(ANSWER))


async def hang(wire: Wire, attempt: int) -> None:
    await wire.gone()


async def hang_after_headers(wire: Wire, attempt: int) -> None:
    wire.head(Content_Length=1000)
    await wire.gone()


async def hang_in_the_middle(wire: Wire, attempt: int) -> None:
    body = wire.answer(ANSWER)
    wire.head(Content_Length=len(body))
    wire.send(body[: len(body) // 2])
    await wire.gone()


async def drip(wire: Wire, attempt: int) -> None:
    wire.head(Transfer_Encoding="chunked")
    gone = asyncio.create_task(wire.gone())
    while not gone.done():
        wire.chunk(delta("drip ") if wire.streamed else b" ")
        await asyncio.wait([gone], timeout=0.3)


async def fails(wire: Wire, attempt: int) -> None:
    wire.whole(b'{"error": {"message": "out of order"}}', status="500 Internal Server Error")


async def fails_once(wire: Wire, attempt: int) -> None:
    await (fails if attempt == 1 else fine)(wire, attempt)


async def busy_for_a_second(wire: Wire, attempt: int) -> None:
    if attempt > 1:
        await fine(wire, attempt)
    else:
        wire.whole(b'{"error": {"message": "slow down"}}', status="429 Too Many Requests", Retry_After=1)


async def busy_for_an_hour(wire: Wire, attempt: int) -> None:
    wire.whole(b'{"error": {"message": "slow down"}}', status="429 Too Many Requests", Retry_After=3600)


async def reset(wire: Wire, attempt: int) -> None:
    wire.abort()


async def reset_in_the_middle(wire: Wire, attempt: int) -> None:
    body = wire.answer(ANSWER)
    wire.head(Transfer_Encoding="chunked")
    wire.chunk(body[: len(body) // 2])
    await wire.writer.drain()
    await asyncio.sleep(0.05)  # a reset overtakes what was sent just before
    wire.abort()


async def reset_in_the_middle_once(wire: Wire, attempt: int) -> None:
    await (reset_in_the_middle if attempt == 1 else fine)(wire, attempt)


async def closed_in_the_middle(wire: Wire, attempt: int) -> None:
    body = wire.answer(ANSWER)
    wire.head(Transfer_Encoding="chunked")
    wire.chunk(body[: len(body) // 2])
    wire.writer.close()


async def truncated_json(wire: Wire, attempt: int) -> None:
    wire.whole((delta("Within").strip()[:-9] + b"\n\n") if wire.streamed else wire.answer(ANSWER)[:-9])


async def html(wire: Wire, attempt: int) -> None:
    wire.whole(b"<!doctype html><title>Bad gateway</title><h1>502</h1>")


async def empty_content(wire: Wire, attempt: int) -> None:
    wire.whole(wire.answer(""))


async def empty_choices(wire: Wire, attempt: int) -> None:
    frame = b'data: {"id": "x", "object": "chat.completion.chunk", "choices": []}\n\ndata: [DONE]\n\n'
    wire.whole(frame if wire.streamed else _completion([]))


async def no_message(wire: Wire, attempt: int) -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": null, "finish_reason": "stop"}]}\n\n'
    wire.whole(frame if wire.streamed else _completion([{"index": 0, "message": None, "finish_reason": "stop"}]))


async def error_in_disguise(wire: Wire, attempt: int) -> None:
    error = b'{"error": {"message": "the model is loading", "type": "server_error"}}'
    wire.whole(b"data: " + error + b"\n\n" if wire.streamed else error)


async def not_an_object(wire: Wire, attempt: int) -> None:
    wire.whole(b"data: [1, 2]\n\n" if wire.streamed else b"null")


async def length_too_great(wire: Wire, attempt: int) -> None:
    wire.head(Content_Length=100_000)
    wire.send(wire.answer(ANSWER))
    wire.writer.close()


async def length_too_small(wire: Wire, attempt: int) -> None:
    body = wire.answer(ANSWER)
    wire.head(Content_Length=40)
    wire.send(body)


async def not_http(wire: Wire, attempt: int) -> None:
    wire.send(b"220 mail.example.org ESMTP ready\r\n")
    wire.writer.close()


HANGING: list[Behaviour] = [hang, hang_after_headers, hang_in_the_middle, drip]
FAILING: list[Behaviour] = [
    *[*HANGING, fails, busy_for_an_hour, reset, reset_in_the_middle],
    *[closed_in_the_middle, truncated_json, html, empty_content, empty_choices, no_message, error_in_disguise],
    *[not_an_object, length_too_great, length_too_small, not_http],
]
RECOVERING: list[Behaviour] = [fails_once, busy_for_a_second, reset_in_the_middle_once]
BEHAVIOURS = {behaviour.__name__: behaviour for behaviour in (fine, *FAILING, *RECOVERING)}


@dataclass
class FaultyModel:
    """Speaks OpenAI's API on a bare socket, and behaves as the last word of the message says."""

    url: str = ""
    calls: Counter[str] = field(default_factory=Counter[str])
    """By message."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                said = strip_note(body["messages"][-1]["content"])
                self.calls[said] += 1
                wire = Wire(reader, writer, streamed=bool(body.get("stream")))
                await BEHAVIOURS[said.split()[-1]](wire, self.calls[said])
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def faulty_model() -> AsyncGenerator[FaultyModel]:
    model = FaultyModel()
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, backlog=256)
    host, port = server.sockets[0].getsockname()[:2]
    model.url = f"http://{host}:{port}/v1"
    try:
        yield model
    finally:
        server.close()


def chat_model(url: str, silence: float) -> Any:
    return make_openai("faulty", timeout=silence, environment={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"})


@contextlib.asynccontextmanager
async def world_at(
    database_url: str, url: str, *, deadline: float = LIMIT_SECONDS, silence: float = LIMIT_SECONDS
) -> AsyncGenerator[World]:
    """Open a world with one note, whose model is asked at this address."""
    async with open_world(
        database_url, model=chat_model(url, silence), turn_deadline=deadline, model_timeout=silence, max_turns=128
    ) as world:
        added = await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
        assert added.status_code in {200, 201}  # the second world of a test finds it there
        yield world


@dataclass(frozen=True)
class Seen:
    """What a client saw of one turn."""

    reply: dict[str, Any]
    tokens: str


async def turn(world: World, conversation: str, said: str, *, streamed: bool) -> Seen:
    if not streamed:
        reply = await world.says(conversation, said)
        return Seen(reply, reply["content"])
    response = await world.http.post(
        f"/chat/conversations/{conversation}/messages", json={"content": said}, headers={"accept": "text/event-stream"}
    )
    frames = [frame.split("\n") for frame in response.text.strip().split("\n\n") if not frame.startswith(":")]
    names = [name.removeprefix("event: ") for name, _ in frames]
    data = [json.loads(line.removeprefix("data: ")) for _, line in frames]
    assert names == ["token"] * (len(names) - 1) + ["final"]
    return Seen(data[-1], "".join(one["token"] for one in data[:-1]))


FELL_BACK_ON_NOTES = f"{FALLBACK}{REFUNDS} [source: refunds]\n\nSources: refunds"
ANSWERED_FROM_NOTES = f"{ANSWER}\n\nSources: refunds"
ANSWERED_WITHOUT = "Within 30 days, that much is sure. (Removed invalid citation)"


async def turn_with(world: World, agent: str, behaviour: Behaviour, *, streamed: bool) -> str:
    """Check a turn with this behaviour, as a client and the database see it; return the conversation."""
    with_notes = agent == "librarian"
    question = HOW_LONG if with_notes else MOONS
    conversation = (await world.http.post("/chat/conversations", json={"agent": agent})).json()["id"]
    # Of its own for each way, so that the calls are counted apart.
    said = f"{question} {'streamed' if streamed else 'plain'} {agent} {behaviour.__name__}"
    seen = await turn(world, conversation, said, streamed=streamed)
    reply = seen.reply
    if behaviour in FAILING:
        assert reply["fallbackUsed"] is True
        if with_notes:
            assert reply["content"] == FELL_BACK_ON_NOTES
            assert reply["sources"] == [{"id": "refunds", "text": REFUNDS}]
        else:
            assert reply["content"].startswith(FALLBACK)
            assert reply["sources"] == []
        # What a client has read before the failure is the beginning of what the model said, or else the whole reply.
        read = [ANSWER if with_notes else ANSWERED_WITHOUT, "drip " * 20]
        assert seen.tokens == reply["content"] or any(said.startswith(seen.tokens.rstrip()) for said in read)
    else:
        assert reply["fallbackUsed"] is False
        assert reply["content"] == (ANSWERED_FROM_NOTES if with_notes else ANSWERED_WITHOUT)
        assert reply["content"].startswith(seen.tokens.rstrip())
    assert reply["guardUsed"] is False
    stored = await world.history(conversation)
    assert [message["role"] for message in stored] == ["user", "assistant"]
    assert stored[1] == reply
    return conversation


async def next_turn(world: World, agent: str, conversation: str, *, streamed: bool) -> None:
    """Check that the conversation goes on with a sound model."""
    with_notes = agent == "librarian"
    question = HOW_LONG if with_notes else MOONS
    seen = await turn(world, conversation, f"{question} {fine.__name__}", streamed=streamed)
    assert seen.reply["fallbackUsed"] is False
    assert seen.reply["content"] == seen.tokens == (ANSWERED_FROM_NOTES if with_notes else ANSWERED_WITHOUT)
    assert len(await world.history(conversation)) == 4


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("agent", ["librarian", "companion"])
async def test_every_failure_gets_one_reply_in_time_and_the_next_turn_works(
    database_url: str, agent: str, streamed: bool
) -> None:
    others = [case for case in (*FAILING, *RECOVERING) if case not in HANGING]
    async with faulty_model() as model:
        async with world_at(database_url, model.url, deadline=DEADLINE, silence=SILENCE) as world:
            conversations = await every({case: turn_with(world, agent, case, streamed=streamed) for case in HANGING})
        async with world_at(database_url, model.url) as world:
            conversations |= await every({case: turn_with(world, agent, case, streamed=streamed) for case in others})
            turns = {case: next_turn(world, agent, here, streamed=streamed) for case, here in conversations.items()}
            await every(turns)
            assert await world.sql("SELECT count(*) FROM events WHERE state <> 'done'") == [(0,)]

    def calls(case: Behaviour) -> int:
        return sum(number for said, number in model.calls.items() if said.endswith(f" {case.__name__}"))

    # Two retries for a transient failure, none for a permanent one.
    assert [calls(case) for case in (fails, reset, empty_content, closed_in_the_middle)] == [3, 3, 3, 3]
    assert [calls(case) for case in (busy_for_an_hour, fails_once, busy_for_a_second)] == [1, 2, 2]


T = TypeVar("T")


async def every(cases: Mapping[Behaviour, Coroutine[Any, Any, T]]) -> dict[Behaviour, T]:
    """Return what becomes of all cases at once; fail with each that fails."""
    outcomes = await asyncio.gather(*cases.values(), return_exceptions=True)
    failures = {
        case.__name__: repr(end) for case, end in zip(cases, outcomes, strict=True) if isinstance(end, BaseException)
    }
    assert failures == {}
    return {case: end for case, end in zip(cases, outcomes, strict=True) if not isinstance(end, BaseException)}


async def test_a_model_that_nobody_serves(database_url: str) -> None:
    async with world_at(database_url, f"http://127.0.0.1:{free_port()}/v1") as world:
        for streamed in (False, True):
            conversation = (await world.http.post("/chat/conversations", json={})).json()["id"]
            seen = await turn(world, conversation, HOW_LONG, streamed=streamed)
            assert seen.reply["content"] == seen.tokens == FELL_BACK_ON_NOTES
            assert seen.reply["fallbackUsed"] is True
            assert len(await world.history(conversation)) == 2
    # The same conversation, with a model again.
    async with faulty_model() as model, world_at(database_url, model.url) as world:
        seen = await turn(world, conversation, f"{HOW_LONG} fine", streamed=True)
        assert (seen.reply["content"], seen.reply["fallbackUsed"]) == (ANSWERED_FROM_NOTES, False)
