"""Test `rapport tools` and what `rapport doctor` says of MCP servers, with the real commands and servers of npm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rapport.cli.mcp_servers import connect
from tests.agents.mcp.connecting import HOSTILE
from tests.agents.mcp.connecting import hostile as hanging
from tests.agents.mcp.test_real_servers import find_free_port, peer
from tests.support.commands import Home, Ran

pytestmark = pytest.mark.e2e

SECRET = "tok-0123456789"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def configure(home: Home, **servers: Any) -> dict[str, str]:
    """Write the configuration, and return the environment that names it. No database can be reached."""
    path = home.path / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return {"RAPPORT_MCP_CONFIG": str(path), "DATABASE_URL": "postgresql://127.0.0.1:9/none"}


def everything() -> dict[str, Any]:
    server = peer("everything", "stdio")
    return {"command": server.command, "args": [*server.args]}


def filesystem(folder: Path, **more: Any) -> dict[str, Any]:
    server = peer("filesystem", str(folder))
    return {"command": server.command, "args": [*server.args], **more}


def hostile(mode: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(HOSTILE), mode], **more}


def lines_of(ran: Ran, name: str) -> list[str]:
    return [line for line in ran.out.splitlines() if line.split(maxsplit=1)[:1] == [name]]


def test_list_shows_every_tool_and_whether_it_only_reads(home: Home, tmp_path: Path) -> None:
    settings = configure(home, everything=everything(), files=filesystem(tmp_path, disabledTools=["move_file"]))
    ran = home.run("tools", "list", **settings)
    assert (ran.code, ran.err) == (0, "")
    [read] = lines_of(ran, "files__read_text_file")
    [write] = lines_of(ran, "files__write_file")
    assert read.split()[:3] == ["files__read_text_file", "reads", "Read"]
    assert write.split()[:2] == ["files__write_file", "changes"]
    assert lines_of(ran, "files__move_file") == []
    assert lines_of(ran, "everything__echo")[0].endswith("Echoes back the input string")
    assert lines_of(ran, "search_notes")[0].split()[1] == "reads"
    assert [lines_of(ran, name)[0].split()[1] for name in ("upsert_memory", "follow_up")] == ["keeps", "keeps"]
    assert "keeps: Rapport stores something of its own, and never asks" in ran.out


def test_list_names_each_server_that_fails_in_one_sentence_and_goes_on(home: Home) -> None:
    ran = home.run(
        "tools",
        "list",
        **configure(
            home,
            dead=hostile("ends_at_once", env={"SOME_TOKEN": SECRET}),
            missing={"command": "no-such-program"},
            away={"url": f"http://127.0.0.1:{find_free_port()}/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
            good=hostile("works"),
        ),
    )
    assert ran.code == 1
    assert lines_of(ran, "good__work")
    assert [line.partition(" can't be used: ")[0] for line in ran.err.splitlines()] == [
        "rapport: The MCP server dead",
        "rapport: The MCP server missing",
        "rapport: The MCP server away",
    ]
    dead, missing, away = ran.err.splitlines()
    assert "it ended with status 4: the token [redacted] is wrong. Run its `command`" in dead
    assert missing.endswith("No such file or directory. Install the program, or give its whole path as `command`.")
    assert away.endswith("it can't be reached (ConnectError). Start the server, or correct its `url`.")
    assert SECRET not in ran.out + ran.err


async def test_a_server_that_hangs_is_waited_for_a_bounded_time() -> None:
    async with connect([hanging("hangs_at_start")], seconds=0.5) as tools:
        assert tools.find_problem("bad") == "it has not answered yet"


def test_list_works_without_servers_and_without_a_database(home: Home) -> None:
    ran = home.run("tools", "list", DATABASE_URL="postgresql://127.0.0.1:9/none")
    assert (ran.code, ran.err) == (0, "")
    assert "No MCP server is configured" in ran.out


def test_a_mistake_in_the_configuration_is_named_with_file_and_field(home: Home) -> None:
    settings = configure(home, files={"command": "x", "timeout_seconds": "soon"})
    for command in (["tools", "list"], ["tools", "call", "files__read"]):
        said = home.fails(*command, **settings)
        assert f"{settings['RAPPORT_MCP_CONFIG']}: `mcpServers.files.timeout_seconds` must be a number" in said


def test_call_prints_the_result(home: Home, tmp_path: Path) -> None:
    settings = configure(home, everything=everything(), files=filesystem(tmp_path), dead=hostile("ends_at_once"))
    (tmp_path / "a.txt").write_text("the text of a")
    assert home.run("tools", "call", "everything__get-sum", "a=2", "b=3", **settings) == (
        0,
        "The sum of 2 and 3 is 5.\n",
        "",
    )
    # A number where the tool wants text stays text.
    assert home.run("tools", "call", "everything__echo", "message=42", **settings).out == "Echo: 42\n"
    given = json.dumps({"path": str(tmp_path / "a.txt")})
    read = home.run("tools", "call", "files__read_text_file", "--arguments", given, **settings)
    assert read == (0, "the text of a\n", "")


def test_call_asks_before_a_tool_changes_something(home: Home, tmp_path: Path) -> None:
    settings = configure(home, files=filesystem(tmp_path))
    path = tmp_path / "b.txt"
    write = ("tools", "call", "files__write_file", f"path={path}", "content=new")
    for answer in ("", "n\n", "\n"):
        ran = home.run(*write, stdin=answer, **settings)
        assert ran.code == 1
        assert "files__write_file may change something. Call it with" in ran.err
        assert "[y/N]" in ran.err
        assert not path.exists()
    assert home.run(*write, stdin="y\n", **settings).code == 0
    assert path.read_text() == "new"
    path.unlink()
    ran = home.run(*write, "--yes", **settings)
    assert (ran.code, ran.err) == (0, "")
    assert path.read_text() == "new"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["search_notes"], "search_notes is a built-in tool, which needs a conversation"),
        (["echo"], "'echo' is no tool of an MCP server: its name is `server__tool`."),
        (["other__echo"], "there is no MCP server 'other'. Configured: everything, bad."),
        (["everything__sing"], "the MCP server everything has no tool 'everything__sing'"),
        (["everything__get-sum", "a=two", "b=3"], "The argument `a` is wrong: 'two' is not of type 'number'."),
        (["everything__get-sum", "a"], "'a' is no argument: write KEY=VALUE."),
        (["everything__get-sum", "a=1", "a=2"], "the argument 'a' is given twice."),
        (["everything__get-sum", "--arguments", "{"], "--arguments is not valid JSON"),
        (["everything__get-sum", "--arguments", "[1]"], "--arguments must be a JSON object"),
        (
            ["everything__get-sum", "a=1", "--arguments", "{}"],
            "give the arguments either as --arguments or as KEY=VALUE.",
        ),
        (["bad__work"], "The MCP server bad can't be used: it ended with status 4"),
    ],
)
def test_a_call_that_is_not_possible_is_one_sentence(home: Home, arguments: list[str], says: str) -> None:
    settings = configure(home, everything=everything(), bad=hostile("ends_at_once"))
    assert says in home.fails("tools", "call", *arguments, **settings)


def test_a_call_without_an_answer_says_that_its_outcome_is_unknown(home: Home) -> None:
    settings = configure(home, bad=hostile("hangs_in_call", timeout_seconds=0.5))
    said = home.fails("tools", "call", "bad__work", "--yes", **settings)
    assert said == "rapport: bad__work did not answer within 0.5 seconds. It may have been done: check that first.\n"


def test_an_error_of_a_tool_is_an_error_of_the_command(home: Home) -> None:
    settings = configure(home, bad=hostile("fails"))
    assert (
        home.fails("tools", "call", "bad__work", "--yes", **settings)
        == "rapport: bad__work reports an error: no such file\n"
    )


def test_doctor_checks_each_server(home: Home, tmp_path: Path, database_url: str) -> None:
    settings = configure(
        home,
        files=filesystem(tmp_path),
        mistaken=hostile("works", readOnly=["wrok"]),
        dead=hostile("ends_at_once", env={"SOME_TOKEN": SECRET}),
        away={"url": f"http://127.0.0.1:{find_free_port()}/mcp?key={SECRET}"},
    )
    ran = home.run("doctor", **{**settings, "DATABASE_URL": database_url})
    assert ran.code == 1
    lines = {line[2:].partition(":")[0]: line for line in ran.out.splitlines()}
    assert "4 configured" in lines["MCP servers"]
    assert "14 tools over stdio, 4 of them change something" in lines["MCP server files"]
    assert lines["MCP server files"].startswith("✓")
    assert "(0 ms)" not in lines["MCP server files"]  # a program that is started takes some
    assert lines["MCP server mistaken"].startswith("!")
    assert "`readOnly` or `disabledTools` name some that it does not have: wrok" in lines["MCP server mistaken"]
    assert lines["MCP server dead"].startswith("✗")
    assert "the token [redacted] is wrong. Run its `command`" in lines["MCP server dead"]
    assert "it can't be reached (ConnectError). Start the server, or correct its `url`." in lines["MCP server away"]
    assert lines["Database"].startswith("✓")
    assert SECRET not in ran.out + ran.err


def test_doctor_names_file_and_field_of_a_mistake_and_checks_the_rest(home: Home, database_url: str) -> None:
    settings = configure(home, files={"command": "x", "envv": {}})
    ran = home.run("doctor", **{**settings, "DATABASE_URL": database_url})
    assert ran.code == 1
    [line] = [line for line in ran.out.splitlines() if line.startswith("✗")]
    assert (
        f"MCP servers: The MCP configuration {settings['RAPPORT_MCP_CONFIG']}: `mcpServers.files.envv` is not a known field"
        in line
    )
    assert "✓ Database" in ran.out
