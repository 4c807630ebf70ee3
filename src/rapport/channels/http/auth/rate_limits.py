"""Limit the rate of requests per address and per conversation, and refuse floods of messages (RES-1)."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import structlog
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import StorageError
from starlette.requests import HTTPConnection

from rapport.channels.http.auth.client_address import UNKNOWN, Network, find_client_address, get_rate_limit_key
from rapport.domain.errors import Permanent, TooMany
from rapport.domain.extras import REDIS, require_extra

log = structlog.get_logger()

Clock = Callable[[], float]

REDIS_TIMEOUT_SECONDS = 0.5
"""After this time without an answer from Redis the process uses its own counters."""

REDIS_RETRY_SECONDS = 5.0
"""After a failure Redis isn't used for this time, so that few requests wait for one that hangs."""

WARNING_INTERVAL_SECONDS = 60.0

_ID_CHARACTERS = 64
"""More than any conversation id has. Limits the length of the keys and log lines that a request's path can cause."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits. Windows are whole seconds."""

    requests: int = 60
    window: int = 300
    flood_messages: int = 5
    flood_gap: int = 2
    """The smallest mean gap, in seconds, between the latest `flood_messages` messages."""


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Rule:
    """One window, its name in the log, and the sentence for a client that exceeds it."""

    item: RateLimitItem
    type: Literal["limit", "flood"]
    sentence: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The rule that refuses a request, and the seconds until it would accept it."""

    rule: Rule
    wait: float


CountedWindows = Sequence[tuple[Rule, str]]
"""The windows in which one request counts: a rule and a key each."""


class Counts(Protocol):
    async def take(self, asked: CountedWindows) -> Refusal | None:
        """Count a request in all of its windows; if one is full, count it in none and return the one that is full longest."""
        ...


class Limiter:
    """Admit and count a request, or refuse it with the time to wait."""

    def __init__(self, counts: Counts, *, trusted: Sequence[Network] = (), rules: Rules = DEFAULT_RULES) -> None:
        self._counts = counts
        self._trusted = tuple(trusted)
        most = f"at most {rules.requests} in {rules.window} seconds"
        window = rules.requests, rules.window
        self._address = Rule(
            RateLimitItemPerSecond(*window, namespace="address"),
            "limit",
            f"Too many messages from this address: {most}.",
        )
        self._conversation = Rule(
            RateLimitItemPerSecond(*window, namespace="conversation"),
            "limit",
            f"Too many messages in this conversation: {most}.",
        )
        # Five messages have four gaps. Their mean is under two seconds if the first is less than eight seconds old when
        # the fifth arrives: a fifth message in a window of eight seconds that holds four.
        gaps = rules.flood_messages - 1
        self._flood = Rule(
            RateLimitItemPerSecond(gaps, gaps * rules.flood_gap, namespace="flood"),
            "flood",
            f"Messages come too fast in this conversation: leave {rules.flood_gap} seconds between them.",
        )

    async def admit(self, connection: HTTPConnection, owner: str, conversation_id: str) -> None:
        """Count a message before it is stored. Raises TooMany over the limit; a refused message isn't counted."""
        client = find_client_address(
            connection.client.host if connection.client else None,
            connection.headers.getlist("x-forwarded-for"),
            self._trusted,
        )
        short_id = conversation_id[:_ID_CHARACTERS]
        conversation = f"{owner}/{short_id}"  # no user can use up the window of another's conversation
        refusal = await self._counts.take(
            [
                (self._address, get_rate_limit_key(client)),
                (self._conversation, conversation),
                (self._flood, conversation),
            ]
        )
        if refusal is None:
            return
        ip = UNKNOWN if client is None else str(client)
        log.info("chat.rate_limit", conversationId=short_id, ip=ip, type=refusal.rule.type)
        seconds = max(1, math.ceil(refusal.wait))
        raise TooMany(
            f"{refusal.rule.sentence} Try again in {seconds} second{'s' if seconds > 1 else ''}.", retry_after=seconds
        )


