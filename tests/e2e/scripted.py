"""A model that speaks OpenAI's API on loopback: it answers "re: <the last user message>" and remembers every call."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(slots=True)
class Call:
    """One request to the model: what it was given, and when it was at work on it."""

    text: str
    window: list[tuple[str, str]]
    """(role, content) of every message but the system prompt, oldest first; the last one is `text`."""
    caller: str
    """The API key that it came with: which server asked, when each has its own."""
    began: float
    ended: float | None = None
    broken: bool = False
    """Whether the caller went away before the answer was complete."""
    system: str = ""

    @property
    def is_summary(self) -> bool:
        """Whether it asks for a summary, behind the turns, and not for a reply."""
        return self.system.startswith("Summarize conversation so far")


def reply_to(text: str) -> str:
    return f"re: {text}"


@dataclass(slots=True)
class ScriptedModel:
    """`delay` says how long to think about a text; it may be changed at any time."""

    delay: Callable[[str], float] = field(default=lambda _text: 0.0)
    answers: deque[str] = field(default_factory=deque[str])
    """What to say next, in this order; when there is nothing left, "re: " and the message."""
    fails: bool = False
    """Whether every call ends with a 500."""
    summary: str = "They talked."
    """What to say when a summary is asked for."""
    calls: list[Call] = field(default_factory=list[Call])
    url: str = ""

    def calls_about(self, text: str) -> list[Call]:
        return [call for call in self.calls if call.text == text]

    async def until_asked(self, text: str, *, seconds: float = 20.0) -> Call:
        """The first call about `text`, once the model has begun with it."""
        async with asyncio.timeout(seconds):
            while not (found := self.calls_about(text)):
                await asyncio.sleep(0.01)
        return found[0]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = json.loads(await request.read())
        messages: list[dict[str, Any]] = body["messages"]
        window = [(str(one["role"]), str(one["content"])) for one in messages if one["role"] != "system"]
        caller = request.headers.get("Authorization", "").removeprefix("Bearer ")
        system = "\n".join(str(one["content"]) for one in messages if one["role"] == "system")
        call = Call(window[-1][1], window, caller, began=time.monotonic(), system=system)
        self.calls.append(call)
        if self.fails:
            return web.json_response({"error": {"message": "scripted failure"}}, status=500)
        text = self._reply(call)
        try:
            if body.get("stream"):
                return await self._stream(request, call, text)
            await asyncio.sleep(self.delay(call.text))
            return web.json_response(_completion(text))
        except asyncio.CancelledError:
            call.broken = True
            raise
        finally:
            call.ended = time.monotonic()

    def _reply(self, call: Call) -> str:
        if call.is_summary:
            return self.summary
        return self.answers.popleft() if self.answers else reply_to(call.text)

    async def _stream(self, request: web.Request, call: Call, text: str) -> web.StreamResponse:
        """Half of the words at once, the other half after the delay."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        words = text.split(" ")
        half = (len(words) + 1) // 2
        try:
            await response.write(_chunk(" ".join(words[:half])))
            await asyncio.sleep(self.delay(call.text))
            if words[half:]:
                await response.write(_chunk(" " + " ".join(words[half:])))
            await response.write(_chunk(None) + b"data: [DONE]\n\n")
            await response.write_eof()
        except ConnectionError:
            call.broken = True
        return response


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "mock",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _chunk(text: str | None) -> bytes:
    choice = {
        "index": 0,
        "delta": {} if text is None else {"role": "assistant", "content": text},
        "finish_reason": "stop" if text is None else None,
    }
    frame = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "mock"}
    return b"data: " + json.dumps({**frame, "choices": [choice]}).encode() + b"\n\n"


@asynccontextmanager
async def scripted_model() -> AsyncGenerator[ScriptedModel]:
    """A scripted model that listens, for as long as the block lasts."""
    model = ScriptedModel()
    app = web.Application(client_max_size=64_000_000)
    app.router.add_post("/v1/chat/completions", model.answer)
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
