"""Test real models over real HTTP: requests, answers, and failures of the provider (RES-2, RES-4)."""

# LangChain annotates `bind_tools` and `with_structured_output` with bare dicts.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

import httpx
import pytest
from aiohttp import web
from bench.processes import free_port
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, SecretStr

from rapport.agents.failures import ModelFailed
from rapport.agents.graph import LangGraphAgent
from rapport.agents.graph_run import FixedPrompt, Prompt, RunContext
from rapport.agents.models import close_model, make_model
from rapport.agents.openai import LeanChatOpenAI
from rapport.agents.tools.recorded import Requests
from rapport.agents.tools.toolbox import Toolbox
from rapport.domain.errors import Permanent
from rapport.replies.reply_kinds import FALLBACK
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world

ROOT = Path(__file__).parents[2]
PLAIN_FAULTS = ("500", "429", "reset", "reset_mid", "malformed", "empty")
KINDS = {
    "500": "http_500",
    "429": "http_429",
    "reset": "network",
    "reset_mid": "network",
    "malformed": "malformed",
    "empty": "empty",
}


class MockModel:
    """The bench's model server in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/v1"
        self._http = httpx.Client(base_url=url, trust_env=False)

    def behave(self, **settings: Any) -> None:
        """Set the behaviour, and reset the counts."""
        defaults = {"fault": "none", "tokens": 8, "retry_after": 0, "timeout_s": 60, "slow_tokens_per_second": 5}
        self._http.post("/_mock/config", json={**defaults, **settings}).raise_for_status()
        self._http.post("/_mock/reset").raise_for_status()

    @property
    def calls(self) -> int:
        return int(self._http.get("/_mock/stats").json()["calls"])

    def answers(self) -> bool:
        try:
            return self._http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def running_mock() -> Generator[MockModel]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.model", "--port", str(port)], cwd=ROOT)
    mock = MockModel(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + LIMIT_SECONDS
    while not mock.answers():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield mock
    mock.close()
    process.terminate()
    process.wait(LIMIT_SECONDS)


@pytest.fixture
def mock(running_mock: MockModel) -> MockModel:
    running_mock.behave()
    return running_mock


@asynccontextmanager
async def model_at(url: str, *, timeout: float = LIMIT_SECONDS) -> AsyncGenerator[LeanChatOpenAI]:
    model = make_model("openai:mock", timeout=timeout, environment={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "key"})
    assert isinstance(model, LeanChatOpenAI)
    try:
        yield model
    finally:
        await close_model(model)


def agent_with(model: BaseChatModel, *, deadline: float = LIMIT_SECONDS) -> LangGraphAgent:
    return LangGraphAgent(model, InMemorySaver(), deadline=deadline)


async def streamed(model: Runnable[Any, Any], messages: Sequence[BaseMessage], **more: Any) -> AIMessageChunk:
    whole: AIMessageChunk | None = None
    async for chunk in model.astream(messages, **more):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


# ---- answers


async def test_an_answer_comes_back_whole_with_its_usage(mock: MockModel) -> None:
    async with model_at(mock.url) as model:
        reply = await model.ainvoke([HumanMessage("hello")])
    assert reply.text == "the mock answers with plain words so every"
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["output_tokens"] == 8
    assert reply.usage_metadata["input_tokens"] > 0
    assert reply.response_metadata["finish_reason"] == "stop"


async def test_an_answer_is_streamed_word_by_word(mock: MockModel) -> None:
    async with model_at(mock.url) as model:
        parts = [str(chunk.text) async for chunk in model.astream([HumanMessage("hello")])]
        whole = await streamed(model, [HumanMessage("hello")])
    assert [part for part in parts if part] == [
        "the",
        " mock",
        " answers",
        " with",
        " plain",
        " words",
        " so",
        " every",
    ]
    assert whole.text == "the mock answers with plain words so every"
    assert whole.response_metadata["finish_reason"] == "stop"


async def test_a_streamed_answer_tells_its_usage_when_asked_to(mock: MockModel) -> None:
    async with model_at(mock.url) as model:
        whole = await streamed(model, [HumanMessage("hello")], stream_usage=True)
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 8


async def test_many_answers_at_once_do_not_mix(mock: MockModel) -> None:
    mock.behave(tokens=3, latency_ms=20)
    async with model_at(mock.url) as model:
        agent = agent_with(model)
        replies = await asyncio.gather(*(agent.run(str(n), thread_id=str(n), system="") for n in range(40)))
    mock.behave(latency_ms=0)
    assert {str(reply.text) for reply in replies} == {"the mock answers"}


# ---- a provider that says what it is told, and remembers what it was asked

Answer: TypeAlias = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def completion(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
HELLO = [event({"role": "assistant", "content": ""}), event({"content": "Hel"}), event({"content": "lo."}), DONE]


async def says_hello(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return (
        await stream(HELLO)(request, body)
        if body.get("stream")
        else web.json_response(completion({"content": "Hello."}))
    )


def plain(message: dict[str, Any]) -> Answer:
    async def answer(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(completion(message))

    return answer


def refusal(status: int, text: str = "no", **headers: str) -> Answer:
    async def answer(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": text}}, status=status, headers=headers)

    return answer


def stream(parts: Sequence[bytes], *, then: Callable[[asyncio.Transport], None] | None = None) -> Answer:
    """Return the parts as they are; `then` does something to the connection instead of ending the response."""

    async def answer(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if then is not None:
            await asyncio.sleep(0.05)  # so that the written bytes arrive before the end
            then(cast("asyncio.Transport", request.transport))
        return response

    return answer


async def hangs_up(request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
    """Ends the connection in the ordinary way, with FIN, instead of answering."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


