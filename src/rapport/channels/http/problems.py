"""Translate errors into `application/problem+json`: a title, a status, and a sentence. HTTP codes are assigned only here."""

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
    Forbidden,
    InvalidFields,
    InvalidInput,
    NotFound,
    Permanent,
    RapportError,
    TooLarge,
    TooMany,
    Transient,
    Unauthorized,
)
from rapport.domain.validation_errors import describe_errors

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
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    431: "Header too large",
    500: "Server error",
    501: "Not installed",
    503: "Temporarily unavailable",
}

# The first match counts: subclasses come before their base classes.
_STATUS: tuple[tuple[type[RapportError], int], ...] = (
    (TooLarge, 413),
    (Conflict, 409),
    (Forbidden, 403),
    (InvalidFields, 422),
    (InvalidInput, 400),
    (NotFound, 404),
    (Unauthorized, 401),
    (TooMany, 429),
    (Transient, 503),
    (Permanent, 500),
)

NOT_STORED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of every JSON response: it is private, so no cache may store it."""

SERVER_ERROR = "The server could not handle the request. Its log has the reason."
"""The detail of an error whose cause only the operator may see."""

_FIELDS = {"type": "string", "title": "string", "status": "integer", "detail": "string"}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error: `title` names its kind, `detail` is a sentence about the cause",
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
"""The error response of every route, for `/openapi.json`."""


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **extra: Any) -> Response:
    """Return a problem+json response."""
    body = {
        "type": "about:blank",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        **extra,
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
    """Return the problem of an error of ours. Its text is written for the client, except that of a 500."""
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
        return problem(status, SERVER_ERROR)
    return problem(status, str(error), headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Make the application return every error as a problem."""

    async def handle_known_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RapportError)
        return problem_from_error(error)

    async def handle_invalid_request(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(422, describe_errors(error.errors()))

    async def handle_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "There is no route at this address; see /docs."
        elif error.status_code == 405:
            detail = f"This route does not accept {request.method[:16]}; see /docs."
        return problem(error.status_code, detail, headers=error.headers)

    async def handle_disconnect(request: Request, _error: Exception) -> Response:
        log.info("http.client_gone", method=request.method)  # nobody reads this response
        return problem(400, "The connection closed before the request was complete.")

    async def handle_unexpected_error(_request: Request, error: Exception) -> Response:
        log.exception("chat.error", errorType=type(error).__name__, message="unexpected", exc_info=error)
        return problem(500, SERVER_ERROR)

    app.add_exception_handler(RapportError, handle_known_error)
    app.add_exception_handler(RequestValidationError, handle_invalid_request)
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(ClientDisconnect, handle_disconnect)
    app.add_exception_handler(Exception, handle_unexpected_error)
