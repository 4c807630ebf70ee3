"""An MCP server over streamable HTTP that misbehaves, written without the official package."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from rapport.agents.mcp.config import McpServer

JSON = "application/json"
EVENTS = "text/event-stream"


class HostileHttp:
    """Answers as `mode` says, which may change while it runs."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.session = 0
        self.tools = ["work"]
        self.calls = 0
        self.requests: list[tuple[str, dict[str, str]]] = []
        """The method and the headers of each request."""
        self.listening: set[web.StreamResponse] = set()
        self._ended = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, dict(request.headers)))
        if request.method == "GET":
            return await self._listen(request)
        if request.method == "DELETE":
            return web.Response(status=405)
        message: dict[str, Any] = await request.json()
        method = message.get("method")
        if method == "initialize":
            return await self._begin(request, message)
        if request.headers.get("mcp-session-id") != str(self.session):
            return web.Response(status=404, text="There is no such session.")
        if "id" not in message:
            return web.Response(status=202)
        if method == "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
            return self._reply(message, tools=listed)
        if method == "tools/call":
            self.calls += 1
            return await self._call(request, message)
        return self._reply(message)

    def forget_sessions(self) -> None:
        self.session += 1

    async def announce_changes(self) -> None:
        """Say that the tools have changed, to everybody who listens."""
        text = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        for stream in self.listening:
            await stream.write(f"data: {text}\n\n".encode())

    def end(self) -> None:
        self._ended.set()

    async def _begin(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if self.mode.isdecimal():
            return web.Response(status=int(self.mode), text=f"refused: {request.headers.get('Authorization')}")
        if self.mode == "redirects":
            raise web.HTTPTemporaryRedirect(f"{request.url.with_path('/elsewhere')}")
        if self.mode == "page":
            return web.Response(text="<html>Welcome!</html>", content_type="text/html")
        if self.mode == "never_answers":
            await self._ended.wait()
        if self.mode == "compresses":
            bomb = gzip.compress(b" " * 100_000_000)
            return web.Response(body=bomb, content_type=JSON, headers={"Content-Encoding": "gzip"})
        version = message["params"]["protocolVersion"]
        info = {"name": "hostile", "version": "1"}
        reply = self._reply(message, protocolVersion=version, capabilities={"tools": {}}, serverInfo=info)
        reply.headers["Mcp-Session-Id"] = str(self.session)
        return reply

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        if self.mode == "no_stream":
            return web.Response(status=405)
        stream = web.StreamResponse(headers={"Content-Type": EVENTS})
        await stream.prepare(request)
        self.listening.add(stream)
        with contextlib.suppress(ConnectionError):
            while self.mode == "floods":
                note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1_000}}
                await stream.write(f"data: {json.dumps(note)}\n\n".encode())
            while self.mode == "one_endless_event":
                await stream.write(b"data: " + b"x" * 100_000)
            await self._ended.wait()
        self.listening.discard(stream)
        return stream

    async def _call(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        mode = self.mode
        if mode == "calls_fail_500":
            return web.Response(status=500, text="oops")
        if mode == "calls_fail_429":
            return web.Response(status=429, text="later")
        if mode == "calls_hang":
            await self._ended.wait()
        if mode == "calls_answer_garbage":
            return web.Response(text="not JSON", content_type=JSON)
        if mode == "calls_are_huge":
            return web.Response(body=b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b"r" * 20_000_000, content_type=JSON)
        if mode in ("calls_break_off", "calls_stream_for_ever"):
            stream = web.StreamResponse(headers={"Content-Type": EVENTS})
            await stream.prepare(request)
            with contextlib.suppress(ConnectionError):
                await stream.write(b": wait\n\n")
                while mode == "calls_stream_for_ever":
                    await stream.write(b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\n')
            return stream
        return self._reply(message, content=[{"type": "text", "text": f"done {self.calls}"}])

    def _reply(self, message: dict[str, Any], **result: Any) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@asynccontextmanager
async def hostile_http(mode: str, **fields: Any) -> AsyncGenerator[tuple[HostileHttp, McpServer]]:
    """Run the server on a free port of loopback; yield it and its configuration."""
    hostile = HostileHttp(mode)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hostile.answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    path = fields.pop("path", "/mcp")
    try:
        yield hostile, McpServer(fields.pop("name", "bad"), url=f"http://{host}:{port}{path}", **fields)
    finally:
        hostile.end()
        await runner.cleanup()
