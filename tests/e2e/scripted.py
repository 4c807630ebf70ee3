"""Serve a model with OpenAI's API on loopback: it answers "re: <the last user message>" and records every call.

It calls tools when a test scripts it. Summaries and reflections use no scripted answer.
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
from tests.support.server_notes import split_whole_note
from tests.support.waiting import LIMIT_SECONDS

REFLECTION = "Reflection"
"""The name of the structured output of a reflection."""


@dataclass(slots=True)
class Call:
    """One request to the model: its content, and when it was processed."""

    text: str
    """The last user message."""
    window: list[tuple[str, str]]
    """(role, content) of every message but the system prompt, oldest first, without the server's note; the last one is `text` unless tools are used."""
    caller: str
    """The API key of the request: it identifies the server when each has its own."""
    began: float
    ended: float | None = None
    broken: bool = False
    """Whether the caller disconnected before the answer was complete."""
    system: str = ""
    note: str = ""
    """The server's note around the newest message."""
    tools: Sequence[str] = ()
    """The names of the functions that it may call."""
    body: str = ""
    """The complete request."""

    @property
    def is_summary(self) -> bool:
        """Return whether it asks for a summary instead of a reply."""
        return self.system.startswith("Summarize conversation so far")

    @property
    def told(self) -> str:
        """Return all that the server tells the model: the system prompt, and the note around the newest message."""
        return f"{self.system}\n{self.note}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function, with its arguments as the model writes them, which may be no valid JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Uses:
    """An answer that calls functions, optionally with text before."""

    calls: Sequence[ToolCall]
    text: str = ""


Answer: TypeAlias = str | Uses
Decision: TypeAlias = Mapping[str, Any] | str | int
"""The answer to a reflection: its fields; raw arguments that may be no JSON; or a status to fail with."""

NOTHING_TO_DO: Decision = {"follow_up": None, "memories": ()}


def reply_to(text: str) -> str:
    return f"re: {text}"


def plans(matter: str, trigger_type: str = "task_incomplete", delay_seconds: Any = 600) -> ToolCall:
    """Return a call that plans a follow-up."""
    arguments = {"trigger_type": trigger_type, "delay_seconds": delay_seconds, "matter": matter}
    return ToolCall("follow_up", json.dumps(arguments))


def remembers(content: str, **more: Any) -> Uses:
    """Return an answer that stores a memory."""
    return Uses([ToolCall("upsert_memory", json.dumps({"content": content, **more}))])


@dataclass(slots=True)
class ScriptedModel:
    """`delay` returns the seconds until the answer to a text; it may be changed at any time."""

    delay: Callable[[str], float] = field(default=lambda _text: 0.0)
    answers: deque[Answer] = field(default_factory=deque[Answer])
    """The next answers, in this order; when it is empty, "re: " and the message."""
    replies: dict[str, str] = field(default_factory=dict[str, str])
    """Answers by message text, used before `answers`."""
    obey: Callable[[Call], Answer | None] | None = None
    """Return the answer to a request, used first; None: the other answers are used."""
    decisions: deque[Decision] = field(default_factory=deque[Decision])
    """The next answers to reflections; when it is empty, neither follow-up nor memories."""
    hold: asyncio.Event | None = None
    """Reflections are answered when this is set."""
    refuses_tools: int | None = None
    """The status with which a request with functions is refused, as by servers whose models can't call any."""
    refuses_pictures: bool = False
    """Whether a request with a picture is refused, as by servers whose models can't read any."""
    max_messages: int | None = None
    """A request with more messages is refused as too long."""
    usage: tuple[int, int] | None = (1, 1)
    """The tokens in and out that it tells for each answer, of a streamed one if it is asked to; None: it tells none."""
    refuses_usage: bool = False
    """Whether a request for the usage of a stream is refused, as by servers that do not know the option."""
    fails: bool = False
    """Whether every call gets a 500."""
    summary: str = "They talked."
    """The answer to a request for a summary."""
    calls: list[Call] = field(default_factory=list[Call])
    reflections: list[Call] = field(default_factory=list[Call])
    """The requests of reflections; `calls` does not contain them."""
    listed: int = 0
    """The number of requests for the list of models."""
    url: str = ""

    def calls_about(self, text: str) -> list[Call]:
        return [call for call in self.calls if call.text == text]

    async def until_asked(self, text: str, *, seconds: float = LIMIT_SECONDS) -> Call:
        """Wait for the first call about `text` and return it."""
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
            if self.refuses_pictures and '"image_url"' in call.body:
                return _refusal(400, "this model does not support image input")
            if self.max_messages is not None and len(body["messages"]) > self.max_messages:
                return _refusal(400, "too many messages", code="context_length_exceeded")
            if self.refuses_usage and "stream_options" in body:
                return _refusal(400, "Bad request")
            if is_reflection:
                return await self._decide()
            answer = self._reply(call)
            if body.get("stream"):
                wants_usage = body.get("stream_options") == {"include_usage": True}
                return await self._stream(request, call, answer, usage=self.usage if wants_usage else None)
            await asyncio.sleep(self.delay(call.text))
            return web.json_response(_completion(answer, self.usage))
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
        return web.json_response(_completion(Uses([ToolCall(REFLECTION, arguments)]), self.usage))

    def _reply(self, call: Call) -> Answer:
        if call.is_summary:
            return self.summary
        if self.obey is not None and (obeyed := self.obey(call)) is not None:
            return obeyed
        if call.text in self.replies:
            return self.replies[call.text]
        return self.answers.popleft() if self.answers else reply_to(call.text)

    async def _stream(
        self, request: web.Request, call: Call, answer: Answer, *, usage: tuple[int, int] | None
    ) -> web.StreamResponse:
        """Stream half of the words at once, the other half after the delay."""
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
            await response.write(_chunk({}, finish=_finish(answer)))
            if usage is not None:
                await response.write(_frame(choices=[], usage=_usage(usage)))
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        except ConnectionError:
            call.broken = True
        return response


