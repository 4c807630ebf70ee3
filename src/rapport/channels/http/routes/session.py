"""Serve `/api/session`: a browser signs in once with a key and gets a session cookie."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from rapport import __version__
from rapport.agents.advice import advise
from rapport.agents.health import ModelHealth
from rapport.channels.http.auth.authentication import COOKIE, Authenticator, Keyless, refuse_forged
from rapport.channels.http.problems import NOT_STORED
from rapport.channels.http.rendering.json_views import ProblemView, json_response
from rapport.channels.http.requests.json_bodies import Body, StrictRoute
from rapport.channels.http.routes.usage import BudgetView, budget_view
from rapport.core.access import SESSION_LIFETIME
from rapport.core.core import Core
from rapport.domain.caller import Role
from rapport.domain.errors import Unauthorized

BUILTIN = "builtin"


class SessionView(BaseModel):
    """The caller and the model of this server. `needs_key` is true where the server requires a key.

    `problem` says why the model doesn't work now, as far as this process knows. `budgets` are those of which at least
    80 % are used this month. Only operators get both.
    """

    signed_in: bool
    user: str | None
    role: Role | None
    needs_key: bool
    model: str
    builtin: bool
    version: str
    telegram: bool
    problem: ProblemView | None
    budgets: list[BudgetView]


class SignIn(Body):
    key: Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class Server:
    """The facts about the server that the page shows."""

    model: str
    telegram: bool = False
    health: ModelHealth = field(default_factory=ModelHealth)


def session_routes(core: Core, auth: Authenticator, keyless: Keyless, server: Server) -> APIRouter:
    router = APIRouter(prefix="/api/session", tags=["session"], route_class=StrictRoute)

    @router.get("", response_model=SessionView, summary="Get the signed-in user and the model of this server")
    async def get_session(request: Request) -> Response:
        try:
            caller = await auth.authenticate(request)
        except Unauthorized:
            caller = None
        may_see_problems = caller is not None and caller.is_operator
        view = {
            "signed_in": caller is not None,
            "user": caller and caller.owner_id,
            "role": caller and caller.role,
            "needs_key": not await keyless.is_open(),
            "model": server.model,
            "builtin": server.model == BUILTIN,
            "version": __version__,
            "telegram": server.telegram,
            "problem": _problem(server) if may_see_problems else None,
            "budgets": [budget_view(one) for one in await core.usage.list_nearly_spent()] if may_see_problems else [],
        }
        return json_response(view)

    @router.post("", status_code=204, summary="Sign in with a key; the response sets a cookie")
    async def sign_in(request: Request, body: SignIn) -> Response:
        """Sets a cookie that every route accepts instead of a key. Requests that change something also need `X-Rapport: page`."""
        refuse_forged(request)  # otherwise a page of another site could sign its visitor in as somebody else
        answer = Response(status_code=204, headers=NOT_STORED)
        if await keyless.is_open():
            await auth.authenticate(request)
            return answer
        token = await core.access.open_session(body.key.strip())
        if token is None:
            raise Unauthorized("This key is not valid, or was revoked.")
        answer.set_cookie(
            COOKIE,
            token,
            max_age=int(SESSION_LIFETIME.total_seconds()),
            path="/",
            secure=_is_encrypted(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    @router.delete("", status_code=204, summary="Sign out: end the session and remove the cookie")
    async def sign_out(request: Request) -> Response:
        refuse_forged(request)
        if token := request.cookies.get(COOKIE):
            await core.access.close_session(token)
        answer = Response(status_code=204, headers=NOT_STORED)
        answer.delete_cookie(COOKIE, path="/", secure=_is_encrypted(request), httponly=True, samesite="strict")
        return answer

    return router


def _problem(server: Server) -> dict[str, str] | None:
    problem = server.health.problem
    return problem and {"kind": problem, "text": advise(problem, server.model)}


def _is_encrypted(request: Request) -> bool:
    """Return True if the browser uses https, directly or to a proxy in front of this server.

    The headers need not be trusted: a wrong claim only gives a cookie that the browser won't send.
    """
    return (
        request.url.scheme == "https"
        or request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"
        or request.headers.get("origin", "").lower().startswith("https://")
    )