class Provider:
    """A provider that records requests and gives scripted answers; without a script it says hello."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.will: deque[Answer] = deque()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return await (self.will.popleft() if self.will else says_hello)(request, body)


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    made = Provider()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}/v1"
    yield made
    await runner.cleanup()


@tool
def weather(city: str, days: int = 1) -> str:
    """Return what the weather will be in a city."""
    return f"{city}: {days}"


TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
CONVERSATIONS: dict[str, list[BaseMessage]] = {
    "words": [HumanMessage("hello")],
    "a window": [
        SystemMessage("be kind"),
        HumanMessage("one", id="01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        AIMessage("two"),
        HumanMessage("three 👋 \u2028 世界"),
    ],
    "an image": [
        HumanMessage(
            [
                {"type": "text", "text": "what is this?"},
                {"type": "image", "url": "https://example.org/cat.png"},
                {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
                {"type": "image_url", "image_url": {"url": "https://example.org/dog.png", "detail": "low"}},
            ]
        )
    ],
    "a tool's result": [
        HumanMessage("weather?"),
        AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Porto"}, "id": "call_1"}]),
        ToolMessage("sunny", tool_call_id="call_1"),
    ],
    "answers of every kind": [
        HumanMessage("weather?"),
        AIMessage("Let me look.", tool_calls=[{"name": "weather", "args": {"city": "Porto"}, "id": "call_1"}]),
        ToolMessage("sunny", tool_call_id="call_1"),
        AIMessage("It is sunny.", name="rapport"),
        HumanMessage("and then?"),
        AIMessage([{"type": "text", "text": "It stays so."}]),
        AIMessage(""),
        HumanMessage("thanks"),
        AIMessage("You're welcome. " * 100, id="01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        HumanMessage("bye"),
    ],
    "tags": [HumanMessage("hi", additional_kwargs={"synthetic": True, "trigger_type": "check_in"}, name="ana")],
}


@pytest.mark.parametrize("tools", [False, True], ids=["no tools", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_what_is_sent_is_what_langchain_would_send(provider: Provider, conversation: str, tools: bool) -> None:
    usual = ChatOpenAI(model="mock", base_url=provider.url, api_key=SecretStr("key"), max_retries=0, stream_usage=True)
    async with model_at(provider.url) as lean:
        for model in (lean, usual):
            bound: Runnable[Any, Any] = model.bind_tools([weather], tool_choice="auto") if tools else model
            await bound.ainvoke(CONVERSATIONS[conversation])
            await bound.ainvoke(CONVERSATIONS[conversation], stop=["END"], temperature=0.2)
            await streamed(bound, CONVERSATIONS[conversation])
            await streamed(bound, CONVERSATIONS[conversation], stop=["END"], temperature=0.2, stream_usage=True)
    ours, theirs = provider.bodies[:4], provider.bodies[4:]
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine == reference
    assert {headers["authorization"] for headers in provider.headers} == {"Bearer key"}
    assert {headers["content-type"] for headers in provider.headers} == {"application/json"}


class Watching(AsyncCallbackHandler):
    """A callback handler that records model calls."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def on_chat_model_start(self, *args: Any, **more: Any) -> None:
        self.heard.append("asked")

    async def on_llm_end(self, *args: Any, **more: Any) -> None:
        self.heard.append("answered")


