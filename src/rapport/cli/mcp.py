"""`rapport mcp`: the MCP server on standard input and output (ADR 92)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias, TypeVar, cast

import httpx
import orjson

from rapport.agents.mcp.wire.lines import Line, LineReader
from rapport.channels.http.requests.json_bodies import MAX_BODY_BYTES
from rapport.cli.serve import FINISH_SECONDS, Stop
from rapport.core.access import Access
from rapport.domain.caller import Caller, choose_default_role
from rapport.domain.conversation import LOCAL_USER
from rapport.domain.errors import InvalidInput, Unauthorized
from rapport.domain.extras import MCP, require_extra
from rapport.runtime.tasks import end_all
from rapport.settings import Settings

T = TypeVar("T")

KEY_VARIABLE = "RAPPORT_KEY"
"""The environment variable with the key, whose owner's things are reached."""
INVALID_KEY = f"The key in {KEY_VARIABLE} is not valid, or was revoked."
READ_BYTES = 65_536
MAX_AT_ONCE = 16
"""Messages that are being answered; no more are read meanwhile."""
CONNECT_TIMEOUT_SECONDS = 10.0
INTERNAL_ERROR = -32603
"""The protocol's code for a failure of the server."""

AnswerLine: TypeAlias = Callable[[bytes], Awaitable[bytes | None]]
"""Returns the answer to a message; None for a notification."""


async def serve_stdio(settings: Settings, *, url: str | None, user: str | None) -> None:
    """Answer messages until standard input ends or a stop signal comes."""
    if url is not None and user is not None:
        raise InvalidInput(f"--user does not go with --url: there the key in {KEY_VARIABLE} says who you are.")
    Stop()  # a signal cancels this task
    with claim_stdout() as output:
        opened = open_bridge(url) if url is not None else open_own_server(settings, user)
        async with opened as answer:
            await serve_lines(answer, output)


@contextmanager
def claim_stdout() -> Generator[int]:
    """Yield a descriptor of standard output; whatever else is printed goes to standard error meanwhile."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield output
    finally:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.close(output)


@asynccontextmanager
async def open_own_server(settings: Settings, user: str | None) -> AsyncGenerator[AnswerLine]:
    """Open the app in this process, also beside a running server, and answer from its data.

    Its caller is the owner of the key if there is one, else `user`, else the local user. Raise Unauthorized for a key that is
    not active.
    """
    require_extra(MCP, "`rapport mcp` speaks MCP")
    from rapport.app import open_app
    from rapport.channels.http.mcp.caller_access import CallerAccess
    from rapport.channels.http.mcp.messages import answer_message
    from rapport.channels.http.openai.conversation_choice import ConversationChoice

    async def admit(_conversation_id: str) -> None:
        """Admit every message: whoever starts this command has the data already."""

    key = _read_key()
    async with open_app(settings) as app:
        caller = Caller(user or LOCAL_USER, choose_default_role(user or LOCAL_USER))
        if key is not None:
            caller = await _find_owner(app.core.access, key, user)
        conversations = ConversationChoice(app.core)
        access = CallerAccess(app.core, conversations, caller, settings.max_message_characters, admit)

        async def answer(data: bytes) -> bytes | None:
            if key is not None and await app.core.access.find_caller_by_key(key) is None:  # revoked meanwhile
                return _format_failure(data, INVALID_KEY)
            return (await answer_message(access, data)).data

        yield answer


def _read_key() -> str | None:
    return os.environ.get(KEY_VARIABLE, "").strip() or None


async def _find_owner(access: Access, key: str, user: str | None) -> Caller:
    """Return the key's owner and role. Raise Unauthorized for a key that is not active, InvalidInput for one of somebody else."""
    caller = await access.find_caller_by_key(key)
    if caller is None:
        raise Unauthorized(f"{INVALID_KEY} Remove the variable to act as the user of --user.")
    if user not in (None, caller.owner_id):
        raise InvalidInput(f"The key in {KEY_VARIABLE} is one of {caller.owner_id!r}, not of the user of --user.")
    return caller


@asynccontextmanager
async def open_bridge(url: str) -> AsyncGenerator[AnswerLine]:
    """Pass messages on to a running server."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"--url is not an address: {error}.") from error
    if address.scheme not in ("http", "https") or not address.host:
        raise InvalidInput("--url is the address of a server, such as http://127.0.0.1:8000.")
    if address.path in ("", "/"):
        address = address.copy_with(path="/mcp")
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if (key := _read_key()) is not None:
        headers["Authorization"] = f"Bearer {key}"
    timeout = httpx.Timeout(CONNECT_TIMEOUT_SECONDS, read=None)  # a reply takes as long as it takes
    async with httpx.AsyncClient(headers=headers, timeout=timeout) as http:

        async def answer(data: bytes) -> bytes | None:
            try:
                response = await http.post(address, content=data)
            except httpx.HTTPError as error:
                reason = f"Rapport can't be reached at {address} ({type(error).__name__}). Is it running?"
                return _format_failure(data, reason)
            if response.status_code == 202:
                return None
            value = _parse(response.content)
            if value is not None and "jsonrpc" in value:
                return orjson.dumps(value)
            detail = (value or {}).get("detail") or f"{address} answered with status {response.status_code}."
            return _format_failure(data, str(detail))

        yield answer


async def serve_lines(answer: AnswerLine, output: int) -> None:
    """Answer each line of standard input by a line, several at once. At its end running answers get some time to finish."""
    lines, room, writing = LineReader(MAX_BODY_BYTES), asyncio.Semaphore(MAX_AT_ONCE), asyncio.Lock()
    running: set[asyncio.Task[None]] = set()

    async def respond(line: Line) -> None:
        try:
            answered = _refuse_long_line(line) if line.is_too_long else await answer(line.data)
            if answered is not None:
                async with writing:
                    await _write(output, answered + b"\n")
        finally:
            room.release()

    async def begin(chunk: bytes) -> None:
        for line in lines.feed(chunk):
            if line.data.strip() or line.is_too_long:
                await room.acquire()
                task = asyncio.create_task(respond(line))
                running.add(task)
                task.add_done_callback(running.discard)

    try:
        while chunk := await _run_in_daemon_thread(lambda: os.read(sys.stdin.fileno(), READ_BYTES), default=b""):
            await begin(chunk)
        await begin(b"\n")  # the last line may have no end
        if running:
            await asyncio.wait(running, timeout=FINISH_SECONDS)
    finally:
        await end_all(list(running))


def _refuse_long_line(line: Line) -> bytes:
    return _format_error(line.answers, f"The message is larger than {MAX_BODY_BYTES:,} bytes.")


def _format_failure(data: bytes, sentence: str) -> bytes | None:
    """Return the error for a message that a server did not answer; None for a notification."""
    value = _parse(data) or {}
    return None if "method" in value and "id" not in value else _format_error(value.get("id"), sentence)


def _format_error(id_: object, sentence: str) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": INTERNAL_ERROR, "message": sentence}})


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


async def _write(output: int, data: bytes) -> None:
    """Write all bytes. A client that has gone is no error: standard input ends too."""

    def write() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(output, rest) :]

    await _run_in_daemon_thread(write, default=None)


async def _run_in_daemon_thread(call: Callable[[], T], *, default: T) -> T:
    """Return the result of a blocking call; the default if it fails with an OSError.

    The end of the process does not wait for it, as it would for a thread of an executor.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T) -> None:
        if not result.done():
            result.set_result(value)

    def work() -> None:
        value = default
        with suppress(OSError):
            value = call()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value)

    threading.Thread(target=work, daemon=True).start()
    return await result
