"""Test the rate limits, the client's address, and counting without Redis (RES-1)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from fakeredis import TcpFakeServer
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from structlog.testing import capture_logs

from rapport.channels.http.auth import rate_limits as limits
from rapport.channels.http.auth.client_address import (
    find_client_address,
    get_rate_limit_key,
    parse_address,
    parse_trusted_networks,
)
from rapport.channels.http.auth.rate_limits import Limiter, MemoryWindows, Rules, open_limiter
from rapport.cli.serve import rate_limiter
from rapport.domain.errors import Permanent, TooMany
from rapport.domain.ids import new_id
from rapport.settings import read_settings
from rapport.storage.access.api_keys import ApiKeys
from tests.support.cases import every_case
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, settings_for, until

ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


class HandClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@contextlib.asynccontextmanager
async def limited_world(
    url: str,
    *,
    clock: HandClock | None = None,
    rules: Rules | None = None,
    proxies: str = "",
    redis: str | None = None,
    patience: float = limits.REDIS_TIMEOUT_SECONDS,
) -> AsyncGenerator[World]:
    """A world with rate limits whose clock, rules, proxies and Redis the test chooses."""
    async with (
        open_limiter(
            redis_url=redis,
            trusted=parse_trusted_networks(proxies),
            rules=rules or Rules(),
            clock=clock or time.monotonic,
            patience=patience,
        ) as limiter,
        open_world(url, limiter=limiter) as world,
    ):
        yield world


async def stored(world: World) -> int:
    return (await world.sql("SELECT count(*) FROM messages WHERE role = 'user'"))[0][0]


async def statuses(world: World, conversation: str, count: int, **headers: str) -> list[int]:
    """Return the status of each of several messages in a row."""
    address = f"/chat/conversations/{conversation}/messages"
    return [
        (await world.http.post(address, json={"content": f"number {number}"}, headers=headers)).status_code
        for number in range(count)
    ]


# --- the windows


async def test_sixty_messages_pass_and_the_next_gets_a_retry_after(database_url: str) -> None:
    """The specified 429: `{error, retryAfter}` and Retry-After, with the wiring and the numbers of the settings."""
    async with open_world(database_url, rate_limit=True) as world:
        for _ in range(15):  # four quick messages in each: no flood anywhere
            assert await statuses(world, await world.conversation(), 4) == [200] * 4
        one_more = await world.conversation()
        with capture_logs() as logs:
            refused = await world.post(one_more, "the sixty-first")
        assert refused.status_code == 429
        assert refused.headers["content-type"] == "application/problem+json"
        body = refused.json()
        assert body.keys() == {"type", "title", "status", "detail", "error", "retryAfter"}
        assert body["title"] == "Too many requests"
        assert body["status"] == 429
        assert body["error"] == body["detail"]
        assert body["error"].startswith("Too many messages from this address: at most 60 in 300 seconds.")
        assert 240 <= body["retryAfter"] <= 300
        assert refused.headers["retry-after"] == str(body["retryAfter"])
        assert [line for line in logs if line["event"] == "chat.rate_limit"] == [
            {
                "event": "chat.rate_limit",
                "log_level": "info",
                "conversationId": one_more,
                "ip": "127.0.0.1",
                "type": "limit",
            }
        ]
        assert await stored(world) == 60
        assert await world.history(one_more) == []
        assert (await world.http.get(f"/chat/conversations/{one_more}")).status_code == 200  # reading is free


async def test_a_conversation_has_a_window_of_its_own(database_url: str) -> None:
    """A client that changes its address gets no more of one conversation."""
    clock = HandClock()
    rules = Rules(requests=6, window=60)
    async with limited_world(database_url, clock=clock, rules=rules, proxies="127.0.0.1") as world:
        conversation = await world.conversation()
        for number in range(6):
            assert await statuses(world, conversation, 1, **{"X-Forwarded-For": f"203.0.113.{number}"}) == [200]
            clock.advance(3)
        refused = await world.http.post(
            f"/chat/conversations/{conversation}/messages",
            json={"content": "and again"},
            headers={"X-Forwarded-For": "203.0.113.99"},
        )
        assert refused.status_code == 429
        assert refused.json()["error"].startswith("Too many messages in this conversation: at most 6 in 60 seconds.")
        assert refused.json()["retryAfter"] == 60 - 18
        other = await world.conversation()
        assert await statuses(world, other, 1, **{"X-Forwarded-For": "203.0.113.99"}) == [200]
        clock.advance(60 - 18)  # the window slides: the first message has left it, and only the first
        assert await statuses(world, conversation, 2) == [200, 429]


async def test_the_fifth_quick_message_is_a_flood_until_the_gap_is_two_seconds(database_url: str) -> None:
    clock = HandClock()
    async with limited_world(database_url, clock=clock) as world:
        conversation = await world.conversation()
        assert await statuses(world, conversation, 4) == [200] * 4
        with capture_logs() as logs:
            refused = await world.post(conversation, "too fast")
        assert refused.status_code == 429
        assert refused.json()["error"].startswith("Messages come too fast in this conversation")
        assert refused.json()["retryAfter"] == 8
        assert [(line["conversationId"], line["type"]) for line in logs if line["event"] == "chat.rate_limit"] == [
            (conversation, "flood")
        ]
        assert await stored(world) == 4
        assert [message["role"] for message in await world.history(conversation)] == ["user", "assistant"] * 4
        clock.advance(7.99)
        again = await world.post(conversation, "still too fast")
        assert again.status_code == 429
        assert again.json()["retryAfter"] == 1
        clock.advance(0.01)  # a mean gap of two seconds: not under two
        assert await statuses(world, conversation, 1) == [200]  # what was refused in between has not counted


async def test_a_refused_message_uses_up_no_window(database_url: str) -> None:
    clock = HandClock()
    async with limited_world(database_url, clock=clock, rules=Rules(requests=5)) as world:
        flooded = await world.conversation()
        assert await statuses(world, flooded, 10) == [200] * 4 + [429] * 6
        assert await statuses(world, await world.conversation(), 2) == [200, 429]  # the address has had its five


@given(gaps=st.lists(st.integers(0, 40), max_size=40))
def test_a_flood_is_a_mean_gap_under_two_seconds(gaps: list[int]) -> None:
    """The window gives the same result as the definition, which uses the messages themselves."""

    async def play() -> None:
        clock = HandClock()
        said: list[float] = []
        async with open_limiter(clock=clock) as limiter:
            for gap in gaps:
                clock.advance(gap / 8)  # eighths of a second: exact in binary
                latest = [*said, clock.now][-5:]
                mean = (latest[-1] - latest[0]) / (len(latest) - 1) if len(latest) == 5 else None
                flood = mean is not None and mean < 2
                assert await admitted(limiter) is not flood
                if not flood:
                    said.append(clock.now)

    asyncio.run(play())


def request_from(peer: str | None, *forwarded: str) -> HTTPConnection:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return HTTPConnection({"type": "http", "headers": headers, "client": (peer, 4711) if peer else None})


async def admitted(
    limiter: Limiter, *, peer: str = "192.0.2.1", owner: str = "anna", conversation: str = "the talk"
) -> bool:
    try:
        await limiter.admit(request_from(peer), owner, conversation)
    except TooMany:
        return False
    return True


async def test_of_many_messages_at_once_as_many_pass_as_may(database_url: str) -> None:
    async with limited_world(database_url, clock=HandClock()) as world:
        conversation = await world.conversation()
        answers = await asyncio.gather(*(world.post(conversation, f"number {number}") for number in range(12)))
        assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 8
        assert await stored(world) == 4


async def test_the_same_message_again_is_a_request_too(database_url: str) -> None:
    async with limited_world(database_url, clock=HandClock()) as world:
        conversation = await world.conversation()
        answers = [await world.post(conversation, "once", client_message_id="one") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 4 + [429]
        assert await stored(world) == 1


async def test_an_invalid_message_is_not_counted(database_url: str) -> None:
    async with limited_world(database_url, clock=HandClock()) as world:
        conversation = await world.conversation()
        assert [(await world.post(conversation, "")).status_code for _ in range(6)] == [400] * 6
        assert await statuses(world, conversation, 4) == [200] * 4


async def test_a_stream_is_refused_like_any_other_request(database_url: str) -> None:
    async with limited_world(database_url, clock=HandClock()) as world:
        conversation = await world.conversation()
        headers = {"Accept": "text/event-stream"}
        assert await statuses(world, conversation, 4, **headers) == [200] * 4
        refused = await world.http.post(
            f"/chat/conversations/{conversation}/messages", json={"content": "five"}, headers=headers
        )
        assert refused.status_code == 429
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["retryAfter"] == int(refused.headers["retry-after"])


async def test_a_stranger_can_not_use_up_somebody_elses_conversation(database_url: str) -> None:
    async with limited_world(database_url, clock=HandClock()) as world:
        keys: dict[str, str] = {}
        async with world.database.statement() as connection:
            for user in ("anna", "mallory"):
                keys[user] = f"Bearer {(await ApiKeys(connection).create(user, name=user))[1]}"
        conversation = await world.conversation("anna")
        assert await statuses(world, conversation, 6, Authorization="Bearer nonsense") == [401] * 6
        assert await statuses(world, conversation, 6, Authorization=keys["mallory"]) == [404] * 4 + [429] * 2
        assert await statuses(world, conversation, 5, Authorization=keys["anna"]) == [200] * 4 + [429]


async def test_without_the_flag_nothing_is_limited(world: World) -> None:
    assert await statuses(world, await world.conversation(), 8) == [200] * 8


NAMES_WHAT_IS_LOADED = """
import sys, rapport.cli.serve, rapport.channels.http.server
sys.stdout.write(" ".join({"limits", "redis", "rapport.channels.http.auth.rate_limits"} & set(sys.modules)))
"""


def test_without_the_flag_nothing_is_even_loaded() -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            NAMES_WHAT_IS_LOADED,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == ""


async def test_windows_that_are_over_are_forgotten() -> None:
    clock = HandClock()
    windows = MemoryWindows(clock)
    for number in range(5000):
        assert await windows.acquire_entry(f"client {number}", 60, 300)
        clock.advance(1)
    assert len(windows) <= 301
    assert (await windows.get_moving_window("client 4999", 60, 300))[1] == 1
    assert (await windows.get_moving_window("client 0", 60, 300))[1] == 0


# --- who is asking


async def test_a_forwarding_header_of_an_untrusted_client_is_ignored(database_url: str) -> None:
    async with limited_world(database_url, rules=Rules(requests=3), proxies="10.0.0.0/8") as world:
        with capture_logs() as logs:
            for number, expected in enumerate([200, 200, 200, 429]):
                forged = {"X-Forwarded-For": f"203.0.113.{number}", "X-Real-IP": f"203.0.113.{number}"}
                assert await statuses(world, await world.conversation(), 1, **forged) == [expected]
        assert [line["ip"] for line in logs if line["event"] == "chat.rate_limit"] == ["127.0.0.1"]


async def test_behind_a_trusted_proxy_each_client_is_counted_for_itself(database_url: str) -> None:
    async with limited_world(database_url, rules=Rules(requests=2), proxies="127.0.0.1, 10.0.0.0/8") as world:

        async def ask(forwarded: str) -> int:
            return (await statuses(world, await world.conversation(), 1, **{"X-Forwarded-For": forwarded}))[0]

        assert [await ask("198.51.100.1, 10.1.2.3") for _ in range(3)] == [200, 200, 429]
        # A header value that the client itself has sent is further left, and does not change its identity.
        assert await ask("192.0.2.77, 198.51.100.1:5555, 10.1.2.3") == 429
        assert await ask("198.51.100.2, 10.9.9.9") == 200
        # Neighbours of one /64 are one client.
        assert [await ask(f"2001:db8:0:1::{number}") for number in range(3)] == [200, 200, 429]
        assert await ask("[2001:db8:0:2::1]:443") == 200


@every_case(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["203.0.113.5"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.5, 10.0.0.2,10.0.0.3"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.5", "10.0.0.2"], "203.0.113.5"),
        ("10.0.0.1", ["10.0.0.9, 10.0.0.2"], "10.0.0.9"),  # everybody is trusted: the client is the first of them
        ("10.0.0.1", ["203.0.113.5, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["203.0.113.5, _hidden"], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5, , 10.0.0.2,"], "203.0.113.5"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["203.0.113.5:1234"], "203.0.113.5"),
        ("10.0.0.1", ["[2001:db8::1]:1234"], "2001:db8::1"),
        ("fd00::1%eth0", ["fe80::7%en0"], "fe80::7"),
        ("testclient", ["203.0.113.5"], None),
        ("", ["203.0.113.5"], None),
        (None, ["203.0.113.5"], None),
    ],
)
def test_the_client_is_the_last_one_that_somebody_trusted_has_seen(
    peer: str | None, forwarded: list[str], found: str | None
) -> None:
    address = find_client_address(peer, forwarded, parse_trusted_networks("10.0.0.0/8, fd00::/8"))
    assert (str(address) if address else None) == found


@given(address=ADDRESSES, port=st.integers(0, 65535), zone=st.sampled_from(["eth0", "en1", "2"]))
def test_an_address_is_understood_however_it_is_written(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, zone: str
) -> None:
    if address.version == 4:
        forms = [f"{address}", f" {address}\t", f"{address}:{port}", f"::ffff:{address}", f"[::ffff:{address}]:{port}"]
        meant = address
    else:
        forms = [f"{address}", f"[{address}]", f"[{address}]:{port}", f"{address}%{zone}", f"[{address}%{zone}]:{port}"]
        forms += [address.exploded, str(address).upper()]
        meant = address.ipv4_mapped or address
    for form in forms:
        assert parse_address(form) == meant, form


@given(text=st.one_of(st.text(max_size=60), st.from_regex(r"[0-9a-f:.\[\]%/ ]{0,40}", fullmatch=True)))
def test_any_header_value_gives_an_address_or_none(text: str) -> None:
    address = parse_address(text)
    if address is not None:
        assert parse_address(str(address)) == address
        assert str(address) == str(ipaddress.ip_address(str(address)))


@every_case(
    "text",
    [
        *("", "unknown", "1.2.3", "01.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", "1.2.3.4/8", "1.2.3.4%eth0"),
        *("[1.2.3.4]", "[::1", "::1]", "[::1]x", "[::1]:", "::1%", "1.2.3.4, 5.6.7.8", "::1\n::2", '"1.2.3.4"'),
    ],
)
def test_a_malformed_address_is_ignored(text: str) -> None:
    assert parse_address(text) is None


@given(peer=ADDRESSES, forwarded=st.lists(st.text(max_size=40), max_size=4))
def test_without_trusted_proxies_the_header_does_not_matter(
    peer: ipaddress.IPv4Address | ipaddress.IPv6Address, forwarded: list[str]
) -> None:
    assert find_client_address(str(peer), forwarded, ()) == parse_address(str(peer))


@given(
    claimed=st.lists(st.one_of(ADDRESSES.map(str), st.text(max_size=20)), max_size=4),
    client=st.ip_addresses(v=4, network="203.0.113.0/24"),
    proxies=st.lists(st.ip_addresses(v=4, network="10.0.0.0/8").map(str), max_size=4),
)
def test_no_claim_hides_a_client_from_the_proxies_that_have_seen_it(
    claimed: list[str], client: ipaddress.IPv4Address, proxies: list[str]
) -> None:
    chain = [*claimed, str(client), *proxies]
    trusted = parse_trusted_networks("10.0.0.0/8")
    assert find_client_address("10.0.0.1", [", ".join(chain)], trusted) == client
    assert find_client_address("10.0.0.1", chain, trusted) == client


def test_a_client_is_one_ipv4_address_or_one_ipv6_network() -> None:
    assert get_rate_limit_key(parse_address("203.0.113.5")) == "203.0.113.5"
    assert get_rate_limit_key(parse_address("::ffff:203.0.113.5")) == "203.0.113.5"
    assert get_rate_limit_key(parse_address("2001:db8:1:2:3:4:5:6")) == "2001:db8:1:2::/64"
    assert get_rate_limit_key(None) == "unknown"


async def test_whoever_has_no_address_is_counted_as_one() -> None:
    async with open_limiter(rules=Rules(requests=2), clock=HandClock()) as limiter:
        for number in range(2):
            await limiter.admit(request_from(None, "203.0.113.5"), "anna", str(number))
        with capture_logs() as logs, pytest.raises(TooMany):
            await limiter.admit(request_from(None, "203.0.113.6"), "anna", "x" * 10_000)
        assert logs[0]["ip"] == "unknown"
        assert logs[0]["conversationId"] == "x" * 64


def test_trusted_proxies_are_addresses_and_networks() -> None:
    assert parse_trusted_networks("") == parse_trusted_networks(" , ") == ()
    assert [str(one) for one in parse_trusted_networks("10.0.0.7, 10.0.0.0/8,fd00::/8,::1, ::ffff:10.0.0.0/104")] == [
        "10.0.0.7/32",
        "10.0.0.0/8",
        "fd00::/8",
        "::1/128",
        "10.0.0.0/8",
    ]


@every_case(
    ("listed", "told"),
    [
        ("10.0.0.1, proxy.example", "'proxy.example' is neither"),
        ("10.1.2.3/8", "Is 10.0.0.0/8 meant?"),
        ("10.0.0.0/33", "'10.0.0.0/33' is neither"),
    ],
)
async def test_a_malformed_trusted_proxy_stops_the_start(listed: str, told: str) -> None:
    for flag in (False, True):
        with pytest.raises(Permanent, match="RAPPORT_TRUSTED_PROXIES") as caught:
            async with rate_limiter(settings_for("", rate_limit=flag, trusted_proxies=listed)):
                pass
        assert told in str(caught.value)


# --- shared counts

PATIENCE = LIMIT_SECONDS
"""Seconds to wait for a Redis that works: long, so that a slow machine does not look like a hanging Redis."""


class Redis:
    """A Redis on loopback, of its own port, that can be killed and come back (empty, as one without a disk does)."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        self._server = TcpFakeServer(("127.0.0.1", self.port))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def kill(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def keys(self) -> list[str]:
        return sorted(key.decode() for key in self._server.fake_server.dbs[0])


