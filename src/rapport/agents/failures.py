"""Classify failures of models, and decide which are worth a retry (RES-2)."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import aiohttp
import httpx
import orjson

from rapport.domain.errors import RapportError
from rapport.domain.model_problems import ModelProblem

FIRST_WAIT = 0.2
MAX_WAIT = 10.0
"""The longest `Retry-After` that is worth waiting for inside a turn."""


_PROBLEM_OF_KIND: dict[str, ModelProblem] = {
    "timeout": "timeout",
    "network": "unreachable",
    "malformed": "malformed",
    "empty": "empty",
}
_TOLD = {
    "timeout": "the model gave no answer in time",
    "network": "the model server could not be reached, or broke off",
    "malformed": "the model server's answer could not be read",
    "error": "the model failed",
}
_KEY_CODES = frozenset({"invalid_api_key", "authentication_error", "permission_error", "api_key_invalid"})
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "billing_error"})
_MODEL_CODES = frozenset({"model_not_found", "not_found_error", "model_not_exist"})
_LENGTH_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "request_too_large"})
_LENGTH_SIGNS = ("context length", "context size", "context window", "prompt is too long", "too many tokens")
"""Phrases in the errors of servers without error codes for a prompt that is too long."""

_NETWORK = (OSError, httpx.TransportError, aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)


class ModelFailed(RapportError):
    """The model gave no usable answer.

    `kind` is a fixed word for logs, `problem` one for the operator. The text contains nothing of the provider's error, which
    may quote messages. That is in `detail`, only for DEBUG lines.
    """

    is_of_fallback = False
    """True if it is the failure of an agent's fallback model."""

    def __init__(
        self, kind: str, message: str, *, problem: ModelProblem | None = None, detail: str = "", missing: str = ""
    ) -> None:
        """`missing` is our own sentence about why the model can't be made."""
        super().__init__(message)
        self.missing = missing
        self.kind = kind
        self.problem: ModelProblem = problem or _PROBLEM_OF_KIND.get(kind, "unknown")
        self.detail = detail


def backoff(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt after this `attempt` (1 is the first); None if a retry can't help."""
    delay = FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(1, 1.5)  # noqa: S311 - spreads retries, keeps no secret
    if isinstance(error, ModelFailed):
        return delay if error.kind == "empty" else None
    if (status := _status(error)) is not None:
        if status != 429 and status < 500:
            return None
        requested = _retry_after(error)
        if requested is None:
            return delay
        return max(requested, delay) if requested <= MAX_WAIT else None
    return delay if _kind(error) in {"network", "timeout", "malformed"} else None


def classify_failure(error: Exception) -> ModelFailed:
    """Return a ModelFailed for the error, without the provider's text."""
    if isinstance(error, ModelFailed):
        return error
    kind, name = _kind(error), type(error).__name__
    detail = (str(error).strip().splitlines() or [name])[0][:300]
    if (status := _status(error)) is not None:
        text = f"the model server answered HTTP {status}"
        return ModelFailed(kind, text, problem=_problem_of_status(status, error), detail=detail)
    return ModelFailed(kind, f"{_TOLD[kind]} ({name})", detail=detail)


def _kind(error: Exception) -> str:
    """Return a fixed word for the kind of failure."""
    if isinstance(error, ModelFailed):
        return error.kind
    if (status := _status(error)) is not None:
        return f"http_{status}"
    name = type(error).__name__
    # The SDKs wrap errors of their transports in own classes, which have similar names in all SDKs.
    if isinstance(error, TimeoutError | httpx.TimeoutException) or "Timeout" in name:
        return "timeout"
    if isinstance(error, _NETWORK) or "Connection" in name or "Protocol" in name:
        return "network"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) or "Validation" in name or "JSON" in name:
        return "malformed"
    return "network" if name in {"APIError", "ReadError"} else "error"


def _problem_of_status(status: int, error: Exception) -> ModelProblem:
    """Return the problem for an error status, using the error code in its body."""
    codes, message = _codes_in(error)
    if status in (401, 403) or codes & _KEY_CODES:
        return "key_refused"
    if status == 402 or codes & _QUOTA_CODES or "credit balance" in message:
        return "no_credit"
    if status == 429:
        return "rate_limited"
    if status == 404 or codes & _MODEL_CODES:
        return "unknown_model"
    if status == 413 or codes & _LENGTH_CODES or any(sign in message for sign in _LENGTH_SIGNS):
        return "too_long"
    if status in (408, 504):
        return "timeout"
    return "server_error" if status >= 500 else "request_refused"


def _codes_in(error: Exception) -> tuple[frozenset[str], str]:
    """Return the codes of a provider's error, and its message in lower case."""
    body: Any = getattr(error, "body", None)
    if not isinstance(body, dict):
        try:
            body = orjson.loads(getattr(getattr(error, "response", None), "text", "") or "null")
        except (ValueError, httpx.HTTPError, httpx.StreamError):
            body = None
    document = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    error_value: Any = document.get("error", document)
    details = cast("dict[str, Any]", error_value) if isinstance(error_value, dict) else {"message": error_value}
    codes = {details.get(name) for name in ("code", "type", "status")}
    message = details.get("message")
    return (
        frozenset(code.lower() for code in codes if isinstance(code, str)),
        message[:2_000].lower() if isinstance(message, str) else "",
    )


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status > 0 else None


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return max(0.0, float(headers.get("retry-after"))) if headers is not None else None
    except (TypeError, ValueError):
        return None
