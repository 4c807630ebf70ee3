"""Serve a model with OpenAI's API on loopback: it answers "re: <the last user message>" and records every call.

It can use tools when a test says so. What it is asked behind the turns (summaries, reflections) never uses up an answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web
from langchain_core.language_models import BaseChatModel

from rapport.agents.openai import make_openai
from rapport.domain.server_note import strip_note
from tests.support.waiting import LIMIT_SECONDS

REFLECTION = "Reflection"
"""The form in which the model is asked what to do about a pause."""


@dataclass(slots=True)
class Call:
    """One request to the model: what it was given, and when it was at work on it."""

    text: str
    """What the user said last."""
    window: list[tuple[str, str]]
    """(role, content) of every message but the system prompt, oldest first, without the server's note; the last one is `text` unless tools are used."""
    caller: str
    """The API key that it came with: which server asked, when each has its own."""
    began: float
    ended: float | None = None
    broken: bool = False
    """Whether the caller went away before the answer was complete."""
    system: str = ""
    tools: Sequence[str] = ()
    """The names of the functions that it may call."""
    body: str = ""
    """The request as it came, every word of it."""

    @property
    def is_summary(self) -> bool:
        """Whether it asks for a summary, behind the turns, and not for a reply."""
        return self.system.startswith("Summarize conversation so far")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function, with its arguments as the model writes them: JSON, if it can."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Uses:
    """An answer that calls functions, perhaps with a few words before."""

    calls: Sequence[ToolCall]
    text: str = ""


Answer: TypeAlias = str | Uses
Decision: TypeAlias = Mapping[str, Any] | str | int
"""How a reflection is answered: the form's fields; arguments that may be no JSON; or a status to fail with."""

NOTHING_TO_DO: Decision = {"follow_up": None, "memories": ()}


def reply_to(text: str) -> str:
    return f"re: {text}"


def remembers(content: str, **more: Any) -> Uses:
    """An answer that asks to remember something."""
    return Uses([ToolCall("upsert_memory", json.dumps({"content": content, **more}))])


