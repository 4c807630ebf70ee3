"""Translate errors under `/v1` into OpenAI's format: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from rapport.channels.http.problems import SERVER_ERROR, get_status
from rapport.channels.http.rendering.json_views import json_response
from rapport.channels.http.requests.json_bodies import StrictRoute
from rapport.domain.client_tools import BudgetSpent, RequestRefused, ToolsRefused
from rapport.domain.errors import Conflict, InvalidInput, NotFound, RapportError, TooLarge, TooMany, Transient
from rapport.domain.validation_errors import describe_errors, name_field

log = structlog.get_logger()

_CODES = {
    401: "invalid_api_key",
    404: "not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    503: "unavailable",
}


ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error in OpenAI's format: `{error: {message, type, param, code}}`",
        "content": {"application/json": {"schema": {"type": "object", "properties": {"error": {"type": "object"}}}}},
    }
}
"""The error responses of the routes under `/v1`, for `/openapi.json`."""


class UnsupportedField(InvalidInput):
    """A field with an unsupported value, by OpenAI's name for it."""

    def __init__(self, message: str, *, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NoSuchModel(NotFound):
    """The name of a model that is not an agent of this server."""


def mark_as_not_stored(error: RapportError) -> RapportError:
    """Return the error with a text for ephemeral conversations: their messages get no later reply."""
    if not isinstance(error, Transient):
        return error
    return Transient(
        "There is no reply at the moment. Nothing of the request is kept: send it again.",
        retry_after=error.retry_after,
    )


def make_tool_error(error: RapportError) -> RapportError:
    """Return the error of a request with tools with the field and the code that OpenAI's clients know for it."""
    if isinstance(error, ToolsRefused):
        return UnsupportedField(str(error), param="tool_choice", code="unsupported_value")
    if isinstance(error, RequestRefused):
        code = "context_length_exceeded" if error.is_too_long else None
        return UnsupportedField(str(error), param="messages", code=code)
    return error


def error_value(error: RapportError) -> dict[str, Any]:
    """Return an error as a JSON value in OpenAI's format."""
    status = openai_status(error)
    if status == 500:
        log.error("chat.error", errorType=type(error).__name__, message=str(error))
        return _value(500, SERVER_ERROR)
    if isinstance(error, UnsupportedField):
        return _value(status, str(error), param=error.param, code=error.code)
    if isinstance(error, BudgetSpent):
        return _value(status, str(error), code="insufficient_quota")
    if isinstance(error, NoSuchModel):
        return _value(status, str(error), param="model", code="model_not_found")
    if isinstance(error, Conflict):
        return _value(status, str(error), code="idempotency_key_reused")
    return _value(status, str(error))


def error_response(error: RapportError, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as a response in OpenAI's format, with `Retry-After` where a retry can help."""
    status = openai_status(error)
    response = json_response(error_value(error), status)
    response.headers.update(headers or {})
    if isinstance(error, Transient | TooMany):
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, BudgetSpent):
        response.headers["X-Should-Retry"] = "false"
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def openai_status(error: RapportError) -> int:
    """Return the status of an error. A conflict is a 400 here, because OpenAI's clients retry a 409."""
    if isinstance(error, UnsupportedField) and isinstance(error.__cause__, TooLarge):
        return 413
    if isinstance(error, BudgetSpent):
        return 429
    return 400 if isinstance(error, Conflict) else get_status(error)


class OpenAIRoute(StrictRoute):
    """A route that parses requests strictly and returns errors in OpenAI's format."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RapportError as error:
                return error_response(error)
            except RequestValidationError as error:
                return json_response(_value_of(error), 400)
            except HTTPException as error:
                return json_response(_value(error.status_code, str(error.detail)), error.status_code)
            except Exception as error:  # noqa: BLE001 - logged, and returned in OpenAI's format
                return _answer_unexpected(error)

        return handle


def _answer_unexpected(error: Exception) -> Response:
    log.exception("chat.error", errorType=type(error).__name__, message="unexpected", exc_info=error)
    return json_response(_value(500, SERVER_ERROR), 500)


def _value(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}}


def _value_of(error: RequestValidationError) -> dict[str, Any]:
    """Describe the errors of a body; `param` is the field of the first one."""
    errors = error.errors()
    return _value(400, describe_errors(errors), param=name_field(errors[0]) or None)
