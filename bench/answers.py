"""Define the answers and the faults of the mock model."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

FAULTS = ("none", "timeout", "500", "429", "reset", "reset_mid", "malformed", "slow", "empty")
WORDS = ("the", "mock", "answers", "with", "plain", "words", "so", "every", "reply", "has", "one", "size")


@dataclass(frozen=True)
class Settings:
    """Behaviour of the mock model; `POST /_mock/config` changes it."""

    latency_ms: float = 0.0  # time to the first byte
    tokens: int = 32  # length of an answer
    tokens_per_second: float = 0.0  # 0 = all at once
    fault: str = "none"
    retry_after: int = 1  # seconds, sent with a 429
    timeout_s: float = 300.0  # how long the fault `timeout` waits before it closes the connection
    slow_tokens_per_second: float = 5.0  # the pace of the fault `slow`

    def changed(self, values: dict[str, Any]) -> Settings:
        """Return a copy with these values, each converted to its field's type. Raise ValueError for an unknown name or value."""
        defaults: dict[str, Any] = asdict(Settings())
        unknown = [name for name in values if name not in defaults]
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(unknown)}")
        try:
            new = replace(self, **{name: type(defaults[name])(value) for name, value in values.items()})
        except TypeError as error:
            raise ValueError(str(error)) from error
        if new.fault not in FAULTS:
            raise ValueError(f"fault is one of {', '.join(FAULTS)}")
        return new


def sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


class Answers:
    """Hold the serialised answer for one setting; only the prompt's size changes between calls."""

    def __init__(self, settings: Settings) -> None:
        words = [(" " if i else "") + WORDS[i % len(WORDS)] for i in range(settings.tokens)]
        base = {"id": "chatcmpl-mock", "created": int(time.time()), "model": "mock"}
        self._tokens = settings.tokens
        message = {"role": "assistant", "content": "".join(words), "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        choices = [] if settings.fault == "empty" else [choice]
        self._plain = orjson.dumps({**base, "object": "chat.completion", "choices": choices})[:-1]
        chunk = {**base, "object": "chat.completion.chunk"}
        self._usage = orjson.dumps({**chunk, "choices": []})[:-1]

        def event(delta: dict[str, str], finish: str | None = None) -> bytes:
            part = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            return sse(orjson.dumps({**chunk, "choices": [part]}))

        said = [] if settings.fault == "empty" else [event({"content": word}) for word in words]
        self._events = [event({"role": "assistant", "content": ""}), *said, event({}, "stop")]

    def plain(self, prompt_bytes: int) -> bytes:
        return self._plain + self._usage_of(prompt_bytes)

    def events(self, prompt_bytes: int, *, usage: bool) -> list[bytes]:
        last = [sse(self._usage + self._usage_of(prompt_bytes))] if usage else []
        return [*self._events, *last, sse(b"[DONE]")]

    def _usage_of(self, prompt_bytes: int) -> bytes:
        prompt = prompt_bytes // 4
        return b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}' % (
            prompt,
            self._tokens,
            prompt + self._tokens,
        )
