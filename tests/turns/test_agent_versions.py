"""Test that turns use one version of their agent, the newest, in every process; and each agent its own model (AGT-2)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.e2e.scripted import ScriptedModel, scripted_model
from tests.support.world import World, open_world, until

CHEF: dict[str, Any] = {"id": "chef", "name": "Chef 0", "persona": "You are number 0.", "handles": ["chef"]}
EDITS = int(os.environ.get("RAPPORT_AGENT_EDITS", "60"))
"""With 1,000 the test takes half a minute (ADR 83)."""
CLIENTS, TURNS = (8, 5) if EDITS < 1_000 else (32, 30)


async def make(world: World, **fields: Any) -> None:
    response = await world.http.post("/api/agents", json={**CHEF, **fields})
    assert response.status_code == 201, response.text


async def begin(world: World, agent: str, **fields: Any) -> str:
    return (await world.http.post("/api/threads", json={"agent": agent, **fields})).json()["id"]


async def test_a_change_in_one_process_is_used_by_the_next_turn_of_another(database_url: str) -> None:
    async with open_world(database_url) as first, open_world(database_url) as second:
        await make(first)
        conversation = await begin(second, "chef")
        for number in range(1, 4):
            await second.says(conversation, "hello")
            changed = await first.http.patch("/api/agents/chef", json={"persona": f"You are number {number}."})
            assert changed.status_code == 200
            await second.says(conversation, "hello again")
            assert second.model.calls[-1][0].text.startswith(f"You are number {number}.")


async def test_a_changed_handle_is_known_in_another_process(database_url: str) -> None:
    async with open_world(database_url) as first, open_world(database_url) as second:
        await make(first)
        group = await begin(second, "chef", kind="group")
        author = {"id": "ben", "name": "Ben"}
        assert (await second.post(group, "@chef hello", author=author)).status_code == 200
        await first.http.patch("/api/agents/chef", json={"handles": ["cook"]})

        async def is_known() -> bool:
            return (await second.post(group, "@cook hello", author=author)).status_code == 200

        await until(is_known)


async def test_no_turn_mixes_two_versions_while_an_agent_is_edited(world: World) -> None:
    await make(world)

    async def talk() -> None:
        conversation = await begin(world, "chef")
        for turn in range(TURNS):
            await world.says(conversation, f"hello {turn}")

    async def edit() -> None:
        for number in range(1, EDITS + 1):
            changes = {"name": f"Chef {number}", "persona": f"You are number {number}."}
            response = await world.http.patch("/api/agents/chef", json=changes)
            assert response.status_code == 200, response.text

    await asyncio.gather(edit(), *(talk() for _ in range(CLIENTS)))
    replies = await world.sql(
        "SELECT author_name, metadata -> 'agent' ->> 'version' FROM messages WHERE role = 'assistant'"
    )
    assert len(replies) == CLIENTS * TURNS
    assert all(name == f"Chef {int(version) - 1}" for name, version in replies)
    names = sorted(name.removeprefix("Chef ") for name, _ in replies)
    prompted = sorted(call[0].text.removeprefix("You are number ").partition(".")[0] for call in world.model.calls)
    assert prompted == names


async def test_each_agent_calls_its_own_model_with_its_own_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-servers-own-key")
    monkeypatch.setenv("CHEF_KEY", "chefs-key")
    async with scripted_model() as chefs, scripted_model() as poets:
        await make(world, model="openai:mock", model_options={"base_url": chefs.url, "key_variable": "CHEF_KEY"})
        await make(world, id="poet", handles=[], model="openai:mock", model_options={"base_url": poets.url})
        conversations = {agent: await begin(world, agent) for agent in ("chef", "poet", "companion")}
        await asyncio.gather(*(world.says(one, f"hello {agent}") for agent, one in conversations.items()))
        assert [(call.text, call.caller) for call in chefs.calls] == [("hello chef", "chefs-key")]
        assert [call.text for call in poets.calls] == ["hello poet"]
        assert "the-servers-own-key" not in poets.calls[0].caller
        assert [call[-1].text for call in world.model.calls] == ["hello companion"]


async def test_a_model_that_is_down_trips_only_its_own_conversations(world: World) -> None:
    async with scripted_model() as broken, scripted_model() as works:
        broken.fails = True
        await make(world, model="openai:mock", model_options={"base_url": broken.url})
        await make(world, id="poet", handles=[], model="openai:mock", model_options={"base_url": works.url})
        failing, fine = await begin(world, "chef"), await begin(world, "poet")
        await _fail_until_open(world, failing, broken)
        count = len(broken.calls)
        assert (await world.says(failing, "once more"))["fallbackUsed"] is True
        assert len(broken.calls) == count  # its breaker is open
        assert (await world.says(fine, "hello"))["content"] == "re: hello"


async def _fail_until_open(world: World, conversation: str, model: ScriptedModel) -> None:
    for number in range(5):
        before = len(model.calls)
        assert (await world.says(conversation, f"hello {number}"))["fallbackUsed"] is True
        assert len(model.calls) > before


async def test_the_fallback_model_answers_when_the_first_one_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_model() as broken, scripted_model() as works:
        broken.fails = True
        monkeypatch.setenv("OPENAI_BASE_URL", works.url)
        options = {"base_url": broken.url}
        await make(world, model="openai:mock", model_options=options, fallback_model="openai:mock")
        conversation = await begin(world, "chef")
        for number in range(7):  # more than would open the breaker
            answered = await world.says(conversation, f"hello {number}")
            assert (answered["content"], answered["fallbackUsed"]) == (f"re: hello {number}", False)
        assert len(works.calls) == 7
        assert len(broken.calls) == 3  # one turn with its retries; then the fallback model is asked first for a while