@pytest.fixture
def redis() -> Generator[Redis]:
    server = Redis()
    yield server
    server.kill()


async def test_servers_with_one_redis_count_together(database_url: str, redis: Redis) -> None:
    async with (
        limited_world(database_url, redis=redis.url, patience=PATIENCE) as one,
        limited_world(database_url, redis=redis.url, patience=PATIENCE) as other,
    ):
        conversation = await one.conversation()
        assert await statuses(one, conversation, 2) == [200, 200]
        assert await statuses(other, conversation, 2) == [200, 200]
        for server in (one, other):
            refused = await server.post(conversation, "the fifth")
            assert refused.status_code == 429
            assert refused.json()["error"].startswith("Messages come too fast")
            assert 1 <= refused.json()["retryAfter"] <= 8
        assert await stored(one) == 4
        assert redis.keys == [
            "rapport:address/127.0.0.1/60/300/second",
            f"rapport:conversation/local/{conversation}/60/300/second",
            f"rapport:flood/local/{conversation}/4/8/second",
        ]


async def test_the_shared_window_of_an_address_fills_and_slides(redis: Redis) -> None:
    rules = Rules(requests=6, window=1)
    async with (
        open_limiter(redis_url=redis.url, patience=PATIENCE, rules=rules) as one,
        open_limiter(redis_url=redis.url, patience=PATIENCE, rules=rules) as other,
    ):
        began = time.monotonic()
        passed = [await admitted(limiter, conversation=new_id()) for _ in range(4) for limiter in (one, other)]
        assert passed.count(True) >= 6
        if time.monotonic() - began < 1:  # unless the machine was so slow that the window has slid meanwhile
            assert passed == [True] * 6 + [False] * 2
        await until(lambda: admitted(other, conversation=new_id()))