@pytest.mark.parametrize(("bypassed", "is_used"), [("", True), ("*", False), ("model.test", False)])
async def test_the_environment_is_read_for_each_request_only_if_a_proxy_is_used(
    monkeypatch: pytest.MonkeyPatch, bypassed: str, is_used: bool
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", bypassed)
    async with model_at("http://model.test/v1") as model:
        assert model.make_session().trust_env is is_used


async def test_callbacks_see_every_call_and_do_not_change_the_answer(provider: Provider) -> None:
    watching = Watching()
    async with model_at(provider.url) as model:
        watched = await model.ainvoke([HumanMessage("hello")], {"callbacks": [watching]})
        agent = agent_with(model)
        await agent.graph.ainvoke(
            {},
            {"configurable": {"thread_id": "1"}, "callbacks": [watching]},
            context=RunContext(FixedPrompt(Prompt("hello", "be kind")), Toolbox(), Requests(), LIMIT_SECONDS),
        )
        unwatched = await model.ainvoke([HumanMessage("hello")])
    assert watching.heard == ["asked", "answered"] * 2
    assert unwatched.model_dump(exclude={"id"}) == watched.model_dump(exclude={"id"})


class Counted(BaseModel):
    """A structured output that counts how often its schema is built."""

    made: ClassVar[int] = 0

    name: str

    @classmethod
    def model_json_schema(cls, *args: Any, **more: Any) -> dict[str, Any]:
        cls.made += 1
        return super().model_json_schema(*args, **more)


async def test_the_schema_of_structured_output_is_built_once(provider: Provider) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "Counted", "arguments": '{"name": "Ana"}'}}
    async with model_at(provider.url) as model:
        agent = agent_with(model)
        made: list[int] = []
        for _ in range(3):
            provider.will.append(plain({"content": None, "tool_calls": [call]}))
            assert await agent.decide("who?", "Ana", Counted) == Counted(name="Ana")
            made.append(Counted.made)
    assert made[0] > 0
    assert made == made[:1] * 3
    assert [body["tools"][0]["function"]["name"] for body in provider.bodies] == ["Counted"] * 3


async def test_a_tool_call_comes_back(provider: Provider) -> None:
    provider.will.append(plain({"content": None, "tool_calls": [TOOL_CALL]}))
    async with model_at(provider.url) as model:
        reply = await model.bind_tools([weather]).ainvoke([HumanMessage("weather in Porto?")])
    assert provider.bodies[0]["tools"][0]["function"]["name"] == "weather"
    assert [(call["name"], call["args"], call["id"]) for call in reply.tool_calls] == [
        ("weather", {"city": "Porto"}, "call_1")
    ]


async def test_a_streamed_tool_call_comes_back(provider: Provider) -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    provider.will.append(
        stream(
            [
                event({"role": "assistant", "content": None, "tool_calls": [first]}),
                event({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]}),
                event({"tool_calls": [{"index": 0, "function": {"arguments": '"Porto"}'}}]}),
                event({}, "tool_calls"),
                DONE,
            ]
        )
    )
    async with model_at(provider.url) as model:
        whole = await streamed(model.bind_tools([weather]), [HumanMessage("weather in Porto?")])
    assert [(call["name"], call["args"], call["id"]) for call in whole.tool_calls] == [
        ("weather", {"city": "Porto"}, "call_1")
    ]
    assert provider.bodies[0]["tools"][0]["function"]["name"] == "weather"


@pytest.mark.parametrize("arguments", [[1], 5, True, {"city": "Porto"}], ids=str)
@pytest.mark.parametrize("way", ["whole", "streamed"])
async def test_arguments_that_are_no_text_cost_no_answer(provider: Provider, arguments: Any, way: str) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    whole = plain({"content": "Look.", "tool_calls": [call]})
    parts = [event({"role": "assistant", "content": "Look.", "tool_calls": [call]}), event({}, "tool_calls"), DONE]
    provider.will.append(whole if way == "whole" else stream(parts))
    async with model_at(provider.url) as model:
        asked = model.bind_tools([weather])
        said = [HumanMessage("weather in Porto?")]
        reply = await asked.ainvoke(said) if way == "whole" else await streamed(asked, said)
    assert str(reply.text) == "Look."
    assert [call["args"] for call in reply.tool_calls] == ([arguments] if isinstance(arguments, dict) else [])
    assert len(reply.invalid_tool_calls) == (0 if isinstance(arguments, dict) else 1)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


