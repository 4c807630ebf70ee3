"""Offer the tools of all configured MCP servers as one source of tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.connection import CONNECT_SECONDS, Connection
from rapport.domain.errors import Transient
from rapport.domain.extras import MCP, require_extra
from rapport.domain.tool import SERVER_SEPARATOR, ToolResult, ToolServer, ToolSpec


class McpTools:
    """The tools of MCP servers (a ToolSource). The runtime runs `loops`; without them nothing is connected."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        if servers:
            require_extra(MCP, "MCP servers are configured")
        self.connections: Mapping[str, Connection] = {server.name: Connection(server) for server in servers}

    @property
    def loops(self) -> Sequence[tuple[str, Callable[[], Awaitable[None]]]]:
        """Return the name and the coroutine of each loop. None of them returns, and none waits for another."""
        return [(f"mcp {name}", connection.run) for name, connection in self.connections.items()]

    def list_tools(self) -> Sequence[ToolSpec]:
        """Return the tools of the servers that are connected now."""
        return [spec for connection in self.connections.values() for spec, _ in connection.tools.values()]

    def list_servers(self) -> Sequence[ToolServer]:
        """Return the configured servers, and which of them are connected now."""
        return [
            ToolServer(name, connection.state, "" if connection.state == "connected" else connection.problem or "")
            for name, connection in self.connections.items()
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments and call the tool.

        Raise Transient if the call was not sent, ToolOutcomeUnknown if it was sent and not answered in time, or its connection
        was lost. A caller that is cancelled gets CancelledError as ever: then the outcome is unknown, too.
        """
        connection = self.connections.get(name.partition(SERVER_SEPARATOR)[0])
        if connection is None:
            return ToolResult("There is no such tool.", is_error=True)
        tool = connection.tools.get(name)
        if tool is None:
            if connection.problem is not None or not connection.tried.is_set():
                raise Transient(f"The server {connection.server.name} is not connected: the call was not sent.")
            return ToolResult("There is no such tool.", is_error=True)
        from rapport.agents.mcp.arguments import find_argument_problem

        spec, raw_name = tool
        if (problem := find_argument_problem(spec.parameters, arguments)) is not None:
            return ToolResult(f"Not done: {problem}", is_error=True)
        return await connection.call(spec, raw_name, arguments)

    def find_problem(self, name: str) -> str | None:
        """Return why a server has no connection; None if it is connected. It may not have been tried yet."""
        connection = self.connections[name]
        if connection.tried.is_set():
            return connection.problem
        return "it has not answered yet"

    async def wait_until_tried(self, seconds: float) -> None:
        """Wait until each server is connected or has failed once, at most so many seconds."""
        await _wait(self.connections.values(), seconds)

    async def wait_for(self, names: Collection[str]) -> None:
        """Wait until the servers of these tools are connected or have failed once, as long as a connection may take."""
        servers = {name.partition(SERVER_SEPARATOR)[0] for name in names}
        await _wait([each for name, each in self.connections.items() if name in servers], CONNECT_SECONDS)


async def _wait(connections: Iterable[Connection], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for connection in connections:
                await connection.tried.wait()
