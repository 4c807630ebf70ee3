"""Read what a model call has cost from the provider's usage, or estimate it where the provider says nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import aiohttp
import httpx
from langchain_core.messages import AIMessage, BaseMessage

from rapport.agents.failures import ModelFailed
from rapport.agents.pictures import count_pictures
from rapport.domain.token_estimate import estimate_tokens
from rapport.domain.usage import MAX_TOKENS_PER_CALL, CallUsage

OnCall: TypeAlias = Callable[[CallUsage], None]
"""A callback for every call that has reached the model's server: also a failed one, and each retry."""

PICTURE_TOKENS = 1_000
"""The estimate for a picture; providers count from 85 to about 1,600."""

_NOT_CONNECTED = (
    aiohttp.ClientConnectorError,
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.UnsupportedProtocol,
    ConnectionRefusedError,
)


def ignore_call(_call: CallUsage) -> None:
    """Count nothing: for callers that do not account for their calls."""


def read_usage(reply: AIMessage) -> tuple[int, int] | None:
    """Return the provider's counts of tokens in and out; None if it gives none, or one that can't be true."""
    usage = cast("Mapping[str, Any] | None", reply.usage_metadata)
    counts = (usage or {}).get("input_tokens"), (usage or {}).get("output_tokens")
    tokens_in, tokens_out = (count if type(count) is int else 0 for count in counts)
    # Every prompt has tokens. Some servers send zeros instead of leaving the field out.
    if tokens_in <= 0 or tokens_out < 0:
        return None
    return min(tokens_in, MAX_TOKENS_PER_CALL), min(tokens_out, MAX_TOKENS_PER_CALL)


class MeteredCall:
    """Count one request to a model when its block ends: answered, failed, or stopped by a cancellation or the deadline."""

    def __init__(
        self,
        model: str,
        messages: Sequence[BaseMessage],
        options: Mapping[str, Any],
        on_call: OnCall,
        *,
        is_free: bool = False,
    ) -> None:
        """A free model is counted without tokens."""
        self._model = model
        self._messages = messages
        self._options = options
        self._on_call = on_call
        self._is_free = is_free
        self.received: AIMessage | None = None
        """The answer so far."""

    def __enter__(self) -> MeteredCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_free:
            self._on_call(CallUsage(self._model))
        elif error is None:
            self._on_call(self._measure_answer())
        elif isinstance(error, Exception):
            if _has_reached(error):
                self._on_call(CallUsage(self._model, *(self._read_usage() or (0, 0))))
        else:
            self._on_call(self._estimate())

    def _read_usage(self) -> tuple[int, int] | None:
        return None if self.received is None else read_usage(self.received)

    def _measure_answer(self) -> CallUsage:
        counts = self._read_usage()
        return self._estimate() if counts is None else CallUsage(self._model, *counts)

    def _estimate(self) -> CallUsage:
        """Return an estimate from what was sent and received. Of a stopped answer a provider may have counted the prompt."""
        counts = self._read_usage()
        tokens_in = _estimate_prompt(self._messages, self._options) if counts is None else counts[0]
        tokens_out = 0 if self.received is None else _estimate_message(self.received)
        return CallUsage(self._model, tokens_in, tokens_out, is_estimated=True)


def _has_reached(failure: BaseException | None) -> bool:
    """Return False if no connection was made. SDKs wrap the errors of their transports."""
    while failure is not None:
        if isinstance(failure, _NOT_CONNECTED):
            return False
        if isinstance(failure, ModelFailed):
            return True
        failure = failure.__cause__ or failure.__context__
    return True


def _estimate_prompt(messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> int:
    tokens = sum(_estimate_message(message) for message in messages)
    if tools := options.get("tools"):
        tokens += estimate_tokens(_write(tools))
    return min(tokens, MAX_TOKENS_PER_CALL)


def _estimate_message(message: BaseMessage) -> int:
    tokens = estimate_tokens(str(message.text)) + PICTURE_TOKENS * count_pictures(message)
    if isinstance(message, AIMessage) and message.tool_calls:
        tokens += estimate_tokens(_write(message.tool_calls))
    return tokens


def _write(value: object) -> str:
    """Return the value as JSON. Arguments of a model may be what orjson refuses, such as half of a surrogate pair."""
    return json.dumps(value, ensure_ascii=False, default=str)
