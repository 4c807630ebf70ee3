"""Open the connection that a server's configuration asks for."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from rapport.agents.mcp import arguments
from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.wire import peer
from rapport.agents.mcp.wire.http import open_http
from rapport.agents.mcp.wire.limits import Throttle
from rapport.agents.mcp.wire.stdio import open_stdio
from rapport.agents.mcp.wire.streams import Streams

__all__ = ["arguments", "open_streams", "peer"]


def open_streams(server: McpServer, throttle: Throttle) -> AbstractAsyncContextManager[Streams]:
    """Return the open connection: a child process, or an address."""
    return open_http(server, throttle) if server.url else open_stdio(server, throttle)
