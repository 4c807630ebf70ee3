"""Let FastAPI analyse a route when it is first used, not when the app is wired.

An app has more than fifty routes, and analysing them takes half of the time in which a test's app is wired. A test uses a few.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import compile_path

_WHOLE = APIRoute.__init__


def make_routes_lazily() -> None:
    """Replace the way in which routes are made; each attribute that a test reads has the value that FastAPI gives it."""
    APIRoute.__init__ = _remember  # pyright: ignore[reportAttributeAccessIssue]
    APIRoute.__getattr__ = _complete  # pyright: ignore[reportAttributeAccessIssue]


_compile = cache(compile_path)


def _remember(route: APIRoute, path: str, endpoint: Any, **options: Any) -> None:
    """Set what the search for a request's route reads; the rest is made when it is read."""
    route.path = path
    route.path_regex, route.path_format, route.param_convertors = _compile(path)
    route.methods = {method.upper() for method in options.get("methods") or ["GET"]}
    route.responses = options.get("responses") or {}
    vars(route)["endpoint"] = endpoint
    vars(route)["_unmade"] = options


def _complete(route: APIRoute, name: str) -> Any:
    """Make the whole route: Python calls this for an attribute that is not there."""
    options: dict[str, Any] | None = vars(route).pop("_unmade", None)
    if options is None:
        raise AttributeError(name)
    responses = route.responses  # may have been replaced since
    _WHOLE(route, route.path, route.endpoint, **options)
    route.responses = responses
    return getattr(route, name)
