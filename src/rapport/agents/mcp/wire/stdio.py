"""Start a server as a child process and speak with it over its standard input and output.

The official package's `stdio_client` is not used: it keeps a line of any length in memory and copies it for each chunk, and it
needs up to four seconds without interruption to end a process (ADR 92).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.wire.envelope import TooComplex, estimate_cost, pack
from rapport.agents.mcp.wire.limits import MAX_MESSAGE_BYTES, TOO_LARGE_CODE, Throttle
from rapport.agents.mcp.wire.lines import END_CHARACTERS, Line, LineReader, find_answered_request
from rapport.agents.mcp.wire.streams import ConnectionLost, Incoming, Streams

log = structlog.get_logger()

_CHUNK_BYTES: Final = 65_536
_END_SECONDS: Final = 1.0
"""Seconds that a process gets to end after its input is closed, and again after SIGTERM; then it is killed."""
_MAX_STDERR_CHARACTERS: Final = 300


class _StderrTail:
    """The last line of a server's standard error: the reason if it ends at once."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._throttle = Throttle()
        self.last = ""
        self._has_ended = asyncio.Event()

    async def wait(self) -> None:
        """Wait until it is read to the end; a second at most, because a child of the server may keep it open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._has_ended.wait()

    async def read(self, stderr: asyncio.StreamReader) -> None:
        """Read to the end. Lines go to the DEBUG log, and are dropped when there are too many."""
        await self._read_lines(stderr)
        self._has_ended.set()

    async def _read_lines(self, stderr: asyncio.StreamReader) -> None:
        lines = LineReader(_CHUNK_BYTES)
        while chunk := await stderr.read(_CHUNK_BYTES):
            await self._throttle.take(size=len(chunk))
            for line in lines.feed(chunk):
                self._keep(line)
        for line in lines.feed(b"\n"):  # the last one may have no end
            self._keep(line)

    def _keep(self, line: Line) -> None:
        text = self._server.redact(line.data[:2_000].decode(errors="replace").strip())
        if text:
            self.last = "".join(c if c.isprintable() else " " for c in text)[:_MAX_STDERR_CHARACTERS]
            if self._throttle.may_take():
                log.debug("mcp.stderr", server=self._server.name, line=self.last)


@contextlib.asynccontextmanager
async def open_stdio(server: McpServer, throttle: Throttle) -> AsyncGenerator[Streams]:
    """Start the server's command in a process group of its own; on exit end the whole group."""
    try:
        transport, process = await _start(server)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "its command is not valid"
        raise ConnectionLost(f"its command can't be started: {reason}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    read_writer, read_stream = anyio.create_memory_object_stream[Incoming](0)
    write_stream, write_reader = anyio.create_memory_object_stream[SessionMessage](0)
    tail = _StderrTail(server)
    try:
        async with read_writer, read_stream, write_stream, write_reader, anyio.create_task_group() as tasks:

            async def read_stdout() -> None:
                await _read(process.stdout, read_writer, throttle)
                if await _wait(process):
                    await tail.wait()
                raise ConnectionLost(_describe_end(process, tail.last))

            async def write_stdin() -> None:
                with contextlib.suppress(ConnectionError):
                    async for message in write_reader:
                        await _write(process.stdin, message)

            tasks.start_soon(read_stdout)
            tasks.start_soon(write_stdin)
            tasks.start_soon(tail.read, process.stderr)
            try:
                yield Streams(read_stream, write_stream)
            finally:
                tasks.cancel_scope.cancel()
    finally:
        await _end(process, transport)


async def _start(server: McpServer) -> tuple[asyncio.SubprocessTransport, Process]:
    loop = asyncio.get_running_loop()
    # The parts of `create_subprocess_exec`, which does not give access to the transport: only that can close the pipes.
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=_CHUNK_BYTES, loop=loop),
        server.command,
        *server.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(server.env),
        cwd=server.cwd,
        start_new_session=True,
    )
    return transport, Process(transport, protocol, loop)


async def _read(stdout: Any, messages: Any, throttle: Throttle) -> None:
    lines = LineReader(MAX_MESSAGE_BYTES)
    while chunk := await stdout.read(_CHUNK_BYTES):
        await throttle.take(size=len(chunk))
        for line in lines.feed(chunk):
            await throttle.take(cost=estimate_cost(line.data))
            if (message := _parse(line)) is not None:
                await messages.send(message)


def _parse(line: Line) -> Incoming | None:
    """Return the message of a line, or the error of one that is none; None for an empty line."""
    if line.is_too_long:
        return _make_too_large(line.answers)
    if not line.data.strip():
        return None
    try:
        return SessionMessage(JSONRPCMessage.model_validate_json(pack(line.data)))
    except TooComplex:
        return _make_too_large(find_answered_request(line.data[:END_CHARACTERS], line.data[-END_CHARACTERS:]))
    except ValueError:
        return ValueError("a line is no message")


def _make_too_large(request_id: int | None) -> Incoming:
    """Return the error that stands for an answer that is not read."""
    if request_id is None:
        return ValueError("a message is too large")
    error = ErrorData(code=TOO_LARGE_CODE, message="its answer is too large")
    return SessionMessage(JSONRPCMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))


async def _write(stdin: Any, message: SessionMessage) -> None:
    text = message.message.model_dump_json(by_alias=True, exclude_none=True)
    stdin.write(text.encode() + b"\n")
    await stdin.drain()


def _describe_end(process: Process, last_line: str) -> str:
    ended = f"it ended with status {process.returncode}" if process.returncode is not None else "it closed its output"
    return f"{ended}: {last_line}" if last_line else ended


async def _wait(process: Process) -> bool:
    """Wait until the process has ended; return False if that takes too long."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _end(process: Process, transport: asyncio.SubprocessTransport) -> None:
    """Close the input, then send SIGTERM, then SIGKILL to the process group; a cancellation goes on to the next step."""
    cancelled: asyncio.CancelledError | None = None
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if await _wait(process):
                break
        except asyncio.CancelledError as error:
            cancelled = error
        _signal_group(process.pid, number)
    _signal_group(process.pid, signal.SIGKILL)  # children that outlived it
    transport.close()
    if cancelled is not None:
        raise cancelled


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
