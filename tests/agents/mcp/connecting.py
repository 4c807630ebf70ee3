"""Connect with MCP servers in a test, as the worker of a process does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.source import McpTools
from rapport.runtime.background import keep_running
from rapport.runtime.tasks import end_all
from tests.support.waiting import LIMIT_SECONDS

HOSTILE = Path(__file__).parent / "hostile.py"


def hostile(mode: str, *, name: str = "bad", **fields: Any) -> McpServer:
    """Return a server that misbehaves in this way."""
    env = {"PATH": os.environ["PATH"], **fields.pop("env", {})}
    return McpServer(name, command=sys.executable, args=["-I", "-S", str(HOSTILE), mode], env=env, **fields)


@contextlib.asynccontextmanager
async def running(*servers: McpServer, wait: bool = True) -> AsyncGenerator[McpTools]:
    """Run the loops of these servers; with `wait` until each is connected or has failed once."""
    tools = McpTools(servers)
    tasks = [asyncio.create_task(keep_running(name, loop), name=name) for name, loop in tools.loops]
    try:
        if wait:
            await tools.wait_until_tried(LIMIT_SECONDS)
        yield tools
    finally:
        await end_all(tasks)


async def wait_until(holds: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)
