"""Test that model problems are shown to the operator, and that no provider's text is logged or shown (RES-4, OBS, ADR 38)."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import structlog
from aiohttp import web
from bench.processes import free_port

from rapport.agents.advice import advise, advise_about_reply
from rapport.agents.failures import classify_failure
from rapport.agents.models import close_model
from rapport.agents.openai import ProviderError, make_openai
from rapport.agents.probe import probe
from rapport.cli.serve import check_model
from rapport.domain.model_problems import MODEL_PROBLEMS
from rapport.logs import configure_logging
from rapport.storage.access.api_keys import ApiKeys
from tests.support.cases import every_case
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world

FALLBACK = (
    "Temporary issue generating response. Here are the relevant documents summary: no relevant documents were found."
    " Your message is kept; please send it again in a moment."
)
SAID = "My armadillo Wilhelmina has a rash"
ENVIRONMENT = {"OPENAI_API_KEY": "sk-test"}

Answer: TypeAlias = "Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]"


@dataclass
class Peer:
    """A model server whose every answer is the same; `asked` is how often it was asked for one."""

    url: str
    answer: Answer
    models: Callable[[], web.Response]
    asked: int = 0


def refusal(status: int, message: str = "no", **more: Any) -> Answer:
    async def answer(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": message, **more}}, status=status)

    return answer


async def fine(_request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    message = {"role": "assistant", "content": "All is well."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    if not body.get("stream"):
        return web.json_response(
            {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        )
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    choice = {"index": 0, "delta": message, "finish_reason": "stop"}
    return web.Response(
        body=b"data: " + json.dumps({**frame, "choices": [choice]}).encode() + b"\n\ndata: [DONE]\n\n",
        content_type="text/event-stream",
    )


def listed(*names: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"object": "list", "data": [{"id": name} for name in names]})


@asynccontextmanager
async def peer(answer: Answer, *names: str) -> AsyncGenerator[Peer]:
    """A model server that lists these models; `mock` unless others are named."""
    made = Peer("", answer, listed(*(names or ("mock",))))

    async def complete(request: web.Request) -> web.StreamResponse:
        made.asked += 1
        return await made.answer(request, await request.json())

    async def list_models(_request: web.Request) -> web.Response:
        return made.models()

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", list_models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = "http://{}:{}/v1".format(*runner.addresses[0][:2])
    try:
        yield made
    finally:
        await runner.cleanup()


@asynccontextmanager
async def world_of(url: str, database_url: str, **changes: Any) -> AsyncGenerator[World]:
    model = make_openai("mock", timeout=LIMIT_SECONDS, environment={**ENVIRONMENT, "OPENAI_BASE_URL": url})
    async with open_world(database_url, model=model, model_name="openai:mock", **changes) as world:
        yield world


PROBLEMS_OF = {
    "key_refused": refusal(401, "Incorrect API key provided: sk-test", code="invalid_api_key"),
    "unknown_model": refusal(404, "The model `mock` does not exist", code="model_not_found"),
    "no_credit": refusal(429, "You exceeded your current quota", code="insufficient_quota", type="insufficient_quota"),
    "too_long": refusal(400, "This model's maximum context length is 8192 tokens"),
    "request_refused": refusal(400, "temperature must be 1"),
}


@every_case("kind", PROBLEMS_OF)
async def test_the_local_user_is_told_what_is_wrong(database_url: str, kind: str) -> None:
    async with peer(PROBLEMS_OF[kind]) as server, world_of(server.url, database_url) as world:
        conversation = await world.conversation()
        reply = await world.says(conversation, SAID)
        assert reply["content"] == FALLBACK
        problem = {"kind": kind, "text": advise(kind, "openai:mock")}
        assert reply["problem"] == problem
        [_, stored] = await world.history(conversation)
        assert stored["problem"] == problem
        assert (await world.history(conversation, render="html"))[-1]["problem"] == problem
        why = (await world.http.get(f"/api/threads/{conversation}/context")).json()
        assert why["problem"] == problem
        counted = (await world.http.get("/metrics")).text
        assert f'rapport_model_errors_total{{kind="{kind}"}} 1.0' in counted
        session = (await world.http.get("/api/session")).json()
        assert session["problem"] == (None if kind in {"too_long", "request_refused"} else problem)
        assert (await world.http.get("/readyz")).status_code == 200

        server.answer = fine
        reply = await world.says(conversation, SAID)
        assert (reply["content"], reply["problem"]) == ("All is well.", None)
        assert (await world.http.get("/api/session")).json()["problem"] is None


async def tell_of(world: World, **agent: Any) -> dict[str, Any]:
    """Make an agent, ask it, and return the problem that the operator is told."""
    document = {"id": "chef", "name": "Chef", "persona": "You cook.", **agent}
    made = await world.http.post("/api/agents", json=document)
    assert made.status_code == 201, made.text
    where = (await world.http.post("/api/threads", json={"agent": "chef"})).json()["id"]
    problem = (await world.says(where, SAID))["problem"]
    [_, stored] = await world.history(where)
    assert stored["problem"] == problem
    return problem


async def test_an_agents_own_server_that_is_down_is_told_with_the_agents_field(database_url: str) -> None:
    options = {"base_url": f"http://127.0.0.1:{free_port()}/v1"}
    async with open_world(database_url) as world:
        problem = await tell_of(world, model="openai:mock", model_options=options)
    assert problem["kind"] == "unreachable"
    assert "`model_options.base_url` of the agent “chef”" in problem["text"]
    assert "OPENAI" not in problem["text"]
    assert "restart" not in problem["text"]


async def test_the_key_of_an_agents_own_server_is_named(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHEF_API_KEY", "sk-wrong")
    async with peer(PROBLEMS_OF["key_refused"]) as server, open_world(database_url) as world:
        options = {"base_url": server.url, "key_variable": "CHEF_API_KEY"}
        problem = await tell_of(world, model="openai:mock", model_options=options)
    assert problem["kind"] == "key_refused"
    assert problem["text"].startswith("The key in CHEF_API_KEY, which the agent “chef” names, was refused")
    assert "OPENAI" not in problem["text"]


async def test_an_agents_own_server_that_wants_a_key_is_told(database_url: str) -> None:
    async with peer(PROBLEMS_OF["key_refused"]) as server, open_world(database_url) as world:
        problem = await tell_of(world, model="openai:mock", model_options={"base_url": server.url})
    assert "`model_options.key_variable`" in problem["text"]
    assert "OPENAI" not in problem["text"]


async def test_the_variable_of_a_key_that_is_missing_is_named_and_logged(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHEF_API_KEY", raising=False)
    options = {"base_url": "http://127.0.0.1:9/v1", "key_variable": "CHEF_API_KEY"}
    async with open_world(database_url) as world:
        with structlog.testing.capture_logs() as logs:
            problem = await tell_of(world, model="openai:mock", model_options=options)
    assert problem["kind"] == "not_set_up"
    assert "set CHEF_API_KEY, which it names as its key" in problem["text"]
    assert "“chef”" in problem["text"]
    [line] = [each for each in logs if each["event"] == "chat.error"]
    assert "CHEF_API_KEY" in line["message"]


async def test_a_model_that_only_the_agent_names_is_told_with_its_field(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer(PROBLEMS_OF["unknown_model"]) as server, open_world(database_url) as world:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        problem = await tell_of(world, model="openai:gone")
    assert problem["text"].startswith(
        "The model server has no model “gone”. Put one that it has into the field `model`"
    )
    assert "RAPPORT_MODEL" not in problem["text"]
    assert "OPENAI_BASE_URL" in problem["text"]


async def test_the_fallback_model_is_asked_at_the_servers_address_and_told_by_its_field(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer(fine) as servers, open_world(database_url) as world:
        monkeypatch.setenv("OPENAI_BASE_URL", servers.url)
        own = {"base_url": f"http://127.0.0.1:{free_port()}/v1"}
        agent = {"model": "openai:mock", "model_options": own, "fallback_model": "openai:other"}
        assert await tell_of(world, **agent) is None
        assert servers.asked == 1
        servers.answer = PROBLEMS_OF["unknown_model"]
        where = (await world.http.post("/api/threads", json={"agent": "chef"})).json()["id"]
        problem = (await world.says(where, SAID))["problem"]  # the agent's own model rests
    assert problem["kind"] == "unknown_model"
    assert "“other”. Put one that it has into the field `fallback_model` of the agent “chef”" in problem["text"]


def test_an_old_reply_names_only_its_model() -> None:
    stored = {"kind": "key_refused", "model": "openai:mock"}
    assert advise_about_reply(stored) == advise("key_refused", "openai:mock")
    assert "OPENAI_API_KEY" in advise_about_reply(stored)


async def test_a_model_server_that_is_down_is_told(database_url: str) -> None:
    async with world_of(f"http://127.0.0.1:{free_port()}/v1", database_url) as world:
        reply = await world.says(await world.conversation(), SAID)
        assert reply["problem"]["kind"] == "unreachable"
        assert "OPENAI_BASE_URL" in reply["problem"]["text"]


async def test_a_model_that_takes_too_long_is_told(database_url: str) -> None:
    async def hang(_request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    async with peer(hang) as server, world_of(server.url, database_url, turn_deadline=0.5) as world:
        reply = await world.says(await world.conversation(), SAID)
        assert reply["problem"]["kind"] == "timeout"


async def test_streams_tell_it_too(database_url: str) -> None:
    async with peer(PROBLEMS_OF["key_refused"]) as server, world_of(server.url, database_url) as world:
        conversation = await world.conversation()
        url = f"/chat/conversations/{conversation}/messages"
        streamed = await world.http.post(url, json={"content": SAID}, headers={"Accept": "text/event-stream"})
        final = streamed.text.split("event: final\ndata: ")[1]
        assert json.loads(final.partition("\n")[0])["problem"]["kind"] == "key_refused"
        async with world.http.stream("GET", f"/api/threads/{conversation}/events", params={"after": "0"}) as events:
            async for line in events.aiter_lines():
                if line.startswith("data: ") and "fallbackUsed" in line and json.loads(line[6:])["fallbackUsed"]:
                    assert json.loads(line[6:])["problem"]["kind"] == "key_refused"
                    break


@dataclass
class Log:
    stream: io.StringIO

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    @property
    def above_debug(self) -> str:
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in self.lines if line["level"] != "debug")


@pytest.fixture
def log() -> Generator[Log]:
    """Every line of the log, DEBUG included."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    yield Log(stream)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


