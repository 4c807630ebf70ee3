"""Connect with the configured MCP servers for the time of a command, and say what is wrong with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.source import McpTools
from rapport.runtime.background import keep_running
from rapport.runtime.tasks import run_beside

WAIT_SECONDS: Final = 35.0
"""A server that has not connected within this time is reported as one that fails: a bit more than a connection gets."""

_REMEDIES: Final = (
    # The first that is a part of the problem is used.
    ("can't be started", "Install the program, or give its whole path as `command`."),
    ("status 401", "Check its `headers`: the server asks for other credentials."),
    ("status 403", "Check its `headers`: the server asks for other credentials."),
    ("HTTP status 4", "Check its `url`: there may be no MCP server at this address."),
    ("can't be reached", "Start the server, or correct its `url`."),
    ("answer is no MCP", "Check its `url`: there may be no MCP server at this address."),
    ("version of MCP", "Update the server."),
)
_BY_TRANSPORT: Final = {
    "stdio": "Run its `command` with its `args` in a terminal to see why.",
    "http": "Look into the log of that server.",
}


@asynccontextmanager
async def connect(servers: Sequence[McpServer], *, seconds: float = WAIT_SECONDS) -> AsyncGenerator[McpTools]:
    """Yield the tools of the servers once each is connected or has failed, at most after so many seconds."""
    tools = McpTools(servers)

    async def run_all() -> None:
        await asyncio.gather(*(keep_running(name, loop) for name, loop in tools.loops))

    async with run_beside(run_all(), name="mcp"):
        await tools.wait_until_tried(seconds)
        yield tools


def describe_failure(server: McpServer, problem: str) -> str:
    """Return that a server can't be used, why, and what to do."""
    return f"The MCP server {server.name} can't be used: {add_remedy(server, problem)}"


def add_remedy(server: McpServer, problem: str) -> str:
    """Return the problem of a server and a sentence that says what to do."""
    remedy = next((each for part, each in _REMEDIES if part in problem), _BY_TRANSPORT[server.transport])
    return f"{problem.rstrip('.')}. {remedy}"
