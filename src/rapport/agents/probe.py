"""Check at start whether the model's server accepts the key and has the model, without spending tokens where possible."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import httpx
import orjson
from langchain_core.language_models import BaseChatModel

from rapport.agents.failures import classify_failure
from rapport.domain.model_problems import ModelProblem

_OF_ONE_TOKEN = frozenset({"request_refused", "too_long", "empty", "malformed"})
"""Problems that may occur only because the answer is limited to one token."""
_HAS_NO_LIST = frozenset({404, 405, 501})
"""Status codes of servers that have no list of models."""


class _Refused(Exception):
    """The server has answered with an error."""

    def __init__(self, status_code: int, text: str) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code
        self.response = httpx.Response(status_code, text=text)


@dataclass(frozen=True, slots=True)
class _ModelList:
    """The address and headers of a provider's list of models."""

    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])


async def probe(
    name: str, model: BaseChatModel, *, environment: Mapping[str, str], timeout: float
) -> ModelProblem | None:
    """Return the problem of the model called `name`; None if there is none, or it can't be checked.

    The check reads the server's list of models. It requests one token only if there is no list or the model is not on it.
    """
    provider, _, model_name = name.partition(":")
    listed = _find_model_list(provider, environment)
    if listed is None:
        return None
    is_asked = False
    try:
        async with asyncio.timeout(timeout):
            if model_name not in await _load_models(listed):
                is_asked = True
                await _request_one_token(provider, model)
    except Exception as error:  # noqa: BLE001 - every failure is a result of the check
        problem = classify_failure(error).problem
        return None if is_asked and problem in _OF_ONE_TOKEN else problem
    return None


def _find_model_list(provider: str, environment: Mapping[str, str]) -> _ModelList | None:
    if provider == "openai":
        base = (environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").rstrip("/")
        key = environment.get("OPENAI_API_KEY") or "none"
        return _ModelList(f"{base}/models", {"Authorization": f"Bearer {key}"})
    if provider == "anthropic":
        base = (environment.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com").rstrip("/")
        key = environment.get("ANTHROPIC_API_KEY") or "none"
        return _ModelList(f"{base}/v1/models?limit=1000", {"x-api-key": key, "anthropic-version": "2023-06-01"})
    if provider == "ollama":
        host = environment.get("OLLAMA_HOST") or "127.0.0.1:11434"
        base = (host if "://" in host else f"http://{host}").rstrip("/").replace("//0.0.0.0", "//127.0.0.1")
        return _ModelList(f"{base}/v1/models")
    return None


async def _load_models(listed: _ModelList) -> frozenset[str]:
    """Return the names of a server's models; an empty set if it has no list."""
    async with (
        aiohttp.ClientSession(trust_env=True) as session,
        session.get(listed.url, headers=listed.headers) as response,
    ):
        if response.status in _HAS_NO_LIST:
            return frozenset()
        text = await response.read()
        if response.status >= 400:
            raise _Refused(response.status, text.decode(errors="replace"))
    document: Any = orjson.loads(text)
    rows: Any = cast("dict[str, Any]", document).get("data") if isinstance(document, dict) else None
    listed_rows = cast("list[Any]", rows) if isinstance(rows, list) else []
    names = {str(cast("dict[str, Any]", row).get("id")) for row in listed_rows if isinstance(row, dict)}
    return frozenset({*names, *(name.removesuffix(":latest") for name in names)})


async def _request_one_token(provider: str, model: BaseChatModel) -> None:
    limit = {"num_predict": 1} if provider == "ollama" else {"max_tokens": 1}
    await model.bind(**limit).ainvoke("Hi")
