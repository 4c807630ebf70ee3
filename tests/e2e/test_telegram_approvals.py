"""Test that a question in Telegram and its decision survive kill -9: the buttons are there once, and the call is made once."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.channels.telegram.peer import Posted, telegram_peer
from tests.support.world import until

from .harness import Home, Server
from .scripted import ScriptedModel, ToolCall, Uses

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("telegram")]


@pytest.mark.parametrize("place", ["deliver.sent", "approval.decided", "turn.loaded", "tool.before_intent", "stopped"])
async def test_a_kill_loses_no_question_and_no_decision(
    place: str, home: Home, model: ScriptedModel, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """`stopped`: the server is down when the button is pressed."""
    written, config = tmp_path / "written.txt", tmp_path / "mcp.json"
    script = str(Path(__file__).parent / "file_server.py")
    servers = {"files": {"command": sys.executable, "args": [script, str(written)]}}
    config.write_text(json.dumps({"mcpServers": servers}))
    async with telegram_peer() as peer:
        ann = peer.person("Ann")
        chat = peer.private(ann)
        home.env |= {
            "RAPPORT_MCP_CONFIG": str(config),
            "TELEGRAM_BOT_TOKEN": peer.token,
            "TELEGRAM_API_URL": peer.url,
            "TELEGRAM_ALLOWED_USERS": str(ann.id),
        }
        server = await home.serve()
        agent = {"id": "clerk", "name": "Clerk", "persona": "You keep the files.", "tools": ["files__*"]}
        await post(http, f"{server.url}/api/agents", {**agent, "for_everyone": True, "autonomy": {"enabled": False}})
        chat.says(ann, "/agent clerk")
        await peer.until_sent(chat, 1)
        server = await restart(server, home, place if place == "deliver.sent" else "")
        model.answers += [Uses([ToolCall("files__write", json.dumps({"text": "a line"}))]), "Written.", "Written."]
        chat.says(ann, "write a line")

        def questions() -> list[Posted]:
            return [each for each in peer.posted(chat) if each.text.startswith("May I use")]

        await peer.until(questions)
        if place == "deliver.sent":
            assert await server.exit_code() == -signal.SIGKILL
            server = await home.serve()
        elif place == "stopped":
            server.kill()
        else:
            server = await restart(server, home, place)
        await peer.until(lambda: [len(each.buttons) for each in questions()] == [2])
        [question] = questions()
        chat.presses(ann, question, question.buttons[0][1])
        if place != "deliver.sent":
            if place != "stopped":
                assert await server.exit_code() == -signal.SIGKILL
            server = await home.serve()
        await peer.until(lambda: peer.sent(chat)[-1] == "Written.")
        await peer.until(lambda: [label for label, _ in question.buttons] == ["Allowed"])
        assert written.read_text() == "a line\n"
        assert peer.sent(chat)[1:] == [question.text, "Written."]
        assert server.errors() == []


async def restart(server: Server, home: Home, failpoint: str) -> Server:
    """Stop the server, and start it with this failpoint and with its tools."""
    server.kill()
    server = await home.serve(RAPPORT_FAILPOINT=failpoint) if failpoint else await home.serve()
    await until(lambda: "mcp.connected" in server.log.read_text())
    return server


async def post(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with http.post(url, json=body) as response:
        assert response.status == 201, await response.text()
