"""Rate limits: how often one address and one conversation may ask, and how fast somebody may write (RES-1)."""

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
"""The longest wait for Redis; then this process counts by itself."""

REDIS_RETRY_SECONDS = 5.0
"""Seconds after a failure for which Redis isn't asked, so that few requests wait for one that hangs."""

WARNING_INTERVAL_SECONDS = 60.0

_ID_CHARACTERS = 64
"""Longer than any conversation's id: what a request calls one doesn't make keys and log lines of any length."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How much is allowed; windows are whole seconds."""

    requests: int = 60
    window: int = 300
    flood_messages: int = 5
    flood_gap: int = 2
    """The mean gap, in seconds, that the latest `flood_messages` must have at least."""


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Rule:
    """One window, what the log calls it, and what whoever overfills it is told."""

    item: RateLimitItem
    type: Literal["limit", "flood"]
    sentence: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The rule that refuses, and the seconds until it would not."""

    rule: Rule
    wait: float


CountedWindows = Sequence[tuple[Rule, str]]
"""The windows that one request would be counted in: a rule and a key each."""


class Counts(Protocol):
    async def take(self, asked: CountedWindows) -> Refusal | None:
        """Count a request in all of its windows; or in none of them, and say which is full the longest."""
        ...


class Limiter:
    """Lets a request through and counts it, or says when to come back."""

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
        # Five messages have four gaps: their mean is under two seconds exactly if the first is less than eight
        # seconds old when the fifth comes, which is a fifth one in a window that holds four.
        gaps = rules.flood_messages - 1
        self._flood = Rule(
            RateLimitItemPerSecond(gaps, gaps * rules.flood_gap, namespace="flood"),
            "flood",
            f"Messages come too fast in this conversation: leave {rules.flood_gap} seconds between them.",
        )

    async def admit(self, connection: HTTPConnection, owner: str, conversation_id: str) -> None:
        """Count a message that is about to be stored; TooMany if it must not be, and then it isn't counted."""
        client = find_client_address(
            connection.client.host if connection.client else None,
            connection.headers.getlist("x-forwarded-for"),
            self._trusted,
        )
        named = conversation_id[:_ID_CHARACTERS]
        conversation = f"{owner}/{named}"  # nobody can use up the window of a conversation that isn't theirs
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
        log.info("chat.rate_limit", conversationId=named, ip=ip, type=refusal.rule.type)
        seconds = max(1, math.ceil(refusal.wait))
        raise TooMany(
            f"{refusal.rule.sentence} Try again in {seconds} second{'s' if seconds > 1 else ''}.", retry_after=seconds
        )


class WindowCounts:
    """Counts in the moving windows of one storage, whose times are read off `clock`."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._windows = MovingWindowRateLimiter(storage)
        self._clock = clock

    async def take(self, asked: CountedWindows) -> Refusal | None:
        full = [refusal for rule, key in asked if (refusal := await self._full(rule, key)) is not None]
        if full:
            return max(full, key=lambda refusal: refusal.wait)
        for rule, key in asked:
            # Another request may have come in between: what counts is this. The windows before it have then counted
            # one request too many, which is the smaller evil: none ever lets one too many through.
            if not await self._windows.hit(rule.item, key):
                return await self._full(rule, key) or Refusal(rule, 0.0)
        return None

    async def _full(self, rule: Rule, key: str) -> Refusal | None:
        stats = await self._windows.get_window_stats(rule.item, key)
        return Refusal(rule, stats.reset_time - self._clock()) if stats.remaining <= 0 else None


class SharedCounts:
    """Counts that replicas share; while those can't be reached, this process's own."""

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
            self._ask_again_at = now + REDIS_RETRY_SECONDS  # the others don't wait for what this request finds
        try:
            async with asyncio.timeout(self._patience):
                refusal = await self._shared.take(asked)
        except (StorageError, OSError, TimeoutError, ValueError) as error:  # a name that is none is a ValueError
            self._use_own_counts(error)
            return await self._own.take(asked)
        if trying:  # and not an answer to a question from before it went away
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
            # Its kind only: nobody has promised that its text is free of what REDIS_URL holds.
            log.warning("limits.unavailable", errorType=type(cause).__name__, counting="in this process")


class MemoryWindows(MemoryStorage):
    """Moving windows in this process: exact, by a clock that never jumps, and at the same price however many there are.

    The library's own walks over every window, each in a thread, whenever one is hit: with a thousand of them that
    keeps a core busy.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._hits: OrderedDict[str, tuple[deque[float], int]] = OrderedDict()  # the one hit last is the last

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
        """Drop the windows that nobody has hit for as long as they are."""
        while self._hits:
            times, expiry = next(iter(self._hits.values()))
            if times and times[-1] > now - expiry:
                return
            self._hits.popitem(last=False)


def _drop(times: deque[float], end: float) -> None:
    """A hit that is exactly as old as its window is long is out of it: a mean gap of exactly two seconds is no flood."""
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
    """A limiter that counts in this process, or with all that share the Redis at `redis_url`.

    Whatever that Redis does, a request waits for it no longer than `patience` seconds.
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
        # Times in Redis are those of the machines' clocks, which the replicas are expected to agree on.
        shared = SharedCounts(WindowCounts(storage, time.time), own, clock, patience=patience)
        yield Limiter(shared, trusted=trusted, rules=rules)
    finally:
        await pool.aclose()


def _redis_pool(url: str, patience: float) -> Any:
    """Connections to Redis, made when they are needed. What is wrong with the address is told without the address."""
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
            retry=Retry(NoBackoff(), 1),  # a connection that was closed while it was idle is made anew
            protocol=2,  # any version of Redis speaks it, without asking first
        )
        pool.make_connection()  # not connected: this only takes the address's options, or doesn't
    except (ValueError, TypeError, RedisError):
        # Not `from`: the error may quote the address, and with it the password.
        raise Permanent(
            "REDIS_URL is not an address of a Redis: redis://[user:password@]host[:port][/number], rediss:// with TLS,"
            " unix:///path. Characters such as / # @ in a password are written %2F %23 %40."
        ) from None
    return pool
