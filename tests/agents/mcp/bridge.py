"""Offer an MCP server that speaks over stdio at an address, with both halves of the official package.

`python bridge.py PORT COMMAND ARGUMENT…`; npm's filesystem and memory servers speak over stdio alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from mcp import types
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount


def make_server(session: ClientSession) -> Server[Any, Any]:
    """Return a server that passes lists and calls of tools on."""
    server: Server[Any, Any] = Server("bridge")

    async def list_tools(_request: types.ListToolsRequest) -> types.ServerResult:
        return types.ServerResult(await session.list_tools())

    async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
        return types.ServerResult(await session.call_tool(request.params.name, request.params.arguments))

    server.request_handlers = {
        **server.request_handlers,
        types.ListToolsRequest: list_tools,
        types.CallToolRequest: call_tool,
    }
    return server


async def main(port: int, command: str, *arguments: str) -> None:
    started = StdioServerParameters(command=command, args=[*arguments], env={**os.environ})
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        await session.initialize()
        manager = StreamableHTTPSessionManager(make_server(session))

        @contextlib.asynccontextmanager
        async def run(_app: Starlette) -> AsyncGenerator[None]:
            async with manager.run():
                yield

        app = Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=run)
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
