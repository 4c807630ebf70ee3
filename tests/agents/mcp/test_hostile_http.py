"""Test that a server over HTTP that refuses, hangs, floods or forgets its sessions harms only its own calls."""

from __future__ import annotations

import asyncio
import logging

import psutil
import pytest
from structlog.testing import capture_logs

from rapport.agents.mcp.source import McpTools
from rapport.domain.errors import Transient
from rapport.domain.tool import ToolOutcomeUnknown
from rapport.logs import Redactor
from tests.agents.mcp.connecting import hostile, running, wait_until
from tests.agents.mcp.hostile_http import hostile_http
from tests.agents.mcp.test_hostile_servers import HELD_BYTES, expect_works, names

SECRET = "tok-0123456789"


async def expect_good_one_works(tools: McpTools, *, times: int = 10) -> None:
    for _ in range(times):
        await expect_works(tools)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        ("401", "it answered with HTTP status 401"),
        ("404", "it answered with HTTP status 404"),
        ("500", "it answered with HTTP status 500"),
        ("redirects", "its answer is no MCP"),
        ("page", "its answer is no MCP"),
        ("compresses", "it compresses its answers"),
    ],
)
async def test_a_server_that_can_not_be_used_says_why_and_others_go_on(mode: str, problem: str) -> None:
    before = psutil.Process().memory_info().rss
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with (
        hostile_http(mode, headers=headers) as (bad, server),
        running(server, hostile("works", name="good")) as tools,
    ):
        assert tools.connections["bad"].problem == problem
        assert names(tools) == []
        await expect_good_one_works(tools)
        assert all(path != "/elsewhere" for path, _ in bad.requests)  # a redirect could lead the headers elsewhere
        assert {sent.get("Authorization") for _, sent in bad.requests} == {f"Bearer {SECRET}"}
    assert psutil.Process().memory_info().rss - before < HELD_BYTES


async def test_a_server_that_never_answers_delays_nothing() -> None:
    async with (
        hostile_http("never_answers") as (_, server),
        running(server, hostile("works", name="good"), wait=False) as tools,
    ):
        await wait_until(tools.connections["good"].tried.is_set)
        await expect_good_one_works(tools)
        assert not tools.connections["bad"].tried.is_set()


@pytest.mark.parametrize("mode", ["floods", "one_endless_event", "no_stream"])
async def test_what_comes_between_answers_does_no_harm(mode: str) -> None:
    before = psutil.Process().memory_info().rss
    async with hostile_http(mode) as (bad, server), running(server, hostile("works", name="good")) as tools:
        await wait_until(lambda: any(method == "GET" for method, _ in bad.requests))
        await expect_good_one_works(tools, times=50)
        await expect_works(tools, "bad__work")
    assert psutil.Process().memory_info().rss - before < HELD_BYTES


@pytest.mark.parametrize("mode", ["calls_fail_500", "calls_answer_garbage", "calls_break_off"])
async def test_a_call_that_arrived_and_got_no_answer_has_an_unknown_outcome(mode: str) -> None:
    async with hostile_http(mode) as (bad, server), running(server) as tools:
        with pytest.raises(ToolOutcomeUnknown):
            await tools.call("bad__work", {})
        assert bad.calls == 1  # it is not repeated
        bad.mode = "works"
        await expect_works(tools, "bad__work")


@pytest.mark.parametrize("mode", ["calls_hang", "calls_stream_for_ever"])
async def test_a_call_that_takes_too_long_has_an_unknown_outcome(mode: str) -> None:
    async with (
        hostile_http(mode, timeout_seconds=0.5) as (bad, server),
        running(server, hostile("works", name="good")) as tools,
    ):
        with pytest.raises(ToolOutcomeUnknown, match=r"did not answer within 0\.5 seconds"):
            await tools.call("bad__work", {})
        await expect_good_one_works(tools)
        bad.mode = "works"
        await wait_until(lambda: names(tools))
        await expect_works(tools, "bad__work")


async def test_a_refused_call_was_not_made() -> None:
    async with hostile_http("calls_fail_429") as (_, server), running(server) as tools:
        with pytest.raises(Transient, match="did not take the call: it answered with HTTP status 429"):
            await tools.call("bad__work", {})


async def test_a_huge_answer_is_discarded() -> None:
    before = psutil.Process().memory_info().rss
    async with hostile_http("calls_are_huge", timeout_seconds=60.0) as (bad, server), running(server) as tools:
        result = await tools.call("bad__work", {})
        assert result.text == "The tool's answer was too large and was discarded."
        bad.mode = "works"
        await expect_works(tools, "bad__work")
    assert psutil.Process().memory_info().rss - before < HELD_BYTES


async def test_a_forgotten_session_is_begun_anew() -> None:
    async with hostile_http("works") as (bad, server), running(server) as tools:
        await expect_works(tools, "bad__work")
        bad.forget_sessions()
        with pytest.raises(Transient):
            await tools.call("bad__work", {})
        await wait_until(lambda: not names(tools))
        await wait_until(lambda: names(tools))
        await expect_works(tools, "bad__work")
        assert bad.calls == 2


async def test_changed_tools_count_from_their_announcement_on() -> None:
    async with hostile_http("works") as (bad, server), running(server) as tools:
        await wait_until(lambda: bad.listening)
        assert names(tools) == ["bad__work"]
        bad.tools = ["play", "rest"]
        await bad.announce_changes()
        await wait_until(lambda: names(tools) == ["bad__play", "bad__rest"])
        assert (await tools.call("bad__work", {})).text == "There is no such tool."
        await expect_works(tools, "bad__rest")


async def test_no_secret_of_the_configuration_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The address, the headers, the environment and the arguments hold one; servers repeat them in all that they say."""
    caplog.set_level(logging.DEBUG)
    redact = Redactor([SECRET])
    say_it = hostile("says_secrets", name="local", env={"SOME_TOKEN": SECRET}, redact=redact)
    dead = hostile("ends_at_once", name="dead", env={"SOME_TOKEN": SECRET}, redact=redact)
    headers = {"Authorization": f"Bearer {SECRET}"}
    address = {"path": f"/mcp?key={SECRET}", "headers": headers, "redact": redact}
    with capture_logs() as lines:
        async with (
            hostile_http("works", **address) as (_, good),
            hostile_http("401", name="refusing", **address) as (_, refusing),
            running(say_it, dead, good, refusing) as tools,
        ):
            await expect_works(tools, "bad__work")
            refused = await tools.call("local__work", {})
            await wait_until(lambda: any(line["event"] == "mcp.log" for line in lines))
    assert refused.text == "The server refused the call: the token is [redacted]"
    assert {"mcp.connected", "mcp.disconnected", "mcp.log", "mcp.stderr"} <= {line["event"] for line in lines}
    assert SECRET not in str(lines)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("rapport")]
    assert SECRET not in str(ours)