def echoing(status: int, shape: str) -> Answer:
    """Quotes the whole prompt in its error."""

    async def answer(_request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        prompt = json.dumps(body["messages"][::-1])  # the newest first: of long errors the end is cut off
        if shape == "message":
            return web.json_response({"error": {"message": f"bad request: {prompt}", "code": prompt}}, status=status)
        if shape == "detail":
            return web.json_response({"detail": f"can't read {prompt}"}, status=status)
        if shape == "malformed":
            return web.Response(body=b'{"choices": [' + prompt.encode(), content_type="application/json")
        if shape == "odd":
            return web.json_response({"choices": [{"message": prompt}]})
        if shape == "frame":
            frame = b"data: " + json.dumps({"error": {"message": prompt, "code": status}}).encode() + b"\n\n"
            return web.Response(body=frame, content_type="text/event-stream")
        if shape == "broken frame":
            return web.Response(body=b"data: {" + prompt.encode() + b"\n\n", content_type="text/event-stream")
        return web.Response(text=prompt, status=status)

    return answer


@pytest.mark.parametrize(
    ("status", "shape"),
    [
        *[(status, shape) for status in (400, 401, 422, 500) for shape in ("message", "detail", "text")],
        *[(200, "malformed"), (200, "odd"), (400, "frame"), (503, "frame"), (200, "broken frame")],
    ],
)
async def test_no_word_of_a_provider_is_logged_or_told_to_others(
    log: Log, database_url: str, status: int, shape: str
) -> None:
    async with peer(echoing(status, shape)) as server, world_of(server.url, database_url) as world:
        async with world.database.statement() as connection:
            _, secret = await ApiKeys(connection).create("mallory", name="phone")
        key = {"Authorization": f"Bearer {secret}"}
        while (await world.http.get("/api/threads")).status_code != 401:  # noted within two seconds
            await asyncio.sleep(0.05)
        for accepts in ({}, {"Accept": "text/event-stream"}):
            conversation = await world.conversation("mallory")
            url = f"/chat/conversations/{conversation}/messages"
            answered = await world.http.post(url, json={"content": SAID}, headers={**key, **accepts})
            assert answered.status_code == 200
            history = await world.http.get(f"/api/threads/{conversation}/history", headers=key)
            reply = history.json()["messages"][-1]
            assert (reply["content"], reply["fallbackUsed"], reply["problem"]) == (FALLBACK, True, None)
            why = await world.http.get(f"/api/threads/{conversation}/context", headers=key)
            assert why.json()["problem"] is None
            assert (await world.http.get("/api/session", headers=key)).json()["problem"] is None
            assert "Wilhelmina" not in answered.text + why.text
            kept = await world.sql("SELECT metadata::text FROM messages WHERE role = 'assistant'")
            assert "Wilhelmina" not in str(kept)
        await world.drain()
    assert len([line for line in log.lines if line["event"] == "chat.error"]) >= 2
    assert "Wilhelmina" not in log.above_debug
    assert "armadillo" not in log.above_debug


async def test_a_follow_up_and_a_summary_log_no_word_either(log: Log, database_url: str) -> None:
    async with peer(fine) as server, world_of(server.url, database_url) as world:
        conversation = await world.conversation()
        for _ in range(8):
            await world.says(conversation, SAID)
        server.answer = echoing(400, "message")
        await world.silence(conversation)
        await world.says(conversation, SAID)
        await world.drain()
    assert "Wilhelmina" not in log.above_debug


async def test_an_embedder_that_quotes_what_it_was_sent_is_not_quoted(
    log: Log, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotes = False

    async def embed(request: web.Request) -> web.Response:
        body = await request.json()
        if quotes:
            return web.json_response({"error": {"message": f"can't embed {body['input']}"}}, status=400)
        vectors = [
            {"object": "embedding", "index": number, "embedding": [1.0, 0.0]} for number in range(len(body["input"]))
        ]
        return web.json_response({"object": "list", "model": "words", "data": vectors, "usage": {}})

    app = web.Application()
    app.router.add_post("/v1/embeddings", embed)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://{}:{}/v1".format(*runner.addresses[0][:2]))
    try:
        async with open_world(database_url, embeddings="openai:words") as world:
            assert (await world.http.post("/api/notes", json={"id": "a", "text": "Soap helps."})).status_code == 201
            quotes = True
            for agent in ("companion", "librarian"):
                await world.says(await world.conversation(agent_id=agent), SAID)
            refused = await world.http.post("/api/notes", json={"id": "b", "text": SAID})
            assert refused.status_code == 503
            assert "HTTP 400" in refused.text
            assert "Wilhelmina" not in refused.text
    finally:
        await runner.cleanup()
    assert len([line for line in log.lines if line["event"] == "chat.error"]) >= 2
    assert "Wilhelmina" not in log.above_debug


@every_case(
    ("status", "body", "problem"),
    [
        (401, {}, "key_refused"),
        (403, {}, "key_refused"),
        (400, {"error": {"code": 400, "status": "API_KEY_INVALID", "message": "x"}}, "key_refused"),
        (402, {}, "no_credit"),
        (429, {}, "rate_limited"),
        (429, {"error": {"type": "insufficient_quota"}}, "no_credit"),
        (400, {"type": "error", "error": {"type": "x", "message": "Your credit balance is too low"}}, "no_credit"),
        (404, {"error": "model 'x' not found"}, "unknown_model"),
        (400, {"error": {"code": "model_not_found"}}, "unknown_model"),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, "too_long"),
        (400, {"error": {"type": "exceed_context_size_error", "message": "x"}}, "too_long"),
        (413, {}, "too_long"),
        (400, {}, "request_refused"),
        (422, ["x"], "request_refused"),
        (500, {}, "server_error"),
        (504, {}, "timeout"),
    ],
)
def test_what_a_status_and_a_code_mean(status: int, body: object, problem: str) -> None:
    failure = classify_failure(ProviderError(status, json.dumps(body)))
    assert (failure.kind, failure.problem, str(failure)) == (
        f"http_{status}",
        problem,
        f"the model server answered HTTP {status}",
    )


@every_case("problem", [*MODEL_PROBLEMS, "resting", "retrieval", "attempts", "of tomorrow"])
@every_case("model", ["openai:gpt-5-mini", "anthropic:claude-sonnet-4-5", "ollama:qwen3", "builtin", ""])
def test_every_problem_has_advice(problem: str, model: str) -> None:
    told = advise(problem, model)
    assert told.endswith((".", "it."))
    assert "{" not in told


def test_the_advice_names_what_to_change() -> None:
    assert advise("key_refused", "openai:gpt-5-mini") == (
        "The key in OPENAI_API_KEY was refused by the model server. Put a valid key into .env and restart."
    )
    assert "ANTHROPIC_API_KEY" in advise("no_credit", "anthropic:claude-sonnet-4-5")
    assert "`ollama pull qwen3`" in advise("unknown_model", "ollama:qwen3")
    assert "OLLAMA_HOST" in advise("unreachable", "ollama:qwen3")


async def checked(name: str, url: str) -> str | None:
    model = make_openai("mock", timeout=LIMIT_SECONDS, environment={**ENVIRONMENT, "OPENAI_BASE_URL": url})
    try:
        return await probe(name, model, environment={**ENVIRONMENT, "OPENAI_BASE_URL": url}, timeout=LIMIT_SECONDS)
    finally:
        await close_model(model)


async def test_a_check_reads_the_list_of_models_and_spends_nothing() -> None:
    async with peer(fine) as server:
        assert await checked("openai:mock", server.url) is None
        server.models = lambda: web.json_response({"error": {"message": "no"}}, status=401)
        assert await checked("openai:mock", server.url) == "key_refused"
        server.models = lambda: web.Response(text="<html>who are you?</html>", status=403)
        assert await checked("openai:mock", server.url) == "key_refused"
        server.models = lambda: web.Response(text="oops", status=500)
        assert await checked("openai:mock", server.url) == "server_error"
        server.models = lambda: web.Response(text="<html>a login page</html>")
        assert await checked("openai:mock", server.url) == "malformed"
        assert server.asked == 0
    assert await checked("openai:mock", f"http://127.0.0.1:{free_port()}/v1") == "unreachable"
    assert await checked("builtin", "") is None


async def test_a_model_that_is_on_no_list_is_asked_for_one_token() -> None:
    async with peer(fine, "other") as server:
        assert await checked("openai:mock", server.url) is None
        assert server.asked == 1
        server.answer = refusal(400, "one token is too few")
        assert await checked("openai:mock", server.url) is None
        server.answer = PROBLEMS_OF["unknown_model"]
        assert await checked("openai:mock", server.url) == "unknown_model"
        server.models = lambda: web.Response(status=404)
        assert await checked("openai:mock", server.url) == "unknown_model"
        server.answer = fine
        assert await checked("openai:mock", server.url) is None


async def test_a_server_that_starts_says_what_is_wrong(
    log: Log, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer(fine) as server, world_of(server.url, database_url) as world:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        await check_model(world.app)
        assert not [line for line in log.lines if line["event"] == "model.problem"]
        server.models = lambda: web.json_response({}, status=401)
        await check_model(world.app)
        [line] = [line for line in log.lines if line["event"] == "model.problem"]
        assert (line["level"], line["kind"]) == ("warning", "key_refused")
        assert line["remedy"].startswith("The key in OPENAI_API_KEY was refused by the model server.")
        assert (await world.http.get("/api/session")).json()["problem"]["kind"] == "key_refused"
