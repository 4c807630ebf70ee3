"""Test whole turns with servers of others: an agent reads at once, asks before it changes something, and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rapport.agents.mcp.config import McpServer
from tests.agents.mcp.connecting import wait_until
from tests.agents.mcp.test_real_servers import peer, reached
from tests.e2e.scripted import ToolCall, Uses, chat_model, scripted_model
from tests.support.world import open_world, until


def write_config(path: Path, *servers: McpServer) -> Path:
    fields = {
        server.name: {"url": server.url}
        if server.url
        else {"command": server.command, "args": [*server.args], "env": {**server.env}}
        for server in servers
    }
    path.write_text(json.dumps({"mcpServers": fields}))
    return path


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_agent_reads_at_once_and_writes_when_it_is_allowed(
    tmp_path: Path, database_url: str, transport: str
) -> None:
    (tmp_path / "a.txt").write_text("Buy basil.")
    memory = peer("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    entity = {"name": "Ana", "entityType": "person", "observations": ["likes tea"]}
    async with (
        reached(peer("filesystem", str(tmp_path)), transport) as files,
        reached(memory, transport) as graph,
        scripted_model() as model,
        open_world(
            database_url, model=chat_model(model), mcp_config=write_config(tmp_path / "mcp.json", files, graph)
        ) as world,
    ):
        await wait_until(
            lambda: {each.server for each in world.app.tool_source.list_tools()} == {"filesystem", "memory"}
        )
        agent = {"id": "clerk", "name": "Clerk", "persona": "You keep files.", "tools": ["filesystem__*", "memory__*"]}
        assert (await world.http.post("/api/agents", json=agent)).status_code == 201
        conversation = (await world.http.post("/api/threads", json={"agent": "clerk"})).json()["id"]
        read = ToolCall("filesystem__read_text_file", json.dumps({"path": str(tmp_path / "a.txt")}))
        note = ToolCall(
            "filesystem__write_file", json.dumps({"path": str(tmp_path / "b.txt"), "content": "Basil is bought."})
        )
        remember = ToolCall("memory__create_entities", json.dumps({"entities": [entity]}))
        model.answers += [Uses([read]), Uses([note, remember]), "Noted."]
        question = await world.says(conversation, "Do what a.txt says, and note it.")
        assert "Buy basil." in str(model.calls[-1].window)
        assert "quoted as data from the server filesystem" in str(model.calls[-1].window)
        assert not (tmp_path / "b.txt").exists()
        assert len(question["approvals"]) == 2
        for approval in question["approvals"]:
            path = f"/api/threads/{conversation}/approvals/{approval}"
            assert (await world.http.post(path, json={"decision": "allow"})).status_code == 200

        async def is_answered() -> bool:
            return (await world.history(conversation))[-1]["content"] == "Noted."

        await until(is_answered)
        assert (tmp_path / "b.txt").read_text() == "Basil is bought."
        assert "likes tea" in (tmp_path / "memory.json").read_text()