def _call(request: web.Request, body: dict[str, Any]) -> Call:
    messages: list[dict[str, Any]] = body["messages"]
    split = [
        (str(one["role"]), *split_whole_note(str(one["content"] or ""))) for one in messages if one["role"] != "system"
    ]
    window = [(role, words) for role, _, words in split]
    return Call(
        text=next((text for role, text in reversed(window) if role == "user"), ""),
        window=window,
        caller=request.headers.get("Authorization", "").removeprefix("Bearer "),
        began=time.monotonic(),
        system="\n".join(str(one["content"]) for one in messages if one["role"] == "system"),
        tools=[tool["function"]["name"] for tool in body.get("tools") or ()],
        note="".join(note for _, note, _ in split),
        body=json.dumps(body, ensure_ascii=False),
    )


def _refusal(status: int, message: str, **more: str) -> web.Response:
    return web.json_response({"error": {"message": message, **more}}, status=status)


def _finish(answer: Answer) -> str:
    return "stop" if isinstance(answer, str) else "tool_calls"


def _usage(tokens: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}


def _completion(answer: Answer, usage: tuple[int, int] | None) -> dict[str, Any]:
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
        **({} if usage is None else {"usage": _usage(usage)}),
    }


def _call_pieces(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return the parts of streamed calls: the name first, then the arguments in two pieces."""
    pieces: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        named = {"id": f"call_{index}", "type": "function", "function": {"name": call.name, "arguments": ""}}
        half = len(call.arguments) // 2
        written = ({"function": {"arguments": part}} for part in (call.arguments[:half], call.arguments[half:]))
        pieces += [{"index": index, **part} for part in (named, *written)]
    return pieces


def _chunk(delta: dict[str, Any], *, finish: str | None = None) -> bytes:
    return _frame(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def _frame(**fields: Any) -> bytes:
    frame = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "mock"}
    return b"data: " + json.dumps({**frame, **fields}).encode() + b"\n\n"


@asynccontextmanager
async def scripted_model() -> AsyncGenerator[ScriptedModel]:
    """Serve a scripted model during the block."""
    model = ScriptedModel()
    app = web.Application(client_max_size=64_000_000)
    app.router.add_post("/v1/chat/completions", model.answer)
    app.router.add_get("/v1/models", model.models)
    # With cancellation, a killed caller is detected at once, and its call is marked as broken.
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
    """Return a chat model for the app that calls this model over a real connection."""
    return make_openai(
        "mock", timeout=LIMIT_SECONDS, environment={"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
    )