async def test_structured_output_takes_the_usual_way(provider: Provider) -> None:
    provider.will.append(plain({"content": '{"name": "Ana", "age": 7}'}))
    async with model_at(provider.url) as model:
        structured: Runnable[Any, Any] = model.with_structured_output(Person)  # pyright: ignore[reportUnknownVariableType]
        assert await structured.ainvoke("Ana is seven") == Person(name="Ana", age=7)
    assert provider.bodies[0]["response_format"]["type"] == "json_schema"
    assert "openai" in provider.headers[0]["user-agent"].lower()


async def test_a_stream_is_read_as_the_standard_says(provider: Provider) -> None:
    """Comments, other fields, line ends of either kind, no space after the colon, and lines of any length."""
    long = "x" * 300_000
    provider.will.append(
        stream(
            [
                b": keep-alive\n\n",
                b"event: message\r\nid: 1\r\n" + event({"content": "a"}).strip() + b"\r\n\r\n",
                event({"content": "b"}).replace(b"data: ", b"data:"),
                event({"content": long})[:100_000],
                event({"content": long})[100_000:],
                DONE,
            ]
        )
    )
    async with model_at(provider.url) as model:
        assert (await streamed(model, [HumanMessage("hello")])).text == "ab" + long


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 503])
@pytest.mark.parametrize("way", ["plain", "streamed"])
async def test_an_error_has_its_status_and_its_retry_after(provider: Provider, status: int, way: str) -> None:
    async with model_at(provider.url) as model:
        await streamed(model, [HumanMessage("hi")])  # a new server might refuse to tell the usage of a stream
        provider.will.append(refusal(status, "that won't do", **{"Retry-After": "7"}))
        with pytest.raises(Exception, match="that won't do") as failed:
            await (model.ainvoke("hi") if way == "plain" else streamed(model, [HumanMessage("hi")]))
    assert getattr(failed.value, "status_code", None) == status
    assert cast("Any", failed.value).response.headers.get("retry-after") == "7"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (json.dumps({"error": {"message": "that\nwon't do", "type": "invalid"}}, indent=4), "that won't do"),
        ('{"error": "that won\'t do"}', "that won't do"),
        ('{"message": "that won\'t do", "code": 7}', "that won't do"),
        ('{"detail": "that won\'t do"}', "that won't do"),
        ("that\n won't do\n", "that won't do"),
        # Servers that validate a request often quote it.
        ('{"detail": [{"loc": ["messages", 0], "msg": "too long", "input": "hello"}]}', "HTTP 401"),
        ('["hello"]', "HTTP 401"),
        ("", "HTTP 401"),
    ],
)
async def test_an_error_shows_only_its_message_on_one_line(provider: Provider, body: str, told: str) -> None:
    async def answer(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=401, text=body)

    provider.will.append(answer)
    async with model_at(provider.url) as model:
        failure = await fails(model)
    assert (failure.kind, failure.detail) == ("http_401", told)
    assert str(failure) == "the model server answered HTTP 401"


async def test_an_error_leaves_no_warning_behind(provider: Provider) -> None:
    """LangChain looks into an error's response as if it came from the usual client."""
    provider.will.append(refusal(400))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with model_at(provider.url) as model:
            with pytest.raises(Exception, match="no"):
                await model.ainvoke("hi")
        gc.collect()
    assert [str(warning.message) for warning in warned if warning.category is RuntimeWarning] == []


# ---- what the agent makes of it


async def fails(
    model: BaseChatModel, *, deadline: float = LIMIT_SECONDS, tokens: list[str] | None = None
) -> ModelFailed:
    """Return how the agent's run fails."""
    with pytest.raises(ModelFailed) as failed:
        await agent_with(model, deadline=deadline).run(
            "hello", thread_id="t", system="be kind", on_token=None if tokens is None else tokens.append
        )
    return failed.value


