"""Errors as `application/problem+json`: a title, a status, and a sentence that helps. The only place with HTTP codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rapport.domain.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    Permanent,
    RapportError,
    TooLarge,
    TooMany,
    Transient,
    Unauthorized,
)

log = structlog.get_logger()

_TITLES = {
    400: "Bad request",
    401: "A key is needed",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    413: "Too large",
    415: "Of a kind that is not taken here",
    422: "Not as expected",
    429: "Too many requests",
    431: "Header too large",
    500: "Something went wrong",
    503: "Unavailable for the moment",
}

# The first that fits: the narrower kinds come before the wider ones.
_STATUS: tuple[tuple[type[RapportError], int], ...] = (
    (TooLarge, 413),
    (Conflict, 409),
    (InvalidInput, 400),
    (NotFound, 404),
    (Unauthorized, 401),
    (TooMany, 429),
    (Transient, 503),
    (Permanent, 500),
)

NOT_STORED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""On every JSON answer: it is somebody's, so no cache keeps it, and it is what it says it is."""

_FIELDS = {"type": "string", "title": "string", "status": "integer", "detail": "string"}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem: `title` says of which kind, `detail` in a sentence what is wrong",
        "content": {
            "application/problem+json": {
                "schema": {
                    "type": "object",
                    "required": list(_FIELDS),
                    "properties": {name: {"type": kind} for name, kind in _FIELDS.items()},
                }
            }
        },
    }
}
"""How every route answers what it can't do, as `/openapi.json` tells it."""


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """A problem+json response."""
    body = {
        "type": "about:blank",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        **more,
    }
    return Response(
        orjson.dumps(body),
        status_code=status,
        media_type="application/problem+json",
        headers={**NOT_STORED, **(headers or {})},
    )


def get_status(error: RapportError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_from_error(error: RapportError) -> Response:
    """Our own errors: their text is written for whoever meets them."""
    status = get_status(error)
    headers: dict[str, str] = {}
    if isinstance(error, Transient):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, TooMany):
        seconds = max(1, error.retry_after)
        headers["Retry-After"] = str(seconds)
        return problem(status, str(error), headers=headers, error=str(error), retryAfter=seconds)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 500:
        log.error("chat.error", errorType=type(error).__name__, message=str(error))
        return problem(status, "The server could not do this; its log says why.")
    return problem(status, str(error), headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Every error of the surface leaves as a problem."""

    async def ours(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RapportError)
        return problem_from_error(error)

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(422, describe_validation_error(error))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "There is nothing at this address; see /docs."
        elif error.status_code == 405:
            detail = f"This address does not take {request.method[:16]}; see /docs."
        return problem(error.status_code, detail, headers=error.headers)

    async def gone(request: Request, _error: Exception) -> Response:
        log.info("http.client_gone", method=request.method)  # or it was cut off: nobody reads this answer
        return problem(400, "The request broke off before it was complete.")

    async def unexpected(_request: Request, error: Exception) -> Response:
        log.exception("chat.error", errorType=type(error).__name__, message="unexpected", exc_info=error)
        return problem(500, "The server could not do this; its log says why.")

    app.add_exception_handler(RapportError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, unexpected)


def describe_validation_error(error: RequestValidationError) -> str:
    """The first things that are not as expected, in words."""
    return " ".join(_sentence(item) for item in error.errors()[:3])


def _sentence(item: Mapping[str, Any]) -> str:
    """One validation error in words. What was sent is not repeated: it may be huge, or not even be text."""
    where = ".".join(str(part) for part in item.get("loc", ()) if part != "body" and isinstance(part, str | int))
    where = where.encode("utf-8", "replace").decode()[:80]
    kind = str(item.get("type", ""))
    if kind == "extra_forbidden":
        return f"There is no field `{where}`."
    if kind == "missing":
        return f"The field `{where}` is missing." if where else "The body is missing: send a JSON object."
    if kind in {"model_attributes_type", "dict_type", "model_type"}:
        if where:
            return f"`{where}` is not a JSON object."
        return "The body is not a JSON object (is the header `Content-Type: application/json` set?)."
    message = str(item.get("msg", "not as expected")).encode("utf-8", "replace").decode()[:200]
    return f"`{where}`: {message}." if where else f"{message}."
