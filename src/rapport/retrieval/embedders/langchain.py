"""Embed with any provider that LangChain supports, with time-outs and checked results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from langchain_core.embeddings import Embeddings

from rapport.domain.errors import Permanent, RapportError, Transient
from rapport.domain.extras import OLLAMA, require_extra
from rapport.domain.note import Vector
from rapport.retrieval.embedders.local import get_first_line
from rapport.retrieval.embedders.vector_checks import check_vectors

log = structlog.get_logger()

MIN_SIMILARITY = 0.30
REQUEST_TIMEOUT_SECONDS = 30.0
QUESTION_TIMEOUT_SECONDS = 10.0
BATCH_SIZE = 64
MAX_CHARACTERS = 6_000
"""The characters of a text that are sent: providers refuse texts over about 8,000 tokens instead of reading their beginning."""
MAX_RETRY_AFTER_SECONDS = 300.0

T = TypeVar("T")

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")


class LangChainEmbedder:
    """A provider's model. Its threshold is a guess until `rapport calibrate` has measured it on the owner's notes."""

    def __init__(
        self,
        name: str,
        embeddings: Embeddings,
        *,
        secrets: Sequence[str] = (),
        close: Callable[[], Awaitable[None]] | None = None,
        request_seconds: float = REQUEST_TIMEOUT_SECONDS,
        question_seconds: float = QUESTION_TIMEOUT_SECONDS,
    ) -> None:
        self._name = name
        self._embeddings = embeddings
        self._hidden = secrets
        self._close = close
        self._request_seconds = request_seconds
        self._question_seconds = question_seconds
        self._dimensions: int | None = None

    @property
    def name(self) -> str:
        """Return the LangChain string, which identifies the vectors."""
        return self._name

    @property
    def min_similarity(self) -> float:
        """Return a default that fits many models, but not all; `rapport calibrate` measures the right one."""
        return MIN_SIMILARITY

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text, requested in batches one after another."""
        vectors: list[Vector] = []
        for first in range(0, len(texts), BATCH_SIZE):
            batch = [_trim_text(text) for text in texts[first : first + BATCH_SIZE]]
            answer = await self._call_provider(self._embeddings.aembed_documents(batch), seconds=self._request_seconds)
            vectors += self._check(answer, len(batch))
        return vectors

    async def embed_question(self, question: str) -> Vector:
        """Return the vector of a question, with a shorter time-out: a person waits."""
        request = self._embeddings.aembed_query(_trim_text(question))
        return self._check([await self._call_provider(request, seconds=self._question_seconds)], 1)[0]

    async def aclose(self) -> None:
        """Close the connections."""
        if self._close is not None:
            await self._close()

    async def _call_provider(self, request: Awaitable[T], *, seconds: float) -> T:
        """Return the provider's answer within this time, including the client's own retry."""
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError as error:
            raise Transient(f"{self._name} did not answer within {seconds:g} seconds.") from error
        except (
            AttributeError,
            TypeError,
            ValueError,
            LookupError,
        ) as error:  # errors of clients for an unexpected answer
            raise Transient(f"{self._name} answered with something else than vectors.") from error
        except Exception as error:
            raise Transient(
                f"{self._name} could not embed: {self._summarize_error(error)}", retry_after=_read_retry_after(error)
            ) from error

    def _check(self, answer: Any, count: int) -> list[list[float]]:
        try:
            vectors = check_vectors(answer, count=count, embedder=self._name, dimensions=self._dimensions)
        except RapportError:
            raise
        except Exception as error:
            raise Transient(f"{self._name} answered with something else than vectors.") from error
        if vectors and self._dimensions is None:
            self._dimensions = len(vectors[0])
        return vectors

    def _summarize_error(self, error: Exception) -> str:
        """Return the error without the provider's text, which may quote the request. DEBUG lines have it."""
        status = getattr(error, "status_code", None)
        kind = f"HTTP {status}" if isinstance(status, int) and status > 0 else type(error).__name__
        log.debug("embedder.error", embedder=self._name, kind=kind, detail=self.describe_error(error))
        return kind

    def describe_error(self, error: BaseException) -> str:
        """Return the provider's error text on one line, without keys: it may quote a refused key."""
        line = get_first_line(error)
        for secret in self._hidden:
            line = line.replace(secret, "…")
        return _USER_INFO.sub("", line)


def make_langchain(
    name: str,
    *,
    environment: Mapping[str, str],
    request_seconds: float = REQUEST_TIMEOUT_SECONDS,
    question_seconds: float = QUESTION_TIMEOUT_SECONDS,
) -> LangChainEmbedder:
    """Return the model behind a `provider:model` string; Permanent with what to set or install if it can't be made."""
    provider, _, model = name.partition(":")
    if provider == "ollama":
        require_extra(OLLAMA, "RAPPORT_EMBEDDINGS names an Ollama model")
    try:
        from langchain.embeddings import init_embeddings

        settings, close = _make_settings(provider, environment, seconds=request_seconds)
        embeddings = init_embeddings(model, provider=provider, **settings)
    except Exception as error:
        raise Permanent(f"RAPPORT_EMBEDDINGS={name!r} can't be used: {get_first_line(error)}") from error
    return LangChainEmbedder(
        name,
        embeddings,
        secrets=[value for key, value in environment.items() if _SECRET_NAME.search(key) and len(value) >= 6],
        close=close,
        request_seconds=request_seconds,
        question_seconds=question_seconds,
    )


def _make_settings(
    provider: str, environment: Mapping[str, str], *, seconds: float
) -> tuple[dict[str, Any], Callable[[], Awaitable[None]] | None]:
    """Return the arguments of this provider's class, and a function that closes its connections."""
    if provider == "openai":
        return _make_openai_settings(environment, seconds=seconds)
    if provider == "ollama":
        return {"client_kwargs": {"timeout": seconds}, "base_url": environment.get("OLLAMA_HOST") or None}, None
    return {}, None  # others have only the time-out around each request


def _make_openai_settings(
    environment: Mapping[str, str], *, seconds: float
) -> tuple[dict[str, Any], Callable[[], Awaitable[None]] | None]:
    import httpx
    from pydantic import SecretStr

    key = environment.get("OPENAI_API_KEY")
    base_url = environment.get("OPENAI_BASE_URL")
    if not key and not base_url:
        raise ValueError("set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own.")
    client = httpx.AsyncClient(timeout=seconds)
    settings: dict[str, Any] = {
        "api_key": SecretStr(key or "none"),  # most local servers need none
        "base_url": (base_url or "https://api.openai.com/v1").rstrip("/"),
        "timeout": seconds,
        "max_retries": 1,
        "http_async_client": client,
        # Otherwise texts are sent as token numbers, which other servers do not accept, and a token table is downloaded.
        "check_embedding_ctx_length": False,
    }
    return settings, client.aclose


def _trim_text(text: str) -> str:
    """Return the text cut to the limit, and never empty: some providers refuse an empty text."""
    return text[:MAX_CHARACTERS].encode(errors="replace").decode() if text.strip() else "-"


def _read_retry_after(error: Exception) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        seconds = float(headers.get("retry-after")) if headers is not None else 1.0
    except (TypeError, ValueError):
        return 1.0
    return min(max(seconds, 1.0), MAX_RETRY_AFTER_SECONDS)
