"""Errors under `/v1`, in OpenAI's shape: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from rapport.channels.http.problems import get_status
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.domain.errors import Conflict, InvalidInput, NotFound, RapportError, TooLarge, TooMany, Transient

log = structlog.get_logger()

_CODES = {
    401: "invalid_api_key",
    404: "not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    503: "unavailable",
}
_SERVER_ERROR = "The server could not do this; its log says why."

ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error in OpenAI's shape: `{error: {message, type, param, code}}`",
        "content": {"application/json": {"schema": {"type": "object", "properties": {"error": {"type": "object"}}}}},
    }
}
"""How the routes under `/v1` answer what they can't do, as `/openapi.json` tells it."""


class UnsupportedField(InvalidInput):
    """A field that can't be taken as it is, by OpenAI's name for it."""

    def __init__(self, message: str, *, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NoSuchModel(NotFound):
    """A model that is no agent of this server."""


def as_not_kept(error: RapportError) -> RapportError:
    """The same error for whoever asked in a conversation that is not kept: nothing of it will be answered later."""
    if not isinstance(error, Transient):
        return error
    return Transient(
        "No answer could be given just now. Nothing of the request is kept: send it again.",
        retry_after=error.retry_after,
    )


def error_value(error: RapportError) -> dict[str, Any]:
    """An error of ours as OpenAI's clients read it."""
    status = openai_status(error)
    if status == 500:
        log.error("chat.error", errorType=type(error).__name__, message=str(error))
        return _value(500, _SERVER_ERROR)
    if isinstance(error, UnsupportedField):
        return _value(status, str(error), param=error.param, code=error.code)
    if isinstance(error, NoSuchModel):
        return _value(status, str(error), param="model", code="model_not_found")
    if isinstance(error, Conflict):
        return _value(status, str(error), code="idempotency_key_reused")
    return _value(status, str(error))


def error_response(error: RapportError, *, headers: Mapping[str, str] | None = None) -> Response:
    """The same as a response, with when to come back if that helps."""
    status = openai_status(error)
    response = json_response(error_value(error), status)
    response.headers.update(headers or {})
    if isinstance(error, Transient | TooMany):
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def openai_status(error: RapportError) -> int:
    """The status that clients of OpenAI's expect: they would send again what is answered with a 409."""
    if isinstance(error, UnsupportedField) and isinstance(error.__cause__, TooLarge):
        return 413
    return 400 if isinstance(error, Conflict) else get_status(error)


class OpenAIRoute(StrictRoute):
    """A route whose requests are read strictly and whose errors leave in OpenAI's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def shaped(request: Request) -> Response:
            try:
                return await handler(request)
            except RapportError as error:
                return error_response(error)
            except RequestValidationError as error:
                return json_response(_value_of(error), 400)
            except HTTPException as error:
                return json_response(_value(error.status_code, str(error.detail)), error.status_code)
            except Exception as error:  # noqa: BLE001 - logged whole, and told in the shape that the client reads
                return _answer_unexpected(error)

        return shaped


def _answer_unexpected(error: Exception) -> Response:
    log.exception("chat.error", errorType=type(error).__name__, message="unexpected", exc_info=error)
    return json_response(_value(500, _SERVER_ERROR), 500)


def _value(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}}


def _value_of(error: RequestValidationError) -> dict[str, Any]:
    """The first thing that is wrong with a body. What was sent is not repeated: it may be huge."""
    item: Mapping[str, Any] = error.errors()[0]
    where = ".".join(str(part) for part in item.get("loc", ()) if part != "body")
    where = where.encode("utf-8", "replace").decode()[:80]
    if not where:
        return _value(400, "The body is not a JSON object (is the header `Content-Type: application/json` set?).")
    if item.get("type") == "missing":
        return _value(400, f"The field `{where}` is missing.", param=where)
    told = str(item.get("msg", "not as expected")).encode("utf-8", "replace").decode()[:200]
    return _value(400, f"`{where}`: {told}.", param=where)