async def test_of_many_at_once_no_server_lets_one_too_many_through(redis: Redis) -> None:
    async with (
        open_limiter(redis_url=redis.url, patience=PATIENCE) as one,
        open_limiter(redis_url=redis.url, patience=PATIENCE) as other,
    ):
        with capture_logs() as logs:
            for limiter in (one, other):
                assert await admitted(limiter, conversation="an earlier one")
            results = await asyncio.gather(*(admitted(limiter) for _ in range(4) for limiter in (one, other)))
        assert [line for line in logs if line["event"] == "limits.unavailable"] == []
        assert results.count(True) == 4


async def test_without_its_redis_a_server_counts_by_itself_and_comes_back(database_url: str, redis: Redis) -> None:
    clock = HandClock()
    async with limited_world(database_url, clock=clock, redis=redis.url, patience=PATIENCE) as world:
        assert await statuses(world, await world.conversation(), 1) == [200]
        assert len(redis.keys) == 3
        redis.kill()
        with capture_logs() as logs:
            for _ in range(3):
                clock.advance(limits.REDIS_RETRY_SECONDS)  # each attempt fails again
                assert await statuses(world, await world.conversation(), 5) == [200] * 4 + [429]
        assert [line for line in logs if line["event"].startswith("limits.")] == [
            {
                "event": "limits.unavailable",
                "log_level": "warning",
                "errorType": "ConnectionError",
                "counting": "in this process",
            }
        ]
        clock.advance(60)
        with capture_logs() as logs:
            assert await statuses(world, await world.conversation(), 1) == [200]
        assert [line["event"] for line in logs if line["event"].startswith("limits.")] == ["limits.unavailable"]

        redis.start()
        clock.advance(limits.REDIS_RETRY_SECONDS)
        conversation = await world.conversation()
        with capture_logs() as logs:
            assert await statuses(world, conversation, 5) == [200] * 4 + [429]
        assert [line["event"] for line in logs if line["event"].startswith("limits.")] == ["limits.available"]
        assert f"rapport:flood/local/{conversation}/4/8/second" in redis.keys


