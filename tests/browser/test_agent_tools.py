"""Test the tools of an agent in its editor: Rapport's own, those of servers, and those that run without asking (TOOL-1, TOOL-3)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest_asyncio
from playwright.async_api import Locator, expect

from tests.browser.test_accessibility import axe, problems
from tests.browser.test_agents_panel import field, make, open_editor
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.file_tools import READ, WRITE, FileTools
from tests.support.world import World, open_world, until

from .visitor import IN_A_BROWSER, ON_A_DESKTOP, ON_A_PHONE, Visitor

__all__ = ["axe"]
pytestmark = IN_A_BROWSER

FILE_SERVER = Path(__file__).parents[1] / "e2e" / "file_server.py"
EVIL = "<img src=x onerror=alert(1)>"


@pytest_asyncio.fixture(loop_scope="session")
async def world(database_url: str, tmp_path: Path) -> AsyncGenerator[World]:
    """A server with the tools of `files`, and a configured server `calendar` that does not start."""
    config = tmp_path / "mcp.json"
    calendar: dict[str, Any] = {"command": str(tmp_path / "nothing"), "args": []}
    files = {"command": sys.executable, "args": [str(FILE_SERVER), str(tmp_path / "written.txt")]}
    config.write_text(json.dumps({"mcpServers": {"files": files, "calendar": calendar}}))
    tools = FileTools(specs=(replace(READ, description=EVIL), WRITE))
    async with open_world(database_url, tool_source=tools, mcp_config=config) as opened:

        async def are_tried() -> bool:
            servers = (await opened.http.get("/api/tools")).json()["servers"]
            return [server["state"] for server in servers] == ["connected", "failed"]

        await until(are_tried)
        yield opened


async def open_tools(visitor: Visitor, agent: str = "chef") -> Locator:
    panel = await open_editor(visitor, agent)
    await panel.locator("summary").get_by_text("Tools", exact=True).click()
    return panel


def box(panel: Locator, name: str, path: str = "tools") -> Locator:
    return field(panel, path).locator(f"input[value='{name}']")


async def saved(world: World, agent: str = "chef") -> dict[str, Any]:
    return (await world.http.get(f"/api/agents/{agent}")).json()


async def test_tools_are_chosen_freed_and_restored(visitor: Visitor, world: World) -> None:
    await make(world)
    panel = await open_tools(visitor)
    await expect(box(panel, "upsert_memory")).to_be_checked()
    await expect(box(panel, "current_time")).not_to_be_checked()
    await expect(field(panel, "tools_without_approval")).to_contain_text("so it never has to ask")
    await box(panel, "current_time").check()
    await box(panel, "files__read").check()
    await expect(field(panel, "tools_without_approval")).to_contain_text("so it never has to ask")  # it only reads
    await box(panel, "files__write").check()
    await box(panel, "files__write", "tools_without_approval").check()
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 2.")).to_be_visible()
    stored = await saved(world)
    assert stored["tools"][-3:] == ["current_time", "files__read", "files__write"]
    assert stored["tools_without_approval"] == ["files__write"]
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Nothing has changed.")).to_be_visible()

    await box(panel, "files__write").uncheck()  # it can't be free any more
    await box(panel, "files__read").uncheck()
    await box(panel, "current_time").uncheck()
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 3.")).to_be_visible()
    stored = await saved(world)
    assert (stored["tools"], stored["tools_without_approval"]) == (None, [])


async def test_all_tools_of_a_server_are_chosen_at_once(visitor: Visitor, world: World) -> None:
    await make(world)
    panel = await open_tools(visitor)
    await box(panel, "files__*").check()
    for name in ("files__read", "files__write"):
        await expect(box(panel, name)).to_be_checked()
        await expect(box(panel, name)).to_be_disabled()
    await box(panel, "files__*", "tools_without_approval").check()
    await expect(box(panel, "files__*", "tools_without_approval")).to_be_focused()
    await expect(box(panel, "files__write", "tools_without_approval")).to_be_disabled()
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 2.")).to_be_visible()
    stored = await saved(world)
    assert stored["tools"][-1] == "files__*"
    assert stored["tools_without_approval"] == ["files__*"]


@ON_A_DESKTOP
async def test_what_is_not_connected_stays_and_says_why(visitor: Visitor, world: World) -> None:
    tools = ["old__gone", "calendar__*", "upsert_memory", "files__removed"]
    await make(world, tools=tools, tools_without_approval=["old__gone"])
    panel = await open_tools(visitor)
    group = panel.locator("details.tool-server")
    calendar, old = group.filter(has_text="calendar"), group.filter(has_text="old")
    await expect(calendar).to_contain_text("This server is not connected: its command can't be started")
    await expect(old).to_contain_text("This server is not connected.")
    await expect(old).to_contain_text("Not there now. The agent keeps it.")
    await expect(box(panel, "old__*")).to_have_count(0)
    for name in tools:
        await expect(box(panel, name)).to_be_checked()
    await box(panel, "follow_up").check()
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 2.")).to_be_visible()
    stored = await saved(world)
    assert stored["tools"] == [*tools, "follow_up"]
    assert stored["tools_without_approval"] == ["old__gone"]


@ON_A_PHONE
async def test_only_operators_add_tools_of_servers(visitor: Visitor, world: World) -> None:
    await make(world, id="shared", name="Shared", for_everyone=True, tools=["files__read"])
    _, header = await make_key(world, "ana")
    await until_closed(world)
    made = await world.http.post(
        "/api/agents", json={"id": "mine", "name": "Mine", "persona": "You are."}, headers=header
    )
    assert made.status_code == 201, made.text
    await visitor.open("")
    await visitor.page.get_by_label("Your key").fill(header["Authorization"].removeprefix("Bearer "))
    await visitor.button("Sign in").click()
    await expect(visitor.page.locator("#conversations .rail")).to_have_count(1)
    await visitor.go("agents/mine")
    panel = visitor.shown("agents")
    await expect(panel.get_by_label("Name", exact=True)).to_be_focused()
    await panel.locator("summary").get_by_text("Tools", exact=True).click()
    await expect(box(panel, "files__read")).to_be_disabled()
    await expect(box(panel, "files__write")).to_have_count(0)
    await expect(field(panel, "tools")).to_contain_text("Only an operator may add tools of servers.")
    await box(panel, "current_time").check()
    await visitor.button("Save").click()
    await expect(panel.get_by_text("Saved as version 2.")).to_be_visible()


@ON_A_DESKTOP
async def test_what_the_server_refuses_is_shown_at_the_tools(visitor: Visitor, world: World) -> None:
    """Somebody else takes the operator's place while the editor is open: the sentence is the API's."""
    await make(world)
    panel = await open_tools(visitor)
    await box(panel, "files__read").check()
    refusal = json.dumps({"detail": "`tools`: only an operator may add tools of MCP servers."})
    await visitor.page.route(
        "**/api/agents/chef?version=*", lambda route: route.fulfill(status=400, body=refusal), times=1
    )
    await visitor.button("Save").click()
    await expect(field(panel, "tools").get_by_role("alert")).to_have_text(
        "only an operator may add tools of MCP servers."
    )
    await expect(box(panel, "files__read")).to_be_checked()


async def test_descriptions_are_text_and_axe_finds_nothing_serious(visitor: Visitor, world: World, axe: str) -> None:
    await make(world, tools=["files__write", "old__gone"])
    panel = await open_tools(visitor)
    await expect(panel.locator(".tool-help").first).to_have_text(EVIL)
    assert await visitor.page.locator("img[src='x']").count() == 0
    for colours in ("light", "dark"):
        await visitor.page.emulate_media(color_scheme=colours)
        assert await problems(visitor.page, axe) == []