@pytest.mark.parametrize("way", ["plain", "streamed"])
@pytest.mark.parametrize("fault", PLAIN_FAULTS)
async def test_a_transient_failure_is_tried_three_times(mock: MockModel, fault: str, way: str) -> None:
    mock.behave(fault=fault)
    tokens: list[str] = []
    async with model_at(mock.url) as model:
        failure = await fails(model, tokens=tokens if way == "streamed" else None)
    assert (failure.kind, mock.calls) == (KINDS[fault], 3)
    # Tokens before a failure were relayed once.
    assert "the mock answers with plain words so every".startswith("".join(tokens))


async def test_a_closed_connection_is_a_transient_failure(provider: Provider) -> None:
    """As when a server closes an idle connection at the moment it is used again."""
    provider.will.append(hangs_up)
    async with model_at(provider.url) as model:
        assert (await agent_with(model).run("hi", thread_id="t", system="")).text == "Hello."
        provider.will.extend([hangs_up] * 3)
        assert (await fails(model)).kind == "network"
    assert len(provider.bodies) == 5


async def test_an_unreachable_model_is_a_transient_failure() -> None:
    async with model_at(f"http://127.0.0.1:{free_port()}/v1") as model:
        assert (await fails(model)).kind == "network"


@pytest.mark.parametrize("way", ["plain", "streamed"])
@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_permanent_failure_is_not_retried(provider: Provider, status: int, way: str) -> None:
    async with model_at(provider.url) as model:
        await streamed(model, [HumanMessage("hi")])  # a new server might refuse to tell the usage of a stream
        provider.will.append(refusal(status, "that won't do"))
        failure = await fails(model, tokens=[] if way == "streamed" else None)
    assert (failure.kind, len(provider.bodies)) == (f"http_{status}", 2)
    assert "that won't do" in failure.detail
    assert "that won't do" not in str(failure)


async def test_a_retry_waits_for_retry_after(provider: Provider) -> None:
    provider.will.extend([refusal(429, **{"Retry-After": "1"}), refusal(503, **{"Retry-After": "0"})])
    began = time.monotonic()
    async with model_at(provider.url) as model:
        assert (await agent_with(model).run("hi", thread_id="t", system="")).text == "Hello."
        assert time.monotonic() - began >= 1.0
        assert len(provider.bodies) == 3
        # With a Retry-After that no turn can wait for, there is no wait at all.
        provider.will.append(refusal(429, **{"Retry-After": "3600"}))
        assert (await fails(model)).kind == "http_429"
    assert len(provider.bodies) == 4


async def test_a_retry_that_succeeds_is_an_answer_like_any_other(provider: Provider) -> None:
    provider.will.extend([refusal(500), refusal(502)])
    async with model_at(provider.url) as model:
        tokens: list[str] = []
        reply = await agent_with(model).run("hi", thread_id="t", system="", on_token=tokens.append)
    assert (reply.text, tokens) == ("Hello.", ["Hel", "lo."])


async def test_tokens_are_not_relayed_twice(provider: Provider) -> None:
    provider.will.append(stream(HELLO[:2], then=lambda transport: transport.abort()))
    async with model_at(provider.url) as model:
        tokens: list[str] = []
        reply = await agent_with(model).run("hi", thread_id="t", system="", on_token=tokens.append)
    assert (reply.text, tokens) == ("Hello.", ["Hel"])
    assert len(provider.bodies) == 2


async def test_an_error_within_a_stream_does_not_complete_the_answer(provider: Provider) -> None:
    """A provider that has started to stream can report a failure only in this way."""
    trouble = b'data: {"error": {"message": "overloaded", "type": "server_error", "code": 503}}\n\n'
    provider.will.append(stream([*HELLO[:2], trouble, DONE]))
    async with model_at(provider.url) as model:
        tokens: list[str] = []
        reply = await agent_with(model).run("hi", thread_id="t", system="", on_token=tokens.append)
    assert (reply.text, tokens) == ("Hello.", ["Hel"])


async def test_an_answer_is_complete_when_it_says_so_even_if_the_connection_stays_open(provider: Provider) -> None:
    over = asyncio.Event()

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stream(HELLO)(request, body)
        await over.wait()
        return response

    provider.will.append(answer)
    async with model_at(provider.url) as model:
        tokens: list[str] = []
        reply = await agent_with(model).run("hi", thread_id="t", system="", on_token=tokens.append)
        over.set()
    assert (reply.text, tokens, len(provider.bodies)) == ("Hello.", ["Hel", "lo."], 1)