async def test_a_redis_that_lost_its_connections_is_asked_again_at_once(redis: Redis) -> None:
    async with open_limiter(redis_url=redis.url, patience=PATIENCE) as limiter:
        assert await admitted(limiter, conversation="one")
        redis.kill()
        redis.start()
        with capture_logs() as logs:
            assert await admitted(limiter, conversation="two")
        assert logs == []
        assert "rapport:flood/anna/two/4/8/second" in redis.keys


async def test_a_redis_that_hangs_holds_nobody_for_long(database_url: str) -> None:
    seen: list[asyncio.StreamWriter] = []

    async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer)

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    clock = HandClock()
    async with limited_world(database_url, clock=clock, redis=f"redis://127.0.0.1:{port}") as world:
        conversation = await world.conversation()
        with capture_logs() as logs:
            assert await statuses(world, conversation, 1) == [200]  # though Redis never answers
            waited = len(seen)
            assert waited >= 1
            assert await statuses(world, conversation, 4) == [200] * 3 + [429]
            assert len(seen) == waited  # for a while it isn't even asked
        assert [line["errorType"] for line in logs if line["event"] == "limits.unavailable"] == ["TimeoutError"]
        clock.advance(limits.REDIS_RETRY_SECONDS)
        others = [await world.conversation() for _ in range(6)]
        answers = await asyncio.gather(*(statuses(world, other, 1) for other in others))
        assert answers == [[200]] * 6
        assert len(seen) <= waited + 2  # one of them has tried (a second time at most), for all
    for writer in seen:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_whatever_is_wrong_with_redis_the_chat_goes_on_and_no_password_is_told(database_url: str) -> None:
    with socket.socket() as nobody:  # bound and not listening: whoever connects is refused
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        for host in (f"127.0.0.1:{port}", "a..b", f"{'x' * 70}.invalid", "[::1]:1"):
            url = f"redis://anna:hunter2-hunter2@{host}/0"
            with capture_logs() as logs:
                async with limited_world(database_url, redis=url) as world:
                    assert await statuses(world, await world.conversation(), 1) == [200]
            assert [line["event"] for line in logs if line["event"].startswith("limits.")] == ["limits.unavailable"]
            assert "hunter2" not in repr(logs)


