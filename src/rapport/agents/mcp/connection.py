"""Stay connected with one MCP server and call its tools; a loop of the runtime runs each connection."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
import structlog

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.texts import clean_text, read_result
from rapport.agents.mcp.tool_specs import MAX_TOOLS, ToolEffects, find_unknown_names, make_specs
from rapport.agents.mcp.wire.limits import NO_ANSWER_CODE, NOT_SENT_CODE, TOO_LARGE_CODE, Throttle
from rapport.domain.errors import Transient
from rapport.domain.tool import ToolOutcomeUnknown, ToolResult, ToolSpec

if TYPE_CHECKING:  # the official package takes half a second to import
    from rapport.agents.mcp.wire.peer import Peer
    from rapport.agents.mcp.wire.streams import Streams

log = structlog.get_logger()

CONNECT_SECONDS: Final = 30.0
"""A server that does not introduce itself and list its tools within this time is tried again later."""
MAX_CONCURRENT_CALLS: Final = 8
PING_INTERVAL_SECONDS: Final = 60.0
PING_SECONDS: Final = 10.0
REFRESH_PAUSE_SECONDS: Final = 1.0
"""Between two lists of a server that announces changes of its tools all the time; the pause doubles up to a minute."""
FIRST_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 60.0
MAX_PAGES: Final = 50
_MAX_ERROR_CHARACTERS: Final = 500
_LOG_INTERVAL_SECONDS: Final = 300.0

_BROKEN_CODES: Final = frozenset({NOT_SENT_CODE, NO_ANSWER_CODE})
MIN_SECONDS_LEFT: Final = 0.1
"""A call that has waited so long for others that less is left is not sent: its answer could not come in time."""


class Connection:
    """The connection with a server. `run` makes it again and again; `call` uses it from any task."""

    def __init__(self, server: McpServer, *, chance: Callable[[], float] = random.random) -> None:
        """`chance` returns numbers between 0 and 1, which spread the attempts to connect."""
        self.server = server
        self.tools: Mapping[str, tuple[ToolSpec, str]] = {}
        """The tools that can be called now, by name, each with the server's name for it."""
        self.unknown_names: Sequence[str] = ()
        """Tools that the configuration names and the server does not have."""
        self.problem: str | None = None
        """Why the latest attempt to connect failed, or why the connection ended."""
        self.connect_seconds = 0.0
        """The duration of the latest attempt that succeeded, with the list of tools."""
        self.tried = asyncio.Event()
        """Set after the first attempt to connect."""
        self._chance = chance
        self._effects = ToolEffects(server)
        self._peer: Peer | None = None
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._running_calls = 0
        self._woken = asyncio.Event()
        self._must_refresh = False
        self._must_ping = False
        self._logged: tuple[str, float] = ("", 0.0)

    @property
    def state(self) -> Literal["connecting", "connected", "failed"]:
        """Return whether the server is connected; `connecting` until the first attempt has succeeded or failed."""
        if self._peer is not None:
            return "connected"
        return "failed" if self.tried.is_set() else "connecting"

    async def run(self) -> None:
        """Connect, and again with backoff whenever the connection fails or ends, until cancelled."""
        await asyncio.to_thread(importlib.import_module, "rapport.agents.mcp.wire.transports")
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            began_at = time.monotonic()
            await self._run_once()
            if time.monotonic() - began_at > MAX_BACKOFF_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            pause = backoff * (0.5 + self._chance() / 2)
            self._log_problem(pause)
            await asyncio.sleep(pause)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    async def _run_once(self) -> None:
        """Connect and keep the connection until it ends; `problem` says why it ended."""
        from rapport.agents.mcp.wire.streams import find_cause

        began_at = time.monotonic()
        try:
            async with self._open() as peer:
                self.connect_seconds = time.monotonic() - began_at
                await self._keep(peer)
        except Exception as error:  # noqa: BLE001 - whatever fails in a connection with this server, others go on
            self.problem = self._shorten(_describe(find_cause(error)))
        finally:
            self._peer = None
            self.tools = {}
            self.tried.set()

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncGenerator[Peer]:
        """Connect, learn the tools, and read messages during the body."""
        from rapport.agents.mcp.wire.peer import Peer
        from rapport.agents.mcp.wire.streams import ConnectionLost
        from rapport.agents.mcp.wire.transports import open_streams

        streams: Streams
        async with open_streams(self.server, Throttle()) as streams:
            peer = Peer(streams, self.server, on_tools_changed=self._note_change)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(peer.read)
                    try:
                        async with asyncio.timeout(CONNECT_SECONDS):
                            await peer.initialize()
                            await self._refresh(peer)
                    except TimeoutError:
                        raise ConnectionLost(f"it does not answer within {CONNECT_SECONDS:.0f} seconds") from None
                    yield peer
                    tasks.cancel_scope.cancel()
            finally:
                peer.close()

    async def _keep(self, peer: Peer) -> None:
        """Offer the tools, list them again when they change, and ping a connection that nobody uses."""
        self._peer, self.problem = peer, None
        self._logged = ("", 0.0)
        self.tried.set()
        log.info("mcp.connected", server=self.server.name, transport=self.server.transport, tools=len(self.tools))
        pause = REFRESH_PAUSE_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_INTERVAL_SECONDS):
                    await self._woken.wait()
                    pause = min(pause * 2, PING_INTERVAL_SECONDS)
            if not self._woken.is_set():
                pause = REFRESH_PAUSE_SECONDS
            self._woken.clear()
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._must_refresh:
                    self._must_refresh = False
                    await self._refresh(peer)
                elif self._must_ping or not self._running_calls:
                    self._must_ping = False
                    await _ping(peer)
            await asyncio.sleep(pause)

    def _note_change(self) -> None:
        self._must_refresh = True
        self._woken.set()

    def _check_soon(self) -> None:
        """Ping soon: a call has failed in a way that the connection may be the cause of."""
        self._must_ping = True
        self._woken.set()

    async def _refresh(self, peer: Peer) -> None:
        from rapport.agents.mcp.wire.streams import ConnectionLost

        listed: list[object] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            result = await peer.request("tools/list", {"cursor": cursor} if cursor else None)
            page, following = result.get("tools"), result.get("nextCursor")
            if not isinstance(page, list):
                raise ConnectionLost("its list of tools is none")
            listed += cast("list[object]", page)[: 10 * MAX_TOOLS]
            if not isinstance(following, str) or not following or following == cursor or len(listed) > 10 * MAX_TOOLS:
                break
            cursor = following
        self.tools = self._effects.keep(await asyncio.to_thread(make_specs, self.server, listed))
        unknown_names = find_unknown_names(self.server, listed)
        if unknown_names and unknown_names != self.unknown_names:
            log.warning("mcp.unknown_names", server=self.server.name, names=unknown_names)
        self.unknown_names = unknown_names

    async def call(self, spec: ToolSpec, raw_name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool within its time limit. Raise Transient or ToolOutcomeUnknown as `ToolSource.call` says."""
        from rapport.agents.mcp.wire.peer import Delivery, ServerError
        from rapport.agents.mcp.wire.streams import ConnectionLost

        delivery = Delivery()
        try:
            async with asyncio.timeout(spec.time_limit_seconds) as limit, self._slots:
                if (limit.when() or 0) - asyncio.get_running_loop().time() < MIN_SECONDS_LEFT:
                    raise TimeoutError
                result = await self._request(raw_name, arguments, delivery)
        except TimeoutError:
            if not delivery.may_be_sent:
                raise Transient(f"The server {self.server.name} is busy: the call was not sent.") from None
            self._check_soon()
            text = f"{spec.name} did not answer within {spec.time_limit_seconds:g} seconds."
            raise ToolOutcomeUnknown(text) from None
        except ConnectionLost:
            if not delivery.may_be_sent:
                raise self._make_not_connected() from None
            raise ToolOutcomeUnknown(f"The connection with the server {self.server.name} ended.") from None
        except ServerError as error:
            return self._read_error(error)
        return read_result(result, self.server.redact)

    async def _request(self, raw_name: str, arguments: Mapping[str, Any], delivery: Any) -> dict[str, Any]:
        peer = self._peer
        if peer is None:
            raise self._make_not_connected()
        self._running_calls += 1
        try:
            params = {"name": raw_name, "arguments": dict(arguments)}
            return await peer.request("tools/call", params, delivery=delivery)
        finally:
            self._running_calls -= 1

    def _read_error(self, error: Any) -> ToolResult:
        """Return the result for an error that the server answered with, or that stands for a failed transport."""
        if error.code in _BROKEN_CODES:
            self._check_soon()
        if error.code == NOT_SENT_CODE:
            raise Transient(f"The server {self.server.name} did not take the call: {error}.")
        if error.code == NO_ANSWER_CODE:
            raise ToolOutcomeUnknown(f"The server {self.server.name} took the call, and then {error}.")
        if error.code == TOO_LARGE_CODE:
            return ToolResult("The tool's answer was too large and was discarded.", is_error=True)
        text = self.server.redact(clean_text(str(error)[:_MAX_ERROR_CHARACTERS]))
        return ToolResult(f"The server refused the call: {text}", is_error=True)

    def _make_not_connected(self) -> Transient:
        return Transient(f"The server {self.server.name} is not connected: the call was not sent.")

    def _shorten(self, problem: str) -> str:
        """Return a problem on one line, without secrets."""
        return " ".join(self.server.redact(clean_text(problem)).split())[:_MAX_ERROR_CHARACTERS]

    def _log_problem(self, pause: float) -> None:
        """Log why there is no connection: each reason once in five minutes."""
        reason, now = self.problem or "", time.monotonic()
        if reason != self._logged[0] or now - self._logged[1] > _LOG_INTERVAL_SECONDS:
            self._logged = (reason, now)
            log.warning("mcp.disconnected", server=self.server.name, reason=reason, retrySeconds=round(pause, 1))


async def _ping(peer: Peer) -> None:
    """Raise if the server does not answer, or only with an error of the transport. Some servers know no ping."""
    from rapport.agents.mcp.wire.peer import ServerError

    try:
        async with asyncio.timeout(PING_SECONDS):
            await peer.request("ping")
    except ServerError as error:
        if error.code in _BROKEN_CODES:
            raise


def _describe(error: BaseException) -> str:
    """Return why a connection ended. The text of an unexpected error may quote a message, so that only its name is used."""
    from rapport.agents.mcp.wire.peer import ServerError
    from rapport.agents.mcp.wire.streams import ConnectionLost

    if isinstance(error, ConnectionLost):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, ServerError):
        return str(error) if error.code in (*_BROKEN_CODES, TOO_LARGE_CODE) else f"it refused to begin: {error}"
    return f"an unexpected error ({type(error).__name__})"
