"""Test decisions about tool calls in `rapport chat`, with the real command, a real MCP server and a scripted model (TOOL-3)."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import psycopg
import pytest

from rapport.domain.visible_text import make_visible
from tests.e2e.scripted import ScriptedModel, ToolCall, Uses, chat_model, scripted_model
from tests.support.commands import COMMAND, Home, Ran, Terminal
from tests.support.world import open_world

pytestmark = pytest.mark.e2e

FILE_SERVER = Path(__file__).parents[1] / "e2e" / "file_server.py"
CLERK = {
    "id": "clerk",
    "name": "Clerk",
    "persona": "You keep the files.",
    "tools": ["files__*"],
    "autonomy": {"enabled": False},
}


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "written.txt"


@pytest.fixture
async def environment(database_url: str, model: ScriptedModel, tmp_path: Path, written: Path) -> dict[str, str]:
    """The settings of a chat with an agent that may write a file."""
    config = tmp_path / "mcp.json"
    server = {"command": sys.executable, "args": [str(FILE_SERVER), str(written)]}
    config.write_text(json.dumps({"mcpServers": {"files": server}}))
    async with open_world(database_url, model=chat_model(model)) as world:
        made = await world.http.post("/api/agents", json=CLERK)
        assert made.status_code == 201, made.text
    return {
        "DATABASE_URL": database_url,
        "RAPPORT_MCP_CONFIG": str(config),
        "RAPPORT_MODEL": "openai:mock",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "mock",
        "LOG_LEVEL": "error",
    }


@pytest.fixture
def chat(home: Home, environment: dict[str, str]) -> Callable[..., asyncio.Future[Ran]]:
    """Return a function that chats with the clerk: a line of input for each argument."""

    def run(*lines: str, options: tuple[str, ...] = ()) -> asyncio.Future[Ran]:
        stdin = "".join(f"{line}\n" for line in lines)
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(
            None, lambda: home.run("chat", "--agent", "clerk", *options, stdin=stdin, **environment)
        )

    return run


def content(written: Path) -> str:
    return written.read_text() if written.exists() else ""


def writes(*lines: str) -> Uses:
    return Uses([ToolCall("files__write", json.dumps({"text": line})) for line in lines])


async def test_a_question_is_answered_with_yes_and_the_reply_goes_on(
    chat: Callable[..., asyncio.Future[Ran]],
    home: Home,
    environment: dict[str, str],
    model: ScriptedModel,
    written: Path,
) -> None:
    model.answers += [writes("tea\nand \x1b[31mcoffee"), "It is written."]
    ran = await chat("write it down", "perhaps", "YES", "/approvals")
    assert ran.code == 0, ran
    assert "write of the server files" in ran.out
    assert "  text: tea\n        and \\u{1b}[31mcoffee\n" in ran.out
    assert ran.out.count("Type yes, no or later.") == 1
    assert ran.out.rindex("Allow it?") < ran.out.index("It is written.")
    assert "no question waits" in ran.out
    assert content(written) == "tea\nand \x1b[31mcoffee\n"
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT id FROM messages ORDER BY created_at DESC LIMIT 1").fetchone()
    assert row is not None
    shown = await asyncio.to_thread(lambda: home.run("context", "show", row[0], **environment))
    assert "Tools\n `write` of files (done)\n" in shown.out


async def test_several_questions_are_asked_in_turn_and_no_makes_no_call(
    chat: Callable[..., asyncio.Future[Ran]], model: ScriptedModel, written: Path
) -> None:
    model.answers += [writes("tea", "coffee"), "Only tea."]
    ran = await chat("write them down", "y", "n")
    assert ran.out.count("Allow it?") == 2
    assert "Only tea." in ran.out
    assert content(written) == "tea\n"


async def test_a_question_is_left_for_later_and_decided_in_another_chat(
    chat: Callable[..., asyncio.Future[Ran]], model: ScriptedModel, written: Path
) -> None:
    model.answers += [writes("tea"), "Talk goes on."]
    ran = await chat("write it down", "later", "how are you?")
    assert "1 question waits until " in ran.out
    assert "Talk goes on." in ran.out
    assert content(written) == ""
    model.answers.append("It is written.")
    again = await chat("/approvals", "yes", options=("--continue",))
    assert again.out.index("1 question waits until ") < again.out.index("Allow it?") < again.out.index("It is written.")
    assert content(written) == "tea\n"


async def test_a_decision_that_comes_too_late_says_why(
    home: Home, environment: dict[str, str], model: ScriptedModel, written: Path
) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    model.answers += [writes("tea"), writes("coffee"), "It is written."]
    terminal = open_terminal(home, environment)
    try:
        await asyncio.to_thread(terminal.shows, r"you\s*$")
        terminal.types("write it down", "Enter")
        await asyncio.to_thread(terminal.shows, r"text: tea\nAllow it\? yes, no or later:\s*$")
        with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
            connection.execute("UPDATE tool_calls SET expires_at = clock_timestamp()")
        terminal.types("yes", "Enter")
        await asyncio.to_thread(terminal.shows, r"Nobody decided in time, so the call was not made\..*you\s*$")
        terminal.types("and this", "Enter")
        await asyncio.to_thread(terminal.shows, r"text: coffee\nAllow it\? yes, no or later:\s*$")
        terminal.types("C-c")  # leaves the question open, not the chat
        await asyncio.to_thread(terminal.shows, r"1 question waits until.*you\s*$")
        terminal.types("/approvals", "Enter")
        await asyncio.to_thread(terminal.shows, r"text: coffee\nAllow it\? yes, no or later:\s*$")
        terminal.types("yes", "Enter")
        await asyncio.to_thread(terminal.shows, r"It is written\..*you\s*$")
        terminal.types("C-d")
        assert "left with 0" in await asyncio.to_thread(terminal.shows, r"left with \d+")
    finally:
        terminal.close()
    assert content(written) == "coffee\n"


async def test_what_was_decided_elsewhere_appears_above_the_line(
    home: Home, environment: dict[str, str], model: ScriptedModel, written: Path
) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    model.answers += [writes("tea"), "It is written."]
    terminal = open_terminal(home, environment)
    try:
        await asyncio.to_thread(terminal.shows, r"you\s*$")
        terminal.types("write it down", "Enter")
        await asyncio.to_thread(terminal.shows, r"Allow it\? yes, no or later:\s*$")
        terminal.types("later", "Enter")
        await asyncio.to_thread(terminal.shows, r"1 question waits until.*you\s*$")
        terminal.types("half a line")
        config = Path(environment["RAPPORT_MCP_CONFIG"])
        async with open_world(environment["DATABASE_URL"], model=chat_model(model), mcp_config=config) as world:
            [thread] = (await world.http.get("/api/threads")).json()["threads"]
            path = f"/api/threads/{thread['id']}/approvals"
            [asked] = (await world.http.get(path)).json()["approvals"]
            decided = await world.http.post(f"{path}/{asked['id']}", json={"decision": "allow"})
            assert decided.status_code == 200, decided.text
            await asyncio.to_thread(terminal.shows, r"It is written\.\n\nyou half a line\s*$")
        terminal.types("C-u", "/approvals", "Enter")
        shown = await asyncio.to_thread(terminal.shows, r"no question waits.*you\s*$")
        assert shown.count("It is written.") == 1
    finally:
        terminal.close()
    assert content(written) == "tea\n"


def open_terminal(home: Home, environment: dict[str, str]) -> Terminal:
    settings = " ".join(f"{name}='{value}'" for name, value in environment.items())
    return Terminal(home, f"env -u COLUMNS {settings} {COMMAND} chat --agent clerk; echo left with $?; exec cat")


def test_hidden_characters_are_written_as_numbers() -> None:
    assert make_visible("a\tb\x1b[0m\u202e\u200d\u2028\n") == "a   b\\u{1b}[0m\\u{202e}\u200d\\u{2028}\n"