class WindowCounts:
    """Count in the moving windows of one storage, by the times of `clock`."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._windows = MovingWindowRateLimiter(storage)
        self._clock = clock

    async def take(self, asked: CountedWindows) -> Refusal | None:
        full = [refusal for rule, key in asked if (refusal := await self._full(rule, key)) is not None]
        if full:
            return max(full, key=lambda refusal: refusal.wait)
        for rule, key in asked:
            # A concurrent request may have filled the window since. The earlier windows have then counted one request
            # too many, which is the lesser fault: no window ever admits one too many.
            if not await self._windows.hit(rule.item, key):
                return await self._full(rule, key) or Refusal(rule, 0.0)
        return None

    async def _full(self, rule: Rule, key: str) -> Refusal | None:
        stats = await self._windows.get_window_stats(rule.item, key)
        return Refusal(rule, stats.reset_time - self._clock()) if stats.remaining <= 0 else None


class SharedCounts:
    """Use the counters that replicas share, or this process's own while Redis can't be reached."""

    def __init__(self, shared: Counts, own: Counts, clock: Clock, *, patience: float) -> None:
        self._shared = shared
        self._own = own
        self._clock = clock
        self._patience = patience
        self._away = False
        self._ask_again_at = -math.inf
        self._warn_again_at = -math.inf

    async def take(self, asked: CountedWindows) -> Refusal | None:
        now = self._clock()
        if now < self._ask_again_at:
            return await self._own.take(asked)
        trying = self._away
        if trying:
            self._ask_again_at = now + REDIS_RETRY_SECONDS  # other requests don't wait for this trial
        try:
            async with asyncio.timeout(self._patience):
                refusal = await self._shared.take(asked)
        except (StorageError, OSError, TimeoutError, ValueError) as error:  # an invalid host name is a ValueError
            self._use_own_counts(error)
            return await self._own.take(asked)
        if trying:  # only a request after the failure shows that Redis works again
            self._away = False
            self._ask_again_at = -math.inf
            log.info("limits.available")
        return refusal

    def _use_own_counts(self, error: Exception) -> None:
        now = self._clock()
        self._away = True
        self._ask_again_at = now + REDIS_RETRY_SECONDS
        if now >= self._warn_again_at:
            self._warn_again_at = now + WARNING_INTERVAL_SECONDS
            cause = error.storage_error if isinstance(error, StorageError) else error
            # Log only the type: the text may contain the password of REDIS_URL.
            log.warning("limits.unavailable", errorType=type(cause).__name__, counting="in this process")


class MemoryWindows(MemoryStorage):
    """Keep moving windows in this process: exact, by a monotonic clock, at constant cost per hit.

    The library's own storage scans every window in a thread for each hit; a thousand windows keep a core busy.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._hits: OrderedDict[str, tuple[deque[float], int]] = OrderedDict()  # ordered by the last hit

    def __len__(self) -> int:
        return len(self._hits)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        now = self._clock()
        self._forget(now)
        times, _ = self._hits.get(key) or (deque[float](), expiry)
        _drop(times, now - expiry)
        if len(times) + amount > limit:
            return False
        times.extend([now] * amount)
        self._hits[key] = times, expiry
        self._hits.move_to_end(key)
        return True

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        now = self._clock()
        times, _ = self._hits.get(key) or (deque[float](), expiry)
        _drop(times, now - expiry)
        return (times[0], len(times)) if times else (now, 0)

    async def clear(self, key: str) -> None:
        self._hits.pop(key, None)

    async def reset(self) -> int | None:
        count = len(self._hits)
        self._hits.clear()
        return count

    def _forget(self, now: float) -> None:
        """Drop the windows whose last hit has expired."""
        while self._hits:
            times, expiry = next(iter(self._hits.values()))
            if times and times[-1] > now - expiry:
                return
            self._hits.popitem(last=False)


def _drop(times: deque[float], end: float) -> None:
    """Drop the hits up to `end`, inclusive: a mean gap of exactly two seconds is no flood."""
    while times and times[0] <= end:
        times.popleft()


@asynccontextmanager
async def open_limiter(
    *,
    redis_url: str | None = None,
    trusted: Sequence[Network] = (),
    rules: Rules = DEFAULT_RULES,
    clock: Clock = time.monotonic,
    patience: float = REDIS_TIMEOUT_SECONDS,
) -> AsyncGenerator[Limiter]:
    """Open a limiter that counts in this process, or in the Redis at `redis_url` together with other replicas.

    A request waits for Redis at most `patience` seconds.
    """
    own = WindowCounts(MemoryWindows(clock), clock)
    if redis_url is None:
        yield Limiter(own, trusted=trusted, rules=rules)
        return
    pool = _redis_pool(redis_url, patience)
    try:
        storage = RedisStorage(
            "async+redis://",
            wrap_exceptions=True,
            implementation="redispy",
            key_prefix="rapport",
            connection_pool=pool,
        )
        # Times in Redis are wall-clock times: the replicas' clocks must agree.
        shared = SharedCounts(WindowCounts(storage, time.time), own, clock, patience=patience)
        yield Limiter(shared, trusted=trusted, rules=rules)
    finally:
        await pool.aclose()


def _redis_pool(url: str, patience: float) -> Any:
    """Return a pool of Redis connections, opened on demand. An error about the address does not quote it."""
    require_extra(REDIS, "REDIS_URL is set")
    from redis.asyncio import BlockingConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError

    try:
        pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            max_connections=16,
            timeout=patience,
            socket_timeout=patience,
            socket_connect_timeout=patience,
            retry=Retry(NoBackoff(), 1),  # replaces a connection that was closed while idle
            protocol=2,  # every version of Redis supports it, without a handshake
        )
        pool.make_connection()  # doesn't connect: only checks the options of the address
    except (ValueError, TypeError, RedisError):
        # Not `from`: the error may quote the address, and with it the password.
        raise Permanent(
            "REDIS_URL is not an address of a Redis: redis://[user:password@]host[:port][/number], rediss:// with TLS,"
            " unix:///path. Characters such as / # @ in a password are written %2F %23 %40."
        ) from None
    return pool