@pytest.mark.parametrize("way", ["plain", "streamed"])
async def test_silence_is_a_timeout(mock: MockModel, way: str) -> None:
    mock.behave(fault="timeout")
    async with model_at(mock.url, timeout=1.0) as model:
        failure = await fails(model, tokens=[] if way == "streamed" else None)
    assert (failure.kind, mock.calls) == ("timeout", 3)


@pytest.mark.parametrize("way", ["plain", "streamed"])
@pytest.mark.parametrize("fault", ["timeout", "slow"])
async def test_a_turn_ends_by_its_deadline(mock: MockModel, fault: str, way: str) -> None:
    """Whether the model sends nothing, or never stops sending a few bytes at a time."""
    mock.behave(fault=fault, tokens=400)
    async with model_at(mock.url, timeout=10 * LIMIT_SECONDS) as model:
        failure = await fails(model, deadline=0.6, tokens=[] if way == "streamed" else None)
    assert failure.kind == "timeout"
    assert "0.6 s" in str(failure)


# ---- which model


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_AUTH_TOKEN")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("name", "what_to_set"),
    [
        ("nonsense", r"`builtin`.*provider:model.*openai:gpt"),
        ("", r"`builtin`.*provider:model"),
        ("openai:", r"`builtin`.*provider:model"),
        (":gpt-5-mini", r"provider"),
        ("nobody:gpt-5-mini", r"nobody.*(anthropic|ollama)"),
        ("openai:gpt-5-mini", r"OPENAI_API_KEY.*OPENAI_BASE_URL"),
        ("anthropic:claude-sonnet-4-5", r"ANTHROPIC_API_KEY"),
    ],
)
def test_the_error_for_an_unavailable_model_names_the_setting(no_keys: None, name: str, what_to_set: str) -> None:
    with pytest.raises(Permanent) as refused:
        make_model(name, timeout=1, environment={})
    assert f"RAPPORT_MODEL={name!r}" in str(refused.value)
    assert re.search(what_to_set, str(refused.value)), str(refused.value)
    assert "\n" not in str(refused.value)


async def test_creating_a_model_makes_no_request(no_keys: None) -> None:
    for name, environment in {
        "builtin": {},
        "ollama:qwen3": {},
        "openai:gpt-5-mini": {"OPENAI_API_KEY": "key"},
        "openai:mock": {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"},
    }.items():
        model = make_model(name, timeout=1, environment=environment)
        assert isinstance(model, BaseChatModel)
        await close_model(model)


# ---- as people see it


async def turn(world: World, conversation: str, *, stream: bool) -> dict[str, Any]:
    """Return the reply to a message, as a client gets it in one of both ways."""
    if not stream:
        return await world.says(conversation, "hello")
    response = await world.http.post(
        f"/chat/conversations/{conversation}/messages",
        json={"content": "hello"},
        headers={"Accept": "text/event-stream"},
    )
    finals = re.findall(r"^event: final\ndata: (.*)$", response.text, re.MULTILINE)
    assert len(finals) == 1, response.text
    return json.loads(finals[0])


async def test_every_failure_gets_one_reply_and_the_next_turn_works(mock: MockModel, database_url: str) -> None:
    async with AsyncExitStack() as stack:

        async def world_with(*, timeout: float, deadline: float) -> World:
            model = await stack.enter_async_context(model_at(mock.url, timeout=timeout))
            return await stack.enter_async_context(open_world(database_url, model=model, turn_deadline=deadline))

        patient = await world_with(timeout=LIMIT_SECONDS, deadline=LIMIT_SECONDS)
        impatient = await world_with(timeout=0.5, deadline=1.2)
        for fault in [*PLAIN_FAULTS, "timeout", "slow"]:
            conversation = await patient.conversation()
            for stream in (False, True):
                mock.behave(fault=fault, tokens=200)
                reply = await turn(patient if fault in PLAIN_FAULTS else impatient, conversation, stream=stream)
                assert reply["fallbackUsed"] is True, fault
                assert reply["content"].startswith(FALLBACK), fault
                mock.behave()
                reply = await turn(patient, conversation, stream=stream)
                expected = ("the mock answers with plain words so every", False)
                assert (reply["content"], reply["fallbackUsed"]) == expected, fault
            roles = [message["role"] for message in await patient.history(conversation)]
            assert roles == ["user", "assistant"] * 4, fault


def test_the_fallback_begins_with_the_exact_words() -> None:
    assert FALLBACK == "Temporary issue generating response. Here are the relevant documents summary: "
