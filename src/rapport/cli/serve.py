"""`rapport serve` and `rapport worker`: run the server or a worker."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING

import structlog
import typer
import uvicorn

from rapport.app import App, open_app
from rapport.channels.http.auth.client_address import parse_trusted_networks
from rapport.channels.registry import CHANNELS
from rapport.domain.errors import Permanent
from rapport.runtime.tasks import run_beside
from rapport.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from rapport.channels.http.auth.rate_limits import Limiter

log = structlog.get_logger()

FINISH_SECONDS = 6.0
"""Seconds that a running turn gets after SIGTERM before another process takes it over. The whole stop takes under ten."""

PROBE_SECONDS = 20.0

OPEN_FILES = 65_536

UNHEALTHY_SECONDS = 60.0
"""After this time without a database `/healthz` fails, so that a supervisor can restart the process."""


class Server(uvicorn.Server):
    """uvicorn that drains the turns before it stops, so that waiting clients get their response."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers: the command has its own. uvicorn would raise the signals again before everything is closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            typer.echo(f"Rapport is listening: open {address(sockets or [])}  (stop with Ctrl-C)")
            if self._app.settings.model == "builtin":
                typer.echo(BUILTIN_HINT)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.worker.begin_drain(FINISH_SECONDS)
        self._app.library.stop()  # embedding a long note takes minutes
        await super().shutdown(sockets)


BUILTIN_HINT = (
    "It answers with the built-in model, which needs no key and knows little. For a real one set RAPPORT_MODEL,"
    " e.g. openai:gpt-5-mini with OPENAI_API_KEY, or ollama:qwen3."
)


async def serve(settings: Settings) -> None:
    """Serve until a stop signal."""
    listening = _listen(settings)  # first, so that a port in use is reported before the database starts
    stop = Stop()
    async with rate_limiter(settings) as limiter, open_app(settings, channels=CHANNELS) as app:
        await refuse_public_address_without_keys(app)
        from rapport.channels.http.live.slow_clients import uvicorn_protocols

        config = uvicorn.Config(
            web_app(app, limiter),
            loop="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(FINISH_SECONDS) + 2,
            timeout_keep_alive=30,
            server_header=False,
            **uvicorn_protocols(),
        )
        freeze_garbage_collector()
        allow_many_connections()
        server = Server(config, app)
        stop.then(lambda number: server.handle_exit(number, None))
        async with run_beside(check_model(app), name="check of the model"):
            await server.serve([listening])


async def check_model(app: App) -> None:
    """Log a warning if the model can't be used; nothing else depends on it."""
    name = app.settings.model
    if name == "builtin":
        return
    from rapport.agents.advice import advise
    from rapport.agents.probe import probe

    problem = await probe(name, app.model, environment=os.environ, timeout=PROBE_SECONDS)
    if problem is None:
        return
    app.health.record_probe(problem)
    log.warning("model.problem", model=name, kind=problem, remedy=advise(problem, name))


def web_app(app: App, limiter: Limiter | None, *, unhealthy_seconds: float = UNHEALTHY_SECONDS) -> FastAPI:
    """Build the HTTP app, which is unhealthy after `unhealthy_seconds` without a database."""
    from rapport.channels.http.server import Health, make_http_app

    return make_http_app(
        app.core,
        app.worker.live_updates,
        loopback=app.settings.is_loopback,
        max_characters=app.settings.max_message_characters,
        model=app.settings.model,
        limiter=limiter,
        metrics=app.metrics,
        telegram="telegram" in app.channels,
        model_health=app.health,
        called_by=[router for channel in app.channels.values() for router in channel.routers],
        health=Health(app.worker.heartbeat.seconds_since_heartbeat, unhealthy_seconds),
        trusted=parse_trusted_networks(app.settings.trusted_proxies),
    )


@contextlib.asynccontextmanager
async def rate_limiter(settings: Settings) -> AsyncGenerator[Limiter | None]:
    """Open the rate limiter if the settings enable it; otherwise nothing is imported or counted."""
    trusted = parse_trusted_networks(settings.trusted_proxies)
    if not settings.rate_limit:
        yield None
        return
    from rapport.channels.http.auth.rate_limits import open_limiter

    async with open_limiter(redis_url=settings.redis_url, trusted=trusted) as limiter:
        yield limiter


async def work(settings: Settings) -> None:
    """Run turns until a stop signal."""
    stop = Stop()
    async with open_app(settings, channels=CHANNELS) as app:
        freeze_garbage_collector()
        stop_requested = asyncio.Event()
        stop.then(lambda _number: stop_requested.set())
        typer.echo("Rapport's worker is running  (stop with Ctrl-C)")
        await stop_requested.wait()
        await app.worker.stop(seconds=FINISH_SECONDS)


def freeze_garbage_collector() -> None:
    """Exclude the objects made at start from garbage collection: scanning them takes a tenth of a turn's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def allow_many_connections() -> None:
    """Raise the limit of open files if allowed: each open page needs one, and the default is often 1,024."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = OPEN_FILES if hard_limit == resource.RLIM_INFINITY else min(OPEN_FILES, hard_limit)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))


class Stop:
    """Handles SIGTERM and Ctrl-C: cancels the start, and later calls the function that was passed to `then`."""

    def __init__(self) -> None:
        starting = asyncio.current_task()
        assert starting is not None
        self._act: Callable[[int], object] = lambda _number: starting.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda number=number: self._act(number))

    def then(self, act: Callable[[int], object]) -> None:
        self._act = act


async def refuse_public_address_without_keys(app: App) -> None:
    """Raise Permanent if others can reach the server and it has no keys (SEC)."""
    if app.settings.is_loopback:
        return
    from rapport.storage.access.api_keys import ApiKeys

    async with app.database.statement() as connection:
        if await ApiKeys(connection).has_active():
            return
    raise Permanent(
        f"HOST={app.settings.host} can be reached by others, and there is no key yet, so anybody could read and write"
        " every conversation. Make one with `rapport keys create NAME`, or bind to HOST=127.0.0.1."
    )


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host.strip("[]"), settings.port))
    except OSError as error:
        listening.close()
        raise Permanent(
            f"can't listen on {settings.host}:{settings.port}: {os.strerror(error.errno or 0)}. Set PORT (or HOST) to another."
        ) from error
    listening.setblocking(False)
    return listening


def address(sockets: list[socket.socket]) -> str:
    host, port = sockets[0].getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
