"""Test that a call with an effect outside is made at most once, and its message answered once, wherever the server is killed.

`RAPPORT_TOOL_CRASHES` kills at each place so many times.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .harness import Client, Home, Sent
from .scripted import ScriptedModel, ToolCall, Uses

pytestmark = pytest.mark.e2e

TIMES = int(os.environ.get("RAPPORT_TOOL_CRASHES", "1"))
UNKNOWN = "(It is not known whether `files__write` was done. It is not repeated.)"
PLACES = {
    # where the server is killed, how often the effect is there then, and whether its outcome is known afterwards
    "tool.before_intent": (0, True),
    "tool.after_intent": (0, False),
    "during": (1, False),
    "tool.after_call": (1, False),
    "tool.after_result": (1, True),
    "turn.answered": (1, True),
}


@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize("place", PLACES)
async def test_a_call_interrupted_by_a_kill_has_its_effect_at_most_once(
    place: str, number: int, home: Home, model: ScriptedModel, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    written = tmp_path / "written.txt"
    config = tmp_path / "mcp.json"
    script = str(Path(__file__).parent / "file_server.py")
    config.write_text(
        json.dumps({"mcpServers": {"files": {"command": sys.executable, "args": [script, str(written)]}}})
    )
    if place == "during":
        written.with_suffix(".kill").touch()
    environment = {"RAPPORT_MCP_CONFIG": str(config)}
    armed = {} if place == "during" else {"RAPPORT_FAILPOINT": place}
    server = await home.serve(**environment, **armed)
    client = Client(http, lambda: server.url)
    agent = {
        "id": "clerk",
        "name": "Clerk",
        "persona": "You keep the files.",
        "tools": ["files__*"],
        "tools_without_approval": ["files__*"],
        "autonomy": {"enabled": False},
    }
    await _post(http, f"{server.url}/api/agents", agent)
    conversation = (await _post(http, f"{server.url}/chat/conversations", {"agent": "clerk"}))["id"]
    await _wait_for_tool(http, server.url)
    call = Uses([ToolCall("files__write", json.dumps({"text": "a line"}))])
    # A turn that is asked again makes the same call again; one that goes on needs only the last answer.
    asks_again = place == "tool.before_intent"
    model.answers += [call, *([] if place != "turn.answered" else ["Done."])]
    sent = Sent(conversation, "ada", 1, "write a line")

    with pytest.raises(aiohttp.ClientError):
        async with http.post(f"{server.url}/chat/conversations/{conversation}/messages", json=sent.body):
            pass
    assert await server.exit_code() == -signal.SIGKILL
    effects, is_known = PLACES[place]
    assert _count(written) == effects

    model.answers.append("Done.")
    server = await home.serve(**environment)
    await _wait_for_tool(http, server.url)
    reply = await client.say(sent)

    assert reply["content"].startswith("Done.")
    assert (UNKNOWN in reply["content"]) is not is_known
    assert _count(written) == (1 if asks_again else effects)
    assert [message["role"] for message in await client.history(conversation)] == ["user", "assistant"]
    assert server.errors() == []


def _count(written: Path) -> int:
    return len(written.read_text().splitlines()) if written.exists() else 0


async def _post(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with http.post(url, json=body) as response:
        assert response.status == 201, await response.text()
        return await response.json()


async def _wait_for_tool(http: aiohttp.ClientSession, url: str) -> None:
    """Wait until the server has connected to the MCP server."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            async with http.get(f"{url}/api/tools") as response:
                if any(tool["name"] == "files__write" for tool in (await response.json())["tools"]):
                    return
            await asyncio.sleep(0.05)
