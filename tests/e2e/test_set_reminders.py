"""Test that a reminder and the reply that says so are stored together, whenever the process is killed."""

from __future__ import annotations

import json
import signal

import aiohttp
import pytest

from tests.support.waiting import LIMIT_SECONDS

from .harness import Client, Home, Sent
from .scripted import ScriptedModel, ToolCall, Uses

pytestmark = pytest.mark.e2e

SETS = Uses([ToolCall("set_reminder", json.dumps({"text": "call mum", "at": "2035-03-03T09:00"}))], "Will do.")


@pytest.mark.parametrize("place", ["turn.answered", "turn.committed"])
async def test_a_killed_turn_sets_its_reminder_once(
    place: str, home: Home, model: ScriptedModel, http: aiohttp.ClientSession
) -> None:
    model.answers.append(SETS)
    server = await home.serve(RAPPORT_FAILPOINT=place)
    client = Client(http, lambda: server.url)
    sent = Sent(await client.create(), "ada", 1, "Remind me on 3 March 2035 at nine to call mum.")
    with pytest.raises(aiohttp.ClientError):
        async with http.post(f"{server.url}/chat/conversations/{sent.conversation}/messages", json=sent.body):
            pass
    assert await server.exit_code() == -signal.SIGKILL
    expected = int(place == "turn.committed")
    _, told, _ = await home.command("export", sent.conversation)
    assert told.count("(Reminder set: ") == expected
    model.answers.clear()
    model.answers.append(SETS)
    server = await home.serve()
    reply = await client.say(sent)
    assert reply["content"].startswith("Will do.\n\n(Reminder set: Sat 3 Mar 2035, 09:00 (UTC) — “call mum”.")
    async with http.get(f"{server.url}/api/reminders", timeout=aiohttp.ClientTimeout(LIMIT_SECONDS)) as response:
        [reminder] = (await response.json())["reminders"]
    assert (reminder["text"], reminder["state"]) == ("call mum", "waiting")
    assert server.errors() == []
