"""Test the client against servers that others wrote: npm's everything, filesystem and memory, over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rapport.agents.mcp import connection
from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.source import McpTools
from rapport.domain.errors import Transient
from rapport.domain.tool import ToolOutcomeUnknown
from rapport.logs import Redactor
from tests.agents.mcp.connecting import running, wait_until
from tests.support.installing import packages

PEERS = Path(__file__).parent / "peers"
BRIDGE = Path(__file__).parent / "bridge.py"


def peer(package: str, *arguments: str, name: str = "", **fields: Any) -> McpServer:
    """Return a server of npm that is started over stdio."""
    script = packages(PEERS) / "@modelcontextprotocol" / f"server-{package}" / "dist" / "index.js"
    env = {"PATH": os.environ["PATH"], **fields.pop("env", {})}
    return McpServer(name or package, command=node(), args=[str(script), *arguments], env=env, **fields)


def node() -> str:
    path = shutil.which("node")
    assert path is not None
    return path


@contextlib.asynccontextmanager
async def everything_over_http(port: int = 0) -> AsyncGenerator[McpServer]:
    """Run server-everything over streamable HTTP."""
    server = peer("everything", "streamableHttp")
    port = port or find_free_port()
    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.args,
        env={**server.env, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield McpServer("everything", url=f"http://127.0.0.1:{port}/mcp", timeout_seconds=20)
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def reached(server: McpServer, transport: str) -> AsyncGenerator[McpServer]:
    """Yield the server as it is, or behind an address."""
    if transport == "stdio":
        yield server
        return
    port = find_free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(BRIDGE), str(port), server.command, *server.args),
        env={**server.env},
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield McpServer(server.name, url=f"http://127.0.0.1:{port}/mcp/", timeout_seconds=20)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def expect_everything(tools: McpTools) -> None:
    """Check all kinds of results of server-everything."""
    names = {spec.name for spec in tools.list_tools()}
    assert {"everything__echo", "everything__get-sum", "everything__trigger-long-running-operation"} <= names
    assert (await tools.call("everything__echo", {"message": "grüß dich"})).text == "Echo: grüß dich"
    assert "5" in (await tools.call("everything__get-sum", {"a": 2, "b": 3})).text
    weather = await tools.call("everything__get-structured-content", {"location": "New York"})
    assert '"temperature"' in weather.text
    assert weather.text.count("temperature") == 1
    image = await tools.call("everything__get-tiny-image", {})
    assert "[image: image/png, 4,035 bytes; not shown]" in image.text
    links = await tools.call("everything__get-resource-links", {"count": 2})
    assert links.text.count("[link to a resource: ") == 2
    embedded = await tools.call("everything__get-resource-reference", {"resourceType": "Text", "resourceId": 1})
    assert "[embedded resource: " in embedded.text
    wrong = await tools.call("everything__get-sum", {"a": "two", "b": 3})
    assert (wrong.text, wrong.is_error) == ("Not done: The argument `a` is wrong: 'two' is not of type 'number'.", True)
    long = await tools.call("everything__trigger-long-running-operation", {"duration": 1, "steps": 2})
    assert "completed" in long.text


async def test_everything_over_stdio() -> None:
    async with running(peer("everything", "stdio")) as tools:
        await expect_everything(tools)


async def test_everything_over_http() -> None:
    async with everything_over_http() as server, running(server) as tools:
        await wait_until(tools.list_tools)
        await expect_everything(tools)


async def test_calls_run_at_once() -> None:
    async with everything_over_http() as server, running(server, peer("everything", "stdio", name="local")) as tools:
        await wait_until(lambda: {spec.server for spec in tools.list_tools()} == {"everything", "local"})
        waiting = {"duration": 2, "steps": 1}
        async with asyncio.timeout(15):  # one after the other they would need 32 seconds
            await asyncio.gather(
                *(
                    tools.call(f"{name}__trigger-long-running-operation", waiting)
                    for name in ("everything", "local")
                    for _ in range(8)
                )
            )


async def test_an_http_server_that_restarts_is_used_again() -> None:
    async with contextlib.AsyncExitStack() as first_life:
        server = await first_life.enter_async_context(everything_over_http())
        async with running(server) as tools:
            await wait_until(tools.list_tools)
            await first_life.aclose()
            with pytest.raises((Transient, ToolOutcomeUnknown)):
                await tools.call("everything__echo", {"message": "anybody?"})
            await wait_until(lambda: not tools.list_tools())
            with pytest.raises(Transient):
                await tools.call("everything__echo", {"message": "anybody?"})
            async with everything_over_http(int(server.url.split(":")[2].partition("/")[0])):
                await wait_until(tools.list_tools)
                assert (await tools.call("everything__echo", {"message": "again"})).text == "Echo: again"


async def test_no_result_shows_a_secret_of_the_configuration() -> None:
    server = peer("everything", "stdio", env={"SOME_TOKEN": "tok-1234567890"}, redact=Redactor(["tok-1234567890"]))
    async with running(server) as tools:
        shown = (await tools.call("everything__get-env", {})).text
    assert '"SOME_TOKEN": "[redacted]"' in shown


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_filesystem(tmp_path: Path, transport: str) -> None:
    (tmp_path / "a.txt").write_text("the text of a")
    async with reached(peer("filesystem", str(tmp_path)), transport) as server, running(server) as tools:
        await wait_until(tools.list_tools)
        reads = {spec.name.removeprefix("filesystem__"): spec.only_reads for spec in tools.list_tools()}
        assert reads["read_text_file"]
        assert not reads["write_file"]
        read = await tools.call("filesystem__read_text_file", {"path": str(tmp_path / "a.txt")})
        assert read.text == "the text of a"
        await tools.call("filesystem__write_file", {"path": str(tmp_path / "b.txt"), "content": "new"})
        assert (tmp_path / "b.txt").read_text() == "new"
        outside = await tools.call("filesystem__read_text_file", {"path": "/etc/passwd"})
        assert outside.is_error
        assert "root:" not in outside.text


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_memory(tmp_path: Path, transport: str) -> None:
    memory = peer("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    entity = {"name": "Ana", "entityType": "person", "observations": ["likes tea"]}
    async with reached(memory, transport) as server, running(server) as tools:
        await wait_until(tools.list_tools)
        made = await tools.call("memory__create_entities", {"entities": [entity]})
        assert not made.is_error
        wrong = await tools.call("memory__create_entities", {"entities": [{"name": 7}]})
        assert wrong.is_error
        found = await tools.call("memory__search_nodes", {"query": "tea"})
        assert "Ana" in found.text


def find_process(part: str) -> psutil.Process:
    """Return the server that this process has started."""
    [found] = [child for child in psutil.Process().children() if any(part in each for each in child.cmdline())]
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_is_killed_in_a_call_is_started_again(number: signal.Signals) -> None:
    async with running(peer("everything", "stdio")) as tools:
        waiting = {"duration": 60, "steps": 2}
        call = asyncio.create_task(tools.call("everything__trigger-long-running-operation", waiting))
        await tools.call("everything__echo", {"message": "sent after it"})
        killed = find_process("server-everything")
        killed.send_signal(number)
        with pytest.raises(ToolOutcomeUnknown, match="ended"):
            await call
        await wait_until(lambda: not tools.list_tools())
        await wait_until(tools.list_tools)
        assert (await tools.call("everything__echo", {"message": "again"})).text == "Echo: again"
        assert find_process("server-everything").pid != killed.pid


async def test_a_server_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_SECONDS", 0.5)
    async with running(peer("everything", "stdio", timeout_seconds=0.5), peer("memory")) as tools:
        stopped = find_process("server-everything")
        stopped.suspend()
        with pytest.raises(ToolOutcomeUnknown, match="did not answer"):
            await tools.call("everything__echo", {"message": "anybody?"})
        assert not (await tools.call("memory__read_graph", {})).is_error
        await wait_until(lambda: not stopped.is_running())
        await wait_until(lambda: any(spec.server == "everything" for spec in tools.list_tools()))
        assert find_process("server-everything").pid != stopped.pid


async def test_the_end_of_the_loops_ends_the_servers(tmp_path: Path) -> None:
    async with running(peer("everything", "stdio"), peer("filesystem", str(tmp_path)), peer("memory")):
        children = psutil.Process().children(recursive=True)
        peers = [child for child in children if any("modelcontextprotocol" in part for part in child.cmdline())]
        assert len(peers) == 3
    _, alive = psutil.wait_procs(peers, timeout=20)
    assert alive == []
