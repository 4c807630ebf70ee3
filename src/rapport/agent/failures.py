"""What goes wrong with models, and what a retry can help (RES-2)."""

from __future__ import annotations

import json
import random

import aiohttp
import httpx

from rapport.domain.errors import RapportError

FIRST_WAIT = 0.2
MAX_WAIT = 10.0
"""The longest `Retry-After` that is worth waiting for inside a turn."""


_NETWORK = (OSError, httpx.TransportError, aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)


class ModelFailed(RapportError):
    """The model gave no usable answer; `kind` is a fixed word for logs, the text says more."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def backoff(error: Exception, attempt: int) -> float | None:
    """How many seconds to wait before another try after this `attempt` (1 is the first); None when none can help."""
    soon = FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(1, 1.5)  # noqa: S311 - spreads retries, keeps no secret
    if isinstance(error, ModelFailed):
        return soon if error.kind == "empty" else None
    if (status := _status(error)) is not None:
        if status != 429 and status < 500:
            return None
        asked = _retry_after(error)
        if asked is None:
            return soon
        return max(asked, soon) if asked <= MAX_WAIT else None
    return soon if describe(error)[0] in {"network", "timeout", "malformed"} else None


def describe(error: Exception) -> tuple[str, str]:
    """A fixed word for the kind of failure, and one line about it."""
    if isinstance(error, ModelFailed):
        return error.kind, str(error)
    name = type(error).__name__
    text = (str(error).strip().splitlines() or [name])[0][:300]
    if (status := _status(error)) is not None:
        return f"http_{status}", text
    # The SDKs wrap their transports' errors in classes of their own; those have these names in all of them.
    if isinstance(error, TimeoutError | httpx.TimeoutException) or "Timeout" in name:
        return "timeout", text
    if isinstance(error, _NETWORK) or "Connection" in name or "Protocol" in name:
        return "network", text
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) or "Validation" in name or "JSON" in name:
        return "malformed", text
    if name in {"APIError", "ReadError"}:
        return "network", text
    return "error", f"{name}: {text}"


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status > 0 else None


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        return max(0.0, float(headers.get("retry-after"))) if headers is not None else None
    except (TypeError, ValueError):
        return None
