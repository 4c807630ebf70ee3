"""Build the HTTP application: routes, errors and health checks around the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Response
from fastapi.routing import APIRoute

from rapport import __version__
from rapport.agents.health import ModelHealth
from rapport.agents.profiles import COMPANION
from rapport.channels.http.auth.authentication import Authenticator, Keyless
from rapport.channels.http.auth.client_address import Network
from rapport.channels.http.live.event_feed import Live
from rapport.channels.http.live.server_sent_events import event_routes
from rapport.channels.http.live.websocket import websocket_routes
from rapport.channels.http.mcp.routes import mcp_routes
from rapport.channels.http.openai.routes import openai_routes
from rapport.channels.http.problems import PROBLEMS, install_error_handlers, problem
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.rendering.message_html import Renderer
from rapport.channels.http.routes.agents import agent_defaults_routes, agent_routes
from rapport.channels.http.routes.api_reference import reference_routes
from rapport.channels.http.routes.approvals import approval_routes
from rapport.channels.http.routes.context import context_routes
from rapport.channels.http.routes.conversations import conversation_routes, resolve_agent
from rapport.channels.http.routes.insight import insight_routes
from rapport.channels.http.routes.memories import memory_routes
from rapport.channels.http.routes.notes import note_routes
from rapport.channels.http.routes.page import page_routes, read_page
from rapport.channels.http.routes.preferences import autonomy_routes
from rapport.channels.http.routes.reminders import reminder_routes
from rapport.channels.http.routes.samples import sample_routes
from rapport.channels.http.routes.session import Server, session_routes
from rapport.channels.http.routes.threads import thread_routes
from rapport.channels.http.routes.timers import timer_routes
from rapport.channels.http.routes.tools import tool_routes
from rapport.channels.http.routes.usage import usage_routes
from rapport.core.core import Core
from rapport.metrics import Metrics
from rapport.retrieval.files.reader import FileReader

if TYPE_CHECKING:
    from rapport.channels.http.auth.rate_limits import Limiter

READY_TIMEOUT_SECONDS = 1.0
"""A database that takes longer than this to answer counts as not ready."""


@dataclass(frozen=True, slots=True)
class Health:
    """The condition under which this process counts as broken."""

    database_silence: Callable[[], float]
    """Returns the seconds since the database last answered."""
    unhealthy_seconds: float


def make_http_app(
    core: Core,
    live: Live,
    *,
    loopback: bool,
    max_characters: int,
    model: str,
    limiter: Limiter | None = None,
    metrics: Metrics | None = None,
    telegram: bool = False,
    model_health: ModelHealth | None = None,
    called_by: Sequence[APIRouter] = (),
    health: Health | None = None,
    trusted: Sequence[Network] = (),
) -> FastAPI:
    """Return the application with every route; `called_by` are the routes that platforms such as Telegram call."""
    app = FastAPI(
        title="Rapport",
        version=__version__,
        description="A self-hosted conversation agent that chimes in, cites its sources and follows up."
        " If the server has keys, send one: `Authorization: Bearer <key>`.",
        docs_url=None,  # FastAPI's page runs a script of another site with the rights of the signed-in user
        redoc_url=None,
        responses=PROBLEMS,
    )
    install_error_handlers(app)
    app.state.trusted_proxies = tuple(trusted)
    keyless = Keyless(core.access, loopback=loopback)
    live.on_access_change(keyless.forget)
    auth = Authenticator(core.access, loopback=loopback, keyless=keyless)
    renderer = Renderer()
    counted = metrics or Metrics()
    # Routes are tried in this order: the most frequent ones first.
    _add_routes(app, conversation_routes(core, auth, max_characters=max_characters, limiter=limiter))
    _add_routes(app, session_routes(core, auth, keyless, Server(model, telegram, model_health or ModelHealth())))
    _add_routes(app, agent_routes(core, auth))
    _add_routes(app, agent_defaults_routes(auth))
    _add_routes(app, thread_routes(core, auth, renderer=renderer))
    _add_routes(app, event_routes(live, auth, renderer=renderer))
    _add_routes(
        app, websocket_routes(core, live, auth, renderer=renderer, max_characters=max_characters, limiter=limiter)
    )
    _add_routes(app, context_routes(core, auth))
    _add_routes(app, timer_routes(core.follow_ups, auth))
    _add_routes(app, reminder_routes(core.reminders, auth))
    _add_routes(app, approval_routes(core.approvals, auth))
    _add_routes(app, tool_routes(core.tools, auth))
    _add_routes(app, autonomy_routes(core, auth, metrics=counted))
    _add_routes(app, insight_routes(core, auth, metrics=counted))
    _add_routes(app, usage_routes(core, auth))
    _add_routes(app, sample_routes(core, auth))
    _add_routes(app, note_routes(core, FileReader(), auth))

    async def resolve_remembering_agent(owner_id: str, agent: str | None) -> str:
        return await resolve_agent(core, owner_id, agent, COMPANION.id)

    _add_routes(app, memory_routes(core.memories, resolve_remembering_agent, auth))
    _add_routes(app, openai_routes(core, auth, max_characters=max_characters, limiter=limiter))
    _add_routes(app, mcp_routes(core, auth, max_characters=max_characters, limiter=limiter))
    _add_routes(app, page_routes(read_page()))
    _add_routes(app, reference_routes(app))
    for router in called_by:
        _add_routes(app, router)

    @app.get(
        "/healthz", tags=["health"], summary="Check that the process runs and had a database within the last minute"
    )
    async def healthz() -> Response:
        if health is not None and health.database_silence() >= health.unhealthy_seconds:
            return problem(503, f"The database has not answered for {health.database_silence():.0f} seconds.")
        return json_response({"status": "ok"})

    @app.get("/readyz", tags=["health"], summary="Check that the process can accept messages: its database answers")
    async def readyz() -> Response:
        if not await core.monitoring.is_database_ready(timeout_seconds=READY_TIMEOUT_SECONDS):
            return problem(503, "The database can't be reached.", headers={"Retry-After": "2"})
        return json_response({"status": "ready"})

    return app


def _add_routes(app: FastAPI, router: APIRouter) -> None:
    """Add the routes of a router as they are; `include_router` makes each of them again and matches in two levels."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            route.responses = {**PROBLEMS, **route.responses}
    app.router.routes.extend(router.routes)