@dataclass(slots=True)
class ScriptedModel:
    """`delay` says how long to think about a text; it may be changed at any time."""

    delay: Callable[[str], float] = field(default=lambda _text: 0.0)
    answers: deque[Answer] = field(default_factory=deque[Answer])
    """What to say next, in this order; when there is nothing left, "re: " and the message."""
    replies: dict[str, str] = field(default_factory=dict[str, str])
    """What to say to a text instead, whenever it comes."""
    decisions: deque[Decision] = field(default_factory=deque[Decision])
    """What to decide at the next pauses; when there is nothing left, that there is nothing to do."""
    hold: asyncio.Event | None = None
    """A decision takes until this is set."""
    refuses_tools: int | None = None
    """The status with which a request that offers functions is refused, as by servers whose models know none."""
    fails: bool = False
    """Whether every call ends with a 500."""
    summary: str = "They talked."
    """What to say when a summary is asked for."""
    calls: list[Call] = field(default_factory=list[Call])
    reflections: list[Call] = field(default_factory=list[Call])
    """What it was asked at pauses: `calls` holds none of it, because nobody waits for it."""
    listed: int = 0
    """How often it was asked which models there are."""
    url: str = ""

    def calls_about(self, text: str) -> list[Call]:
        return [call for call in self.calls if call.text == text]

    async def until_asked(self, text: str, *, seconds: float = LIMIT_SECONDS) -> Call:
        """The first call about `text`, once the model has begun with it."""
        async with asyncio.timeout(seconds):
            while not (found := self.calls_about(text)):
                await asyncio.sleep(0.01)
        return found[0]

    async def models(self, _request: web.Request) -> web.Response:
        self.listed += 1
        return web.json_response({"object": "list", "data": [{"id": "mock", "object": "model"}]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = json.loads(await request.read())
        call = _call(request, body)
        is_reflection = REFLECTION in call.tools
        (self.reflections if is_reflection else self.calls).append(call)
        try:
            if self.fails:
                return _refusal(500, "scripted failure")
            if self.refuses_tools is not None and call.tools:
                return _refusal(self.refuses_tools, "this model does not support tools")
            if is_reflection:
                return await self._decide()
            answer = self._reply(call)
            if body.get("stream"):
                return await self._stream(request, call, answer)
            await asyncio.sleep(self.delay(call.text))
            return web.json_response(_completion(answer))
        except asyncio.CancelledError:
            call.broken = True
            raise
        finally:
            call.ended = time.monotonic()

    async def _decide(self) -> web.Response:
        if self.hold is not None:
            await self.hold.wait()
        decided = self.decisions.popleft() if self.decisions else NOTHING_TO_DO
        if isinstance(decided, int):
            return _refusal(decided, "scripted failure")
        arguments = decided if isinstance(decided, str) else json.dumps(dict(decided))
        return web.json_response(_completion(Uses([ToolCall(REFLECTION, arguments)])))

    def _reply(self, call: Call) -> Answer:
        if call.is_summary:
            return self.summary
        if call.text in self.replies:
            return self.replies[call.text]
        return self.answers.popleft() if self.answers else reply_to(call.text)

    async def _stream(self, request: web.Request, call: Call, answer: Answer) -> web.StreamResponse:
        """Half of the words at once, the other half after the delay."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        words = (answer if isinstance(answer, str) else answer.text).split(" ")
        half = (len(words) + 1) // 2
        try:
            await response.write(_chunk({"role": "assistant", "content": " ".join(words[:half])}))
            await asyncio.sleep(self.delay(call.text))
            if words[half:]:
                await response.write(_chunk({"content": " " + " ".join(words[half:])}))
            for piece in () if isinstance(answer, str) else _call_pieces(answer.calls):
                await response.write(_chunk({"tool_calls": [piece]}))
            await response.write(_chunk({}, finish=_finish(answer)) + b"data: [DONE]\n\n")
            await response.write_eof()
        except ConnectionError:
            call.broken = True
        return response


def _call(request: web.Request, body: dict[str, Any]) -> Call:
    messages: list[dict[str, Any]] = body["messages"]
    window = [(str(one["role"]), strip_note(str(one["content"] or ""))) for one in messages if one["role"] != "system"]
    return Call(
        text=next((text for role, text in reversed(window) if role == "user"), ""),
        window=window,
        caller=request.headers.get("Authorization", "").removeprefix("Bearer "),
        began=time.monotonic(),
        system="\n".join(str(one["content"]) for one in messages if one["role"] == "system"),
        tools=[tool["function"]["name"] for tool in body.get("tools") or ()],
        body=json.dumps(body, ensure_ascii=False),
    )


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


def _finish(answer: Answer) -> str:
    return "stop" if isinstance(answer, str) else "tool_calls"


def _completion(answer: Answer) -> dict[str, Any]:
    text, calls = (answer, ()) if isinstance(answer, str) else (answer.text, answer.calls)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for number, call in enumerate(calls)
        ]
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "mock",
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer)}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _call_pieces(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Calls as they are streamed: the name first, the arguments in two pieces after it."""
    pieces: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        named = {"id": f"call_{index}", "type": "function", "function": {"name": call.name, "arguments": ""}}
        half = len(call.arguments) // 2
        written = ({"function": {"arguments": part}} for part in (call.arguments[:half], call.arguments[half:]))
        pieces += [{"index": index, **part} for part in (named, *written)]
    return pieces


def _chunk(delta: dict[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    frame = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "mock"}
    return b"data: " + json.dumps({**frame, "choices": [choice]}).encode() + b"\n\n"


@asynccontextmanager
async def scripted_model() -> AsyncGenerator[ScriptedModel]:
    """A scripted model that listens, for as long as the block lasts."""
    model = ScriptedModel()
    app = web.Application(client_max_size=64_000_000)
    app.router.add_post("/v1/chat/completions", model.answer)
    app.router.add_get("/v1/models", model.models)
    # With cancellation a caller that died is noticed at once, and its call is marked as broken.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    host, port = runner.addresses[0][:2]
    model.url = f"http://{host}:{port}/v1"
    try:
        yield model
    finally:
        await runner.cleanup()


def chat_model(model: ScriptedModel) -> BaseChatModel:
    """The chat model of the app, with this one behind a real connection."""
    return make_openai(
        "mock", timeout=LIMIT_SECONDS, environment={"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
    )
