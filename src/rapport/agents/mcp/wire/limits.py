"""Bound how much and how fast a server's messages are read, so that a flood delays only its own calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""A longer message is discarded, and the call that it answers gets an error."""
MAX_GARBAGE_MESSAGES: Final = 100
"""After this many messages that are no MCP the connection is closed."""

TOO_LARGE_CODE: Final = -32_950
"""The code of the error that stands for an answer over MAX_MESSAGE_BYTES."""
NOT_SENT_CODE: Final = -32_951
"""The code of the error for a request that did not reach the server."""
NO_ANSWER_CODE: Final = -32_952
"""The code of the error for a request that reached the server and got no answer."""

_BURST: Final = 1_000.0
_TOKENS_PER_SECOND: Final = 100.0
_BYTES_PER_TOKEN: Final = 50_000
_TOKENS_PER_MESSAGE: Final = 0.2


class Throttle:
    """Allows a burst of 5,000 small messages or 50 MB, then 500 messages or 5 MB a second."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tokens = _BURST
        self._filled_at = now()

    async def take(self, *, size: int = 0, cost: float = 0.0) -> None:
        """Wait until so many bytes may be read, or a message that costs so many tokens to read."""
        self._refill()
        self._tokens -= size / _BYTES_PER_TOKEN if size else max(cost, _TOKENS_PER_MESSAGE)
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / _TOKENS_PER_SECOND)

    def may_take(self) -> bool:
        """Take one token if that needs no waiting; return False otherwise."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(_BURST, self._tokens + (now - self._filled_at) * _TOKENS_PER_SECOND)
        self._filled_at = now
