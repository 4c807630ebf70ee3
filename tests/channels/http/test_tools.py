"""Test `GET /api/tools`: what an agent may name, the state of servers for operators, and what others see (TOOL-1)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.channels.http.test_auth import make_key, until_closed
from tests.support.file_tools import FileTools
from tests.support.world import World, open_world, until

FILE_SERVER = Path(__file__).parents[2] / "e2e" / "file_server.py"
CLERK = {"id": "clerk", "name": "Clerk", "persona": "You are a clerk."}


async def get(world: World, **headers: str) -> dict[str, Any]:
    response = await world.http.get("/api/tools", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def names(found: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in found["tools"]}


async def test_tools_are_listed_with_what_they_touch(database_url: str) -> None:
    async with open_world(database_url, tool_source=FileTools()) as world:
        found = await get(world)
    by_name = {tool["name"]: tool for tool in found["tools"]}
    assert by_name["files__write"] == {
        "name": "files__write",
        "description": "Write a file.",
        "server": "files",
        "only_reads": False,
        "scope": "outside",
        "is_default": False,
    }
    assert by_name["files__read"]["only_reads"] is True
    assert (by_name["upsert_memory"]["scope"], by_name["upsert_memory"]["is_default"]) == ("memory", True)
    assert (by_name["current_time"]["server"], by_name["current_time"]["is_default"]) == ("", False)
    assert {"upsert_memory", "follow_up", "get_message"} <= {
        name for name, tool in by_name.items() if tool["is_default"]
    }


async def test_others_see_the_foreign_tools_of_their_agents_alone(database_url: str) -> None:
    async with open_world(database_url, tool_source=FileTools()) as world:
        await world.http.post("/api/agents", json={**CLERK, "for_everyone": True, "tools": ["files__read"]})
        await world.http.post("/api/agents", json={**CLERK, "id": "own", "name": "Own", "tools": ["files__write"]})
        _, ana = await make_key(world, "ana")
        await until_closed(world)
        seen = await get(world, **ana)
        assert names(seen) & {"files__read", "files__write"} == {"files__read"}
        assert "current_time" in names(seen)
        assert seen["servers"] == []
        assert (await world.http.get("/api/tools")).status_code == 401


async def test_operators_see_which_servers_are_connected_and_why_others_are_not(
    database_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    secret = "quokka-secret"
    servers: dict[str, Any] = {
        "files": {"command": sys.executable, "args": [str(FILE_SERVER), str(tmp_path / "written.txt")]},
        "gone": {"command": str(tmp_path / "nothing"), "args": [], "env": {"TOKEN": secret}},
    }
    config.write_text(json.dumps({"mcpServers": servers}))
    async with open_world(database_url, mcp_config=config) as world:

        async def are_tried() -> bool:
            return all(server["state"] != "connecting" for server in (await get(world))["servers"])

        await until(are_tried)
        response = await world.http.get("/api/tools")
        assert secret not in response.text
        files, gone = response.json()["servers"]
        assert files == {"name": "files", "state": "connected", "problem": ""}
        assert (gone["name"], gone["state"]) == ("gone", "failed")
        assert gone["problem"]
        assert "files__write" in names(response.json())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_the_list_can_only_be_read(world: World, method: str) -> None:
    assert (await world.http.request(method, "/api/tools")).status_code == 405
