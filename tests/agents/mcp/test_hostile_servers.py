"""Test that a server that hangs, ends, floods or answers garbage harms only its own calls."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from rapport.agents.mcp.config import McpServer
from rapport.agents.mcp.connection import Connection
from rapport.agents.mcp.source import McpTools
from rapport.agents.mcp.texts import MAX_RESULT_CHARACTERS
from rapport.agents.mcp.tool_specs import MAX_DESCRIPTION_CHARACTERS, MAX_TOOLS
from rapport.domain.errors import Transient
from rapport.domain.tool import MAX_TOOL_NAME_CHARACTERS, ToolOutcomeUnknown
from rapport.runtime.tasks import run_beside
from tests.agents.mcp.connecting import hostile, running, wait_until

HELD_BYTES = 60_000_000
"""What a server may add to the memory of this process, at most: its largest message a few times over."""


async def expect_works(tools: McpTools, name: str = "good__work") -> None:
    assert (await tools.call(name, {})).text.startswith("done")


def has_new_tools(tools: McpTools, server: str, before: object) -> bool:
    return tools.connections[server].tools is not before


def names(tools: McpTools, server: str = "bad") -> list[str]:
    return [spec.name for spec in tools.list_tools() if spec.server == server]


@pytest.mark.parametrize("mode", ["only_garbage", "one_endless_line", "ends_at_once", "old_version", "answers_garbage"])
async def test_a_server_that_can_not_be_used_says_why_and_others_go_on(mode: str) -> None:
    before = psutil.Process().memory_info().rss
    async with running(hostile("works", name="good"), hostile(mode), wait=False) as tools:
        await wait_until(tools.connections["good"].tried.is_set)
        for _ in range(20):
            await expect_works(tools)
            await asyncio.sleep(0.02)
        if mode != "one_endless_line":
            await wait_until(tools.connections["bad"].tried.is_set)
            assert tools.connections["bad"].problem
        assert names(tools) == []
        with pytest.raises(Transient, match="not connected"):
            await tools.call("bad__work", {})
    assert psutil.Process().memory_info().rss - before < HELD_BYTES


async def test_a_server_that_hangs_at_its_start_delays_nothing() -> None:
    async with running(hostile("works", name="good"), hostile("hangs_at_start"), wait=False) as tools:
        await wait_until(tools.connections["good"].tried.is_set)
        await expect_works(tools)
        assert not tools.connections["bad"].tried.is_set()
        with pytest.raises(Transient):
            await tools.call("bad__work", {})


async def test_a_command_that_does_not_exist_is_tried_again_and_again() -> None:
    missing = hostile("works")
    server = type(missing)("bad", command="/no/such/command", args=["--key", "verysecret"])
    async with running(server) as tools:
        assert tools.connections["bad"].problem == "its command can't be started: No such file or directory"


async def test_attempts_to_connect_come_ever_more_slowly(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = "import sys, time; open(sys.argv[1], 'a').write(f'{time.time()}\\n')"
    server = McpServer("bad", command=sys.executable, args=["-c", script, str(starts)])
    connection = Connection(server, chance=lambda: 1.0)

    def list_starts() -> list[float]:
        return [float(line) for line in starts.read_text().splitlines()] if starts.exists() else []

    async with run_beside(connection.run(), name="bad"):
        await wait_until(lambda: len(list_starts()) >= 4)
    first, second, third, fourth = list_starts()[:4]
    assert second - first >= 1.0
    assert third - second >= 2.0
    assert fourth - third >= 4.0


async def test_a_server_that_ends_at_once_says_its_last_words_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    from rapport.logs import Redactor

    server = hostile("ends_at_once", env={"SOME_TOKEN": "abcdefgh12345"}, redact=Redactor(["abcdefgh12345"]))
    async with running(server) as tools:
        assert tools.connections["bad"].problem == "it ended with status 4: the token [redacted] is wrong"


async def test_the_reason_of_a_refusal_is_one_line_without_secrets() -> None:
    from rapport.logs import Redactor

    server = hostile("refuses_to_begin", env={"SOME_TOKEN": "abcdefgh12345"}, redact=Redactor(["abcdefgh12345"]))
    async with running(server) as tools:
        assert tools.connections["bad"].problem == "it refused to begin: not today [31m[redacted]"


async def test_a_call_that_gets_no_answer_has_an_unknown_outcome() -> None:
    async with running(hostile("hangs_in_call", timeout_seconds=0.5), hostile("works", name="good")) as tools:
        with pytest.raises(ToolOutcomeUnknown, match=r"did not answer within 0\.5 seconds"):
            await tools.call("bad__work", {})
        await expect_works(tools)
        assert names(tools) == ["bad__work"]  # the server still answers pings


async def test_more_calls_than_eight_wait_and_are_not_sent_when_their_time_is_over() -> None:
    async with running(hostile("hangs_in_call", timeout_seconds=1.5)) as tools:
        results = await asyncio.gather(*(tools.call("bad__work", {}) for _ in range(11)), return_exceptions=True)
    assert [type(each) for each in results] == [ToolOutcomeUnknown] * 8 + [Transient] * 3


async def test_arguments_that_can_not_be_sent_harm_no_connection() -> None:
    async with running(hostile("works")) as tools:
        for wrong in ("\ud800", float("nan"), object()):
            refused = await tools.call("bad__work", {"text": wrong})
            assert (refused.text, refused.is_error) == ("Not done: The arguments are not valid JSON in UTF-8.", True)
        await expect_works(tools, "bad__work")


async def test_a_server_that_ends_in_a_call_is_started_again() -> None:
    async with running(hostile("exits_in_call")) as tools:
        with pytest.raises(ToolOutcomeUnknown, match="ended"):
            await tools.call("bad__work", {})
        with pytest.raises(Transient, match="not connected"):
            await tools.call("bad__work", {})
        await wait_until(lambda: names(tools))
        with pytest.raises(ToolOutcomeUnknown):
            await tools.call("bad__work", {})


async def test_a_cancelled_call_is_cancelled_and_the_server_goes_on() -> None:
    async with running(hostile("slow")) as tools:
        call = asyncio.create_task(tools.call("bad__work", {"seconds": 0.5}))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await tools.call("bad__work", {})).text == "slept"


async def test_a_flood_of_messages_does_not_keep_others_from_their_answers() -> None:
    before = psutil.Process().memory_info().rss
    async with running(hostile("floods"), hostile("noisy_stderr", name="loud"), hostile("works", name="good")) as tools:
        began_at, used = time.monotonic(), time.process_time()
        while time.monotonic() < began_at + 3:
            await expect_works(tools)
            await asyncio.sleep(0.05)
        assert time.process_time() - used < 2.5
    assert psutil.Process().memory_info().rss - before < HELD_BYTES


async def test_endless_announcements_of_changes_are_taken_together() -> None:
    async with running(hostile("announces_changes"), hostile("works", name="good")) as tools:
        await asyncio.sleep(1)
        await expect_works(tools)
        await expect_works(tools, "bad__work")


async def test_of_thousands_of_tools_some_are_offered() -> None:
    async with running(hostile("many_tools")) as tools:
        assert len(names(tools)) == MAX_TOOLS
        await expect_works(tools, "bad__tool_0")


async def test_pages_are_followed_but_not_for_ever() -> None:
    async with running(hostile("pages"), hostile("endless_pages", name="endless")) as tools:
        assert names(tools) == [f"bad__tool_{number}" for number in range(5)]
        assert 5 < len(names(tools, "endless")) <= 50


async def test_a_long_description_is_cut_and_clean() -> None:
    async with running(hostile("long_description")) as tools:
        spec, other = tools.list_tools()
        assert len(spec.description) <= MAX_DESCRIPTION_CHARACTERS
        assert spec.description.startswith("long dddd")
        assert other.name == "bad__other"


async def test_a_list_that_is_too_large_refuses_the_connection() -> None:
    async with running(hostile("huge_description"), hostile("works", name="good")) as tools:
        assert names(tools) == []
        assert tools.connections["bad"].problem == "its answer is too large"
        await expect_works(tools)


async def test_a_result_with_too_many_parts_is_discarded() -> None:
    """Read by the official package, this answer of four megabytes holds the event loop for twelve seconds."""
    async with running(hostile("complex_result")) as tools:
        used = time.process_time()
        result = await tools.call("bad__work", {})
        assert time.process_time() - used < 2
    assert result.text == "The tool's answer was too large and was discarded."


async def test_a_result_of_fifty_megabytes_is_discarded_and_the_server_goes_on() -> None:
    before = psutil.Process().memory_info().rss
    async with running(hostile("huge_result", timeout_seconds=60.0), hostile("works", name="good")) as tools:
        call = asyncio.create_task(tools.call("bad__work", {}))
        while not call.done():
            await expect_works(tools)
            await asyncio.sleep(0.05)
        result = await call
        assert result.is_error
        assert result.text == "The tool's answer was too large and was discarded."
        assert names(tools) == ["bad__work"]
    assert psutil.Process().memory_info().rss - before < HELD_BYTES


async def test_a_large_result_is_cut_and_says_so() -> None:
    async with running(hostile("large_result")) as tools:
        text = (await tools.call("bad__work", {})).text
    assert len(text) <= MAX_RESULT_CHARACTERS
    assert text.endswith("[The result was cut: 80,100 more characters.]")


async def test_garbage_between_messages_is_skipped() -> None:
    async with running(hostile("some_garbage")) as tools:
        await expect_works(tools, "bad__work")


async def test_control_characters_are_removed_from_results() -> None:
    async with running(hostile("dirty_result"), hostile("strange_blocks", name="strange")) as tools:
        assert (await tools.call("bad__work", {})).text == "abc"
        text = (await tools.call("strange__work", {})).text
        assert text == "[hologram: not shown]\n[embedded resource: without a name, without a name; not shown]\nthe end"


async def test_errors_of_a_tool_are_results() -> None:
    async with running(hostile("fails"), hostile("refuses", name="refusing")) as tools:
        failed = await tools.call("bad__work", {})
        refused = await tools.call("refusing__work", {})
    assert (failed.text, failed.is_error) == ("no such file", True)
    assert (refused.text, refused.is_error) == ("The server refused the call: not today", True)


async def test_tools_that_can_not_be_offered_are_left_out() -> None:
    async with running(hostile("odd_tools")) as tools:
        found = names(tools)
        assert len(found) == len({*found}) == 4
        assert found[0] == "bad__work"
        assert all(len(name) <= MAX_TOOL_NAME_CHARACTERS for name in found)
        assert found[1].startswith("bad__a_b_c_d-")
        for name in found:
            await expect_works(tools, name)


async def test_a_changed_schema_counts_from_its_announcement_on() -> None:
    async with running(hostile("changes_schema")) as tools:
        await expect_works(tools, "bad__work")
        await wait_until(lambda: "bad__another" in names(tools))
        refused = await tools.call("bad__work", {})
        assert refused.is_error
        assert "'new' is a required property" in refused.text
        assert (await tools.call("bad__work", {"new": 1})).text == "done 2"


async def test_a_tool_that_changed_something_asks_also_after_a_new_hint() -> None:
    listed = hostile("changes_hint", name="listed", read_only=frozenset({"work"}))
    with capture_logs() as lines:
        async with running(hostile("changes_hint"), listed) as tools:
            for server in ("bad", "listed"):
                before = tools.connections[server].tools
                await expect_works(tools, f"{server}__work")
                await wait_until(partial(has_new_tools, tools, server, before))
            only_reads = {spec.name: spec.only_reads for spec in tools.list_tools()}
    assert only_reads == {"bad__work": False, "bad__reads": True, "listed__work": True, "listed__reads": False}
    warned = [line for line in lines if line["event"] == "mcp.tool_hint_changed"]
    assert [(line["log_level"], line["server"], line["tools"]) for line in warned] == [
        ("warning", "bad", ["bad__work"])
    ]


async def test_a_server_may_ask_for_nothing() -> None:
    async with running(hostile("asks")) as tools:
        answers: dict[str, object] = {}
        while len(answers) < 5:
            answers = json.loads((await tools.call("bad__work", {})).text)
    assert answers == {"s": -32601, "r": -32601, "e": -32601, "p": {}, "x": -32601}


async def test_only_a_hint_or_the_configuration_makes_a_tool_one_that_reads() -> None:
    trusted = hostile("hints", name="trusted")
    listed = hostile(
        "hints", name="listed", read_only=frozenset({"changes"}), disabled_tools=frozenset({"destroys", "wites"})
    )
    async with running(trusted, listed) as tools:
        assert [*tools.connections["listed"].unknown_names] == ["wites"]
        assert [*tools.connections["trusted"].unknown_names] == []
        only_reads = {spec.name: spec.only_reads for spec in tools.list_tools()}
    assert only_reads == {
        "trusted__reads": True,
        "trusted__changes": False,
        "trusted__destroys": False,
        "listed__reads": False,
        "listed__changes": True,
    }


async def test_a_server_gets_no_secret_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-others")
    async with running(hostile("shows_secrets", env={"OWN": "yes"})) as tools:
        shown = json.loads((await tools.call("bad__work", {})).text)
    assert shown["OWN"] == "yes"
    assert "not-for-others" not in shown.values()


async def test_a_stubborn_server_and_its_children_are_killed() -> None:
    async with running(hostile("stubborn")) as tools:
        await expect_works(tools, "bad__work")
        [server] = [each for each in psutil.Process(os.getpid()).children() if "stubborn" in each.cmdline()]
        processes = [server, *server.children(recursive=True)]
        assert len(processes) == 2
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert alive == []