@every_case(
    "url",
    [
        "http://:hunter2-hunter2@host:6379",
        "redis://:hunter2/hunter2@host:6379",
        "redis://:hunter2#hunter2@host:6379",
        "redis://:hunter2-hunter2@host:port",
        "redis://:hunter2-hunter2@host:6379?nonsense=1",
        "redis://:hunter2-hunter2@host?socket_timeout=soon",
        "hunter2-hunter2",
    ],
)
async def test_a_malformed_redis_url_stops_the_start_without_showing_its_password(url: str) -> None:
    with pytest.raises(Permanent, match=r"^REDIS_URL is not an address of a Redis") as caught:
        async with rate_limiter(settings_for("", rate_limit=True, redis_url=url)):
            pass
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


def test_the_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def reading(**variables: str) -> tuple[Any, ...]:
        for name in ("RAPPORT_RATE_LIMIT", "REDIS_URL", "RAPPORT_TRUSTED_PROXIES"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found = read_settings()
        assert "hunter2" not in repr(found)
        return found.rate_limit, found.redis_url, found.trusted_proxies

    assert reading() == (False, None, "")
    assert reading(REDIS_URL="") == (False, None, "")
    assert reading(
        RAPPORT_RATE_LIMIT="true", REDIS_URL="redis://:hunter2@host", RAPPORT_TRUSTED_PROXIES="10.0.0.7"
    ) == (
        True,
        "redis://:hunter2@host",
        "10.0.0.7",
    )
