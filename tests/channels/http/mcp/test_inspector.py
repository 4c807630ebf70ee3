"""Test the server with npm's MCP inspector: over HTTP with a key, and over standard input and output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rapport.channels.http.mcp.tools import TOOLS
from tests.channels.http.mcp.clients import make_key
from tests.channels.http.mcp.inspecting import call, inspect
from tests.support.commands import COMMAND
from tests.support.world import World

pytestmark = pytest.mark.e2e


async def test_the_inspector_uses_the_server_over_http_with_a_key(world: World, tmp_path: Path) -> None:
    key = await make_key(world, "ana")
    url = f"{str(world.http.base_url).rstrip('/')}/mcp"
    connection = [url, "--transport", "http", "--header", f"Authorization: Bearer {key}"]

    listed = (await inspect(tmp_path, *connection, "--method", "tools/list", "--strict")).value
    assert {tool["name"] for tool in listed["tools"]} == set(TOOLS)
    added = (await inspect(tmp_path, *connection, *call("add_note", text="Boats leave at ten.", title="Boats"))).value
    assert added["structuredContent"]["id"] == "boats"
    found = (await inspect(tmp_path, *connection, *call("search_notes", query="When do boats leave?"))).value
    assert found["structuredContent"]["passages"][0]["note_id"] == "boats"
    asked = (await inspect(tmp_path, *connection, *call("ask", message="Hello", keep="true"))).value
    assert asked["content"] == [{"type": "text", "text": "re: Hello"}]
    here = asked["structuredContent"]["conversation_id"]
    resources = (await inspect(tmp_path, *connection, "--method", "resources/list")).value["resources"]
    assert [one["uri"] for one in resources] == ["rapport://notes/boats", f"rapport://conversations/{here}"]
    read = (await inspect(tmp_path, *connection, "--method", "resources/read", "--uri", resources[1]["uri"])).value
    assert [one["text"] for one in json.loads(read["contents"][0]["text"])["messages"]] == ["Hello", "re: Hello"]
    refused = await inspect(tmp_path, *connection, *call("ask", message="Hello", agent="nobody"))
    assert "There is no agent 'nobody'; there are companion, librarian." in refused.out + refused.err

    for wrong in ([], ["--header", "Authorization: Bearer rapport_wrong"]):
        refused = await inspect(tmp_path, url, "--transport", "http", *wrong, "--method", "tools/list")
        assert refused.code != 0
        assert "ask" not in refused.out


async def test_the_inspector_uses_the_server_over_standard_input(
    world: World, database_url: str, tmp_path: Path
) -> None:
    await world.http.post("/api/notes", json={"id": "trains", "text": "The train leaves at nine."})
    settings = ["-e", f"DATABASE_URL={database_url}", "-e", f"RAPPORT_DATA_DIR={tmp_path}"]
    own = [*settings, str(COMMAND), "mcp"]
    bridge = [str(COMMAND), "mcp", "--url", str(world.http.base_url)]
    for command in (own, bridge):
        listed = (await inspect(tmp_path, *command, "--method", "tools/list")).value
        assert {tool["name"] for tool in listed["tools"]} == set(TOOLS)
        found = (await inspect(tmp_path, *command, *call("search_notes", query="When does it leave?"))).value
        assert found["structuredContent"]["passages"][0]["text"] == "The train leaves at nine."
        read = await inspect(tmp_path, *command, "--method", "resources/read", "--uri", "rapport://notes/trains")
        assert read.value["contents"][0]["text"] == "The train leaves at nine."
