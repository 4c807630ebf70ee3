"""Test memories of a turn, stored by rules and by the model, and where they are recalled (MEM)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from rapport.agents.profiles import COMPANION
from rapport.agents.tools.toolbox import MAX_TOOL_ROUNDS
from rapport.domain.follow_up import PROMPTS
from rapport.domain.memory import CAPACITY, MemoryCandidate
from rapport.domain.note import Vector
from rapport.memory.recall import HEADING, Recall
from tests.e2e.harness import Client, Home, Sent, make_home
from tests.e2e.scripted import Decision, ScriptedModel, ToolCall, Uses, chat_model, remembers, scripted_model
from tests.support.world import World, open_world, until

PEANUTS = "I'm allergic to peanuts."
FACT = "The user is allergic to peanuts."


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    """With a model that can call tools, behind real HTTP."""
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


@pytest.fixture
async def plain(database_url: str) -> AsyncGenerator[World]:
    """A world with a model that can't call tools: rules extract memories."""
    async with open_world(database_url) as opened:
        yield opened


@pytest.fixture
def brief_lull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pause before a reflection to nothing."""
    for place in ("rapport.turns.reflect.PAUSE_SECONDS", "rapport.runtime.post_turn_jobs.PAUSE_SECONDS"):
        monkeypatch.setattr(place, 0.0)


async def remembered(world: World, agent: str = "companion") -> list[dict[str, Any]]:
    response = await world.http.get("/api/memories", params={"agent": agent, "limit": 500})
    assert response.status_code == 200, response.text
    return response.json()["memories"]


async def facts(world: World) -> list[str]:
    return [one["content"] for one in reversed(await remembered(world))]


async def thought(world: World) -> None:
    """Wait until no reflection runs."""
    await world.drain()
    await until(lambda: not any(task.get_name().startswith(("turn ", "reflection ")) for task in asyncio.all_tasks()))


async def streamed(world: World, conversation: str, text: str) -> tuple[str, dict[str, Any]]:
    """What a client that listens is given: the tokens, and the finished reply."""
    tokens = ""
    final: dict[str, Any] = {}
    async with world.http.stream(
        "POST",
        f"/chat/conversations/{conversation}/messages",
        json={"content": text},
        headers={"Accept": "text/event-stream"},
    ) as response:
        assert response.status_code == 200
        name = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                tokens += data["token"] if name == "token" else ""
                final = data if name == "final" else final
    return tokens, final


async def said(world: World, conversation: str, text: str, *, listening: bool) -> dict[str, Any]:
    return (await streamed(world, conversation, text))[1] if listening else await world.says(conversation, text)


listening_or_not = pytest.mark.parametrize("listening", [False, True], ids=["plain", "streamed"])


# ---- how it gets in


async def test_what_somebody_says_becomes_a_memory_that_knows_its_message(plain: World) -> None:
    here = await plain.conversation()
    await plain.says(here, "Good morning! " + PEANUTS)
    [memory] = await remembered(plain)
    [question, _] = await plain.history(here)
    assert (memory["content"], memory["origin"]) == (FACT, "extracted")
    assert (memory["conversation_id"], memory["message_id"]) == (here, question["id"])


@listening_or_not
async def test_a_model_with_tools_decides_what_is_remembered(
    world: World, model: ScriptedModel, *, listening: bool
) -> None:
    here = await world.conversation()
    model.answers += [remembers("The user lives in Lisbon.", key="home"), "Lisbon is lovely."]
    reply = await said(world, here, "I live in Lisbon. " + PEANUTS, listening=listening)
    assert reply["content"] == "Lisbon is lovely."
    [memory] = await remembered(world)  # the rules, which would have found another one, are silent
    [question, _] = await world.history(here)
    assert (memory["content"], memory["key"], memory["origin"]) == ("The user lives in Lisbon.", "home", "agent")
    assert (memory["conversation_id"], memory["message_id"]) == (here, question["id"])
    assert [call.tools for call in model.calls] == [["upsert_memory", "follow_up", "set_reminder"]] * 2
    assert model.calls[1].window[-1] == ("tool", "Saved.")


async def test_a_key_has_one_value_and_is_never_its_own_duplicate(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    for place in ("Lisbon", "Porto", "Porto"):
        model.answers += [remembers(f"The user lives in {place}.", key="home"), "Noted."]
        await world.says(here, f"I live in {place} now.")
    assert await facts(world) == ["The user lives in Porto."]


async def test_words_beside_a_tool_call_are_the_answer_and_no_further_call_is_made(
    world: World, model: ScriptedModel
) -> None:
    model.answers += [Uses(remembers(FACT).calls, "It's 42."), "This is never asked for."]
    tokens, final = await streamed(world, await world.conversation(), "What is six times seven? " + PEANUTS)
    assert final["content"] == tokens == "It's 42."
    assert final["fallbackUsed"] is False
    assert await facts(world) == [FACT]
    assert len(model.calls) == 1


async def test_until_the_model_has_called_a_tool_the_rules_extract_facts(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await world.says(here, PEANUTS)
    assert [(one["content"], one["origin"]) for one in await remembered(world)] == [(FACT, "extracted")]
    model.answers.append(Uses(remembers("The user lives in Lisbon.").calls, "Lisbon is lovely."))
    await world.says(here, "I live in Lisbon. My name is Ana.")
    await world.says(here, "I have a dog called Rex.")  # now it is the model's to save it
    assert await facts(world) == [FACT, "The user lives in Lisbon."]


async def test_of_a_model_that_writes_its_calls_as_text_the_rules_facts_count(
    world: World, model: ScriptedModel
) -> None:
    written = '{"name": "upsert_memory", "arguments": {"content": "Marta lives in Graz."}}'
    model.answers.append(f"Hi Marta!\n```json\n{written}\n```")
    reply = await world.says(await world.conversation(), "Hi, I'm Marta and I live in Graz.")
    assert reply["content"] == "Hi Marta!"
    assert await facts(world) == ["The user's name is Marta.", "The user lives in Graz."]


NOT_ARGUMENTS = [
    '{"content": ',
    "[]",
    "{}",
    "",
    '{"content": 5}',
    '{"content": " "}',
    '{"content": "The user is allergic to peanuts.", "key": 7}',
    '"peanuts"',
    "7",
]


@listening_or_not
async def test_malformed_arguments_are_told_to_the_model_and_harm_nobody(
    world: World, model: ScriptedModel, *, listening: bool
) -> None:
    for arguments in NOT_ARGUMENTS:
        model.answers += [Uses([ToolCall("upsert_memory", arguments)]), "Anyway, hello."]
        reply = await said(world, await world.conversation(), PEANUTS, listening=listening)
        assert (reply["content"], reply["fallbackUsed"]) == ("Anyway, hello.", False)
        role, told = model.calls[-1].window[-1]
        assert role == "tool"
        assert told.startswith("Not ")
    assert await facts(world) == []


@listening_or_not
async def test_an_unknown_tool_is_not_used(world: World, model: ScriptedModel, *, listening: bool) -> None:
    model.answers += [Uses([ToolCall("delete_everything", "{}"), *remembers(FACT).calls]), "Done."]
    reply = await said(world, await world.conversation(), PEANUTS, listening=listening)
    assert reply["content"] == "Done."
    assert model.calls[-1].window[-2:] == [("tool", "There is no such tool."), ("tool", "Saved.")]
    assert await facts(world) == [FACT]


@listening_or_not
async def test_a_model_that_calls_tools_without_end_has_to_answer(
    world: World, model: ScriptedModel, *, listening: bool
) -> None:
    model.answers += [remembers(FACT)] * MAX_TOOL_ROUNDS + ["I could go on for ever."]
    reply = await said(world, await world.conversation(), PEANUTS, listening=listening)
    assert reply["content"] == "I could go on for ever."
    assert [bool(call.tools) for call in model.calls] == [True] * MAX_TOOL_ROUNDS + [False]
    assert await facts(world) == [FACT]


async def test_a_model_that_never_stops_calling_tools_is_cut_off(world: World, model: ScriptedModel) -> None:
    model.answers += [remembers(FACT)] * (MAX_TOOL_ROUNDS + 4)
    reply = await world.says(await world.conversation(), PEANUTS)
    assert len(model.calls) <= MAX_TOOL_ROUNDS + 3
    assert reply["content"].startswith("Temporary issue generating response.")
    assert reply["fallbackUsed"] is True


@listening_or_not
async def test_a_server_whose_model_knows_no_tools_answers_and_the_rules_remember(
    world: World, model: ScriptedModel, *, listening: bool
) -> None:
    model.refuses_tools = 400
    here = await world.conversation()
    reply = await said(world, here, PEANUTS, listening=listening)
    assert (reply["content"], reply["fallbackUsed"]) == (f"re: {PEANUTS}", False)
    await said(world, here, "I live in Lisbon.", listening=listening)
    assert [bool(call.tools) for call in model.calls] == [True, False, False]
    assert await facts(world) == [FACT, "The user lives in Lisbon."]
    assert {one["origin"] for one in await remembered(world)} == {"extracted"}


async def test_a_full_memory_store_fails_no_turn(world: World, model: ScriptedModel) -> None:
    await world.sql(
        "INSERT INTO memories (owner_id, agent_id, id, content, origin, embedder, embedding)"
        " SELECT 'local', 'companion', 'm' || n, 'Fact number ' || n, 'user', 'another', '[1,0]'::halfvec"
        " FROM generate_series(1, %s) n",
        CAPACITY,
    )
    model.answers += [remembers(FACT), "I'd note it if I could."]
    with capture_logs() as logs:
        reply = await world.says(await world.conversation(), PEANUTS)
    assert reply["content"] == "I'd note it if I could."
    assert await world.sql("SELECT count(*) FROM memories") == [(CAPACITY,)]
    assert [line["log_level"] for line in logs if line["event"] == "memory.full"] == ["warning"]


async def test_what_can_not_be_stored_is_left_out_and_the_rest_is_kept(world: World, model: ScriptedModel) -> None:
    calls = [*remembers("x" * 9_000).calls, *remembers("a\u0000b is a fact").calls, *remembers(FACT).calls]
    model.answers += [Uses(calls), "Noted."]
    assert (await world.says(await world.conversation(), PEANUTS))["content"] == "Noted."
    kept = await facts(world)
    assert kept[-1] == FACT
    assert not any("\u0000" in one or len(one) > 8_192 for one in kept)


@pytest.mark.e2e
@pytest.mark.parametrize("place", ["turn.answered", "turn.committed"])
async def test_a_memory_and_its_reply_are_stored_together_or_not_at_all(
    model: ScriptedModel, new_data: Path, place: str
) -> None:
    home = make_home(model, new_data)
    try:
        async with aiohttp.ClientSession() as session:
            await _dies_and_mends(home, model, session, place)
    finally:
        await asyncio.to_thread(home.clean)


async def _dies_and_mends(home: Home, model: ScriptedModel, session: aiohttp.ClientSession, place: str) -> None:
    server = await home.serve(RAPPORT_FAILPOINT=place)
    client = Client(session, lambda: server.url)
    here = await client.create()
    sent = Sent(here, "ada", 1, PEANUTS)
    model.answers += [remembers(FACT), "Noted."]
    with pytest.raises(aiohttp.ClientError):
        async with session.post(f"{server.url}/chat/conversations/{here}/messages", json=sent.body):
            pass
    assert await server.exit_code() == -signal.SIGKILL
    code, listed, _ = await home.command("memory", "list")
    _, told, _ = await home.command("export", here)
    assert code == 0
    assert ("peanuts" in listed, len(told.splitlines())) == ((True, 2) if place == "turn.committed" else (False, 1))

    model.answers.clear()
    model.answers += [remembers(FACT), "Noted."]
    server = await home.serve()
    reply = await client.say(sent)
    assert reply["content"] == "Noted."
    async with session.get(f"{server.url}/api/memories") as response:
        [memory] = (await response.json())["memories"]
    assert (memory["content"], memory["message_id"]) == (FACT, reply["reply_to_id"])
    assert len(await client.history(here)) == 2
    assert server.errors() == []


# ---- what never gets in


async def test_nothing_is_remembered_of_what_others_say(plain: World) -> None:
    await plain.http.post("/api/notes", json={"id": "diary", "text": "I live in Oslo. I'm allergic to nuts."})
    here = await plain.conversation()
    plain.model.will_say("My name is Bob and I live in Rome.")
    await plain.says(here, "Where do you live? What does the diary say about allergies?")
    plain.model.will_say("I have a dog called Rex. What about you?")
    assert (await plain.silence(here, reason="I live in Madrid.")).state == "delivered"
    await plain.says(here, '> I live in Paris\n\nBob says he lives in Bonn. She said: "I am allergic to nuts."')
    group = await plain.conversation(kind="group")
    await plain.post(group, "@bot " + PEANUTS, author={"id": "u1", "name": "Eve"})
    librarian = await plain.conversation(agent_id="librarian")
    await plain.says(librarian, PEANUTS)
    await plain.drain()
    assert await plain.sql("SELECT content FROM memories") == []


@pytest.mark.parametrize("settings", [{"kind": "group"}, {"agent_id": "librarian"}], ids=["group", "librarian"])
async def test_nobody_but_a_companion_in_a_direct_chat_may_remember(
    world: World, model: ScriptedModel, settings: dict[str, Any]
) -> None:
    """Neither is it offered, nor is anything kept when it is used all the same."""
    await world.http.post(
        "/api/notes", json={"id": "nuts", "text": "Peanuts are not nuts; allergies to them are common."}
    )
    here = await world.conversation(**settings)
    model.answers += [Uses(remembers(FACT).calls, "Peanuts are common [source: nuts].")]
    await world.says(here, "@bot are allergies to peanuts common? " + PEANUTS)
    assert not any("upsert_memory" in call.tools for call in model.calls)
    assert await world.sql("SELECT 1 FROM memories") == []


async def test_a_follow_up_remembers_nothing(world: World, model: ScriptedModel) -> None:
    here = await world.conversation()
    await world.says(here, "hello there")
    model.answers += [Uses(remembers(FACT).calls, "How are the peanuts?")]
    assert (await world.silence(here)).state == "delivered"
    assert model.calls[-1].tools == []
    assert await facts(world) == []


# ---- where it turns up


async def test_it_is_recalled_in_a_later_conversation(world: World, model: ScriptedModel) -> None:
    model.answers += [remembers(FACT), "Noted."]
    await world.says(await world.conversation(), PEANUTS)
    later = await world.conversation()
    await world.says(later, "Can I eat this peanut bar?")
    assert f"\n{HEADING}\n- {FACT}" in model.calls[-1].note
    assert FACT not in model.calls[-1].system
    assert model.calls[-1].window == [("user", "Can I eat this peanut bar?")]
    # What it rested on is kept with the reply, by id, and isn't shown.
    [memory] = await remembered(world)
    [[kept]] = await world.sql(
        "SELECT metadata -> 'memories' FROM messages WHERE conversation_id = %s AND role = 'assistant'", later
    )
    assert [one["id"] for one in kept] == [memory["id"]]


async def test_it_is_recalled_when_the_agent_speaks_unasked(world: World, model: ScriptedModel) -> None:
    model.answers += [remembers(FACT), "Noted."]
    here = await world.conversation()
    await world.says(here, PEANUTS)
    model.answers += ["Did you find something without peanuts?"]
    assert (await world.silence(here, "task_incomplete")).state == "delivered"
    assert FACT in model.calls[-1].told


async def test_neither_a_group_nor_the_librarian_hears_of_it(world: World, model: ScriptedModel) -> None:
    await world.http.post(
        "/api/notes", json={"id": "nuts", "text": "Peanuts are not nuts; allergies to them are common."}
    )
    model.answers += [remembers(FACT), "Noted."]
    await world.says(await world.conversation(), PEANUTS)
    asked = "@bot are allergies to peanuts common?"
    for settings in ({"kind": "group"}, {"agent_id": "librarian"}, {"kind": "group", "agent_id": "librarian"}):
        await world.says(await world.conversation(**settings), asked)
        assert HEADING not in model.calls[-1].told
        assert FACT not in model.calls[-1].told
    group = await world.conversation(kind="group")
    await world.sql("UPDATE conversations SET autonomy_enabled = true WHERE id = %s", group)
    await world.says(group, asked)
    model.answers += ["Anybody hungry?"]
    assert (await world.silence(group)).state == "delivered"
    assert FACT not in model.calls[-1].told


async def test_another_owner_s_memories_never_appear(world: World, model: ScriptedModel) -> None:
    await world.app.memory.create(
        "bob", "companion", MemoryCandidate("The user is allergic to peanuts and lives with Zebulon.")
    )
    await world.app.memory.create("local", "librarian", MemoryCandidate("The user loves peanuts and Quentin."))
    await world.app.memory.create("local", "companion", MemoryCandidate("The user eats peanuts every day."))
    await world.says(await world.conversation(), "Peanuts?")
    assert "every day" in model.calls[-1].told
    assert "Zebulon" not in model.calls[-1].told
    assert "Quentin" not in model.calls[-1].told
    found = (await world.http.get("/api/memories/search", params={"q": "peanuts"})).json()["memories"]
    assert [one["content"] for one in found] == ["The user eats peanuts every day."]


class Hanging:
    """An embedder that never answers."""

    name = "minilm-l6-v2-int8"

    async def embed_question(self, question: str) -> Vector:
        await asyncio.Event().wait()
        raise AssertionError(question)


async def test_a_memory_that_takes_too_long_fails_no_turn(world: World, model: ScriptedModel) -> None:
    await world.app.memory.create("local", "companion", MemoryCandidate(FACT))
    tools = world.worker.running_turns.deps
    slow = replace(tools, recall=Recall(Hanging(), world.app.memory, seconds=0.05))
    world.worker.running_turns.deps = slow
    here = await world.conversation()
    with capture_logs() as logs:
        reply = await world.says(here, "Can I eat peanuts?")
        model.answers += ["Still hungry?"]
        became = await world.silence(here)
    assert reply["content"] == "re: Can I eat peanuts?"
    assert became.state == "delivered"
    assert not any(FACT in call.told for call in model.calls)
    assert [line["log_level"] for line in logs if line["event"] == "memory.unavailable"] == ["warning"] * 2


# ---- thinking back at a pause


def decided(trigger_type: str = "task_incomplete", delay: float = 600, **more: Any) -> dict[str, Any]:
    about = {"matter": "call the landlord", "reason": "You said you would call the landlord."}
    return {"trigger_type": trigger_type, "delay_seconds": delay, **about, **more}


async def waiting(world: World) -> list[tuple[Any, ...]]:
    return await world.sql(
        "SELECT trigger_type, topic, reason, origin, extract(epoch FROM due_at - clock_timestamp())::float8 FROM timers"
        " WHERE state = 'pending'"
    )


@pytest.fixture
async def pausing(database_url: str, model: ScriptedModel, brief_lull: None) -> AsyncGenerator[World]:
    """A world in which a reflection starts at once after a turn."""
    async with open_world(database_url, model=chat_model(model), reflection="always") as opened:
        yield opened


async def test_by_default_a_pause_costs_no_call(world: World, model: ScriptedModel, brief_lull: None) -> None:
    model.answers.append("Which pizza do you like best?")
    await world.says(await world.conversation(), "I like pizza. I have to call the landlord.")
    await thought(world)
    assert (len(model.calls), model.reflections) == (1, [])


async def test_only_an_open_matter_is_reflected_on_if_the_setting_says_so(
    database_url: str, model: ScriptedModel, brief_lull: None
) -> None:
    async with open_world(database_url, model=chat_model(model), reflection="when_open") as world:
        model.answers.append("Enjoy it!")
        await world.says(await world.conversation(), "I like pizza.")
        await thought(world)
        assert (await waiting(world), model.reflections) == ([], [])
        model.answers.append("Which pizza do you like best?")
        model.decisions.append({"follow_up": decided(matter="like pizza", reason=None), "memories": []})
        await world.says(await world.conversation(), "I like pizza.")
        await thought(world)
        assert len(model.reflections) == 1
        assert [row[:2] for row in await waiting(world)] == [("task_incomplete", "like pizza")]
        assert not any("follow_up" in call.tools for call in model.calls)  # the reflection decides about it


async def test_an_agent_has_a_choice_of_its_own_about_reflection(world: World) -> None:
    deps = world.worker.running_turns.deps
    assert deps.get_reflection(COMPANION) == "off"
    assert deps.get_reflection(replace(COMPANION, reflection="always")) == "always"
    assert replace(deps, reflection="when_open").get_reflection(replace(COMPANION, reflection="off")) == "off"


async def test_the_model_sets_a_follow_up_where_the_rules_saw_none(pausing: World, model: ScriptedModel) -> None:
    model.decisions.append({"follow_up": decided(), "memories": []})
    await pausing.says(await pausing.conversation(), "The landlord is on my mind.")
    await thought(pausing)
    [(kind, matter, reason, origin, delay)] = await waiting(pausing)
    assert (kind, matter, origin) == ("task_incomplete", "call the landlord", "planner")
    assert reason == "You said you would call the landlord."
    assert 580 < delay <= 600
    [asked] = model.reflections
    assert asked.tools == ["Reflection"]
    assert asked.window == [
        ("user", "User:\n| The landlord is on my mind.\nAssistant:\n| re: The landlord is on my mind.")
    ]


async def test_a_stopped_server_starts_no_reflection(
    database_url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    lull = 0.5
    monkeypatch.setattr("rapport.runtime.post_turn_jobs.PAUSE_SECONDS", lull)
    async with open_world(database_url, model=chat_model(model), reflection="always") as world:
        await world.says(await world.conversation(), "The landlord is on my mind.")
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(lull, over.set)  # by then a reflection would have started
    await over.wait()
    assert model.reflections == []
    assert not [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("reflection")]


async def test_the_model_replaces_what_the_rules_planned(pausing: World, model: ScriptedModel) -> None:
    model.answers.append("Which pizza do you like best?")
    follow_up = decided("waiting_for_decision", 1200, matter="pizza", reason=None)
    model.decisions.append({"follow_up": follow_up, "memories": []})
    await pausing.says(await pausing.conversation(), "I like pizza.")
    await thought(pausing)
    assert [row[0] for row in await waiting(pausing)] == ["waiting_for_decision"]


async def test_the_model_cancels_what_the_rules_planned(pausing: World, model: ScriptedModel) -> None:
    model.answers.append("Which pizza do you like best?")
    model.hold = asyncio.Event()
    await pausing.says(await pausing.conversation(), "I like pizza.")
    assert [row[0] for row in await waiting(pausing)] == ["question_unanswered"]
    model.hold.set()
    await thought(pausing)
    assert await waiting(pausing) == []


async def test_the_model_leaves_alone_what_a_person_has_set(pausing: World, model: ScriptedModel) -> None:
    here = await pausing.conversation()
    model.hold = asyncio.Event()
    await pausing.says(here, "hello there")
    mine = {"trigger_type": "check_in", "delay_seconds": 3600, "timer_id": "mine"}
    assert (await pausing.http.post(f"/api/threads/{here}/timers", json=mine)).status_code == 201
    model.hold.set()
    await thought(pausing)
    assert [(row[0], row[3]) for row in await waiting(pausing)] == [("check_in", "user")]


async def test_memories_of_a_pause_know_the_message_they_come_from(pausing: World, model: ScriptedModel) -> None:
    here = await pausing.conversation()
    model.hold = asyncio.Event()
    await pausing.says(here, "I have a sister in Porto, her name is Rita.")
    await until(lambda: model.reflections)
    model.decisions.append(
        {"follow_up": None, "memories": ["The user's sister Rita lives in Porto.", "Xyzzy plugh quux frobnicates."]}
    )
    model.hold.set()
    await thought(pausing)
    [memory] = await remembered(pausing)  # of the other one nobody has said a word
    question = (await pausing.history(here))[0]
    assert (memory["content"], memory["origin"]) == ("The user's sister Rita lives in Porto.", "extracted")
    assert (memory["conversation_id"], memory["message_id"]) == (here, question["id"])


async def test_only_what_is_new_is_kept_of_a_later_pause(pausing: World, model: ScriptedModel) -> None:
    here = await pausing.conversation()
    model.decisions.append({"follow_up": None, "memories": [FACT]})
    await pausing.says(here, PEANUTS)
    await thought(pausing)
    [first] = await remembered(pausing)
    assert (await pausing.http.delete(f"/api/memories/{first['id']}")).status_code == 204
    model.answers.append("Peanuts again?")
    assert (await pausing.silence(here)).state == "delivered"
    model.decisions.append({"follow_up": None, "memories": [FACT]})
    await thought(pausing)
    assert await facts(pausing) == []  # what its owner has erased does not come back by itself


async def test_a_decision_is_dropped_when_somebody_speaks_meanwhile(pausing: World, model: ScriptedModel) -> None:
    here = await pausing.conversation()
    model.hold = asyncio.Event()
    model.decisions.append({"follow_up": decided(), "memories": ["The user thinks about the landlord."]})
    await pausing.says(here, "The landlord is on my mind.")
    await until(lambda: model.reflections)
    await pausing.says(here, "thanks, that's all, bye!")
    await until(lambda: model.reflections[0].broken)  # the call was given up
    assert await waiting(pausing) == []
    assert await facts(pausing) == []


async def test_a_decision_is_dropped_when_somebody_speaks_to_another_server(
    pausing: World, model: ScriptedModel, database_url: str
) -> None:
    async with open_world(database_url) as other:
        here = await pausing.conversation()
        model.hold = asyncio.Event()
        model.decisions.append({"follow_up": decided(), "memories": ["The user thinks about the landlord."]})
        await pausing.says(here, "The landlord is on my mind.")
        await until(lambda: model.reflections)
        await other.says(here, "thanks, that's all, bye!")
        model.hold.set()
        await thought(pausing)
        assert await waiting(pausing) == []
        assert await facts(pausing) == []


BROKEN: list[Decision] = [
    '{"follow_up": ',
    '{"follow_up": {"trigger_type": 5}}',
    '{"memories": "all of it"}',
    400,
    500,
]


@pytest.mark.parametrize("answer", BROKEN, ids=str)
async def test_the_rules_plan_stands_when_the_model_does_not_decide(
    pausing: World, model: ScriptedModel, answer: Decision
) -> None:
    model.answers.append("Which pizza do you like best?")
    model.decisions.append(answer)
    with capture_logs() as logs:
        await pausing.says(await pausing.conversation(), "I like zucchini pizza.")
        await thought(pausing)
    assert len(model.reflections) == 1
    assert [row[0] for row in await waiting(pausing)] == ["question_unanswered"]
    assert [line["log_level"] for line in logs if line["event"] == "reflection.failed"] == ["info"]
    assert not [line for line in logs if line["log_level"] in {"error", "critical"}]
    assert not any("zucchini" in str(line) for line in logs)


async def test_a_server_without_tools_is_not_asked_at_pauses(pausing: World, model: ScriptedModel) -> None:
    model.refuses_tools = 400
    model.answers.append("Which pizza do you like best?")
    await pausing.says(await pausing.conversation(), "I like pizza.")
    await thought(pausing)
    assert model.reflections == []
    assert [row[0] for row in await waiting(pausing)] == ["question_unanswered"]


async def test_an_unknown_trigger_type_is_a_check_in_with_a_warning(pausing: World, model: ScriptedModel) -> None:
    model.decisions.append({"follow_up": decided("nag_them"), "memories": []})
    with capture_logs() as logs:
        await pausing.says(await pausing.conversation(), "The landlord is on my mind.")
        await thought(pausing)
    assert [row[0] for row in await waiting(pausing)] == ["check_in"]
    warnings = [line for line in logs if line["event"] == "autonomy.unknown_trigger"]
    assert [(line["log_level"], line["trigger_type"]) for line in warnings] == [("warning", "nag_them")]


@pytest.mark.parametrize(("asked", "given"), [(-5, 30), (1, 30), (10**9, 3600)])
async def test_a_delay_is_brought_within_the_agent_s_limits(
    pausing: World, model: ScriptedModel, asked: float, given: float
) -> None:
    model.decisions.append({"follow_up": decided(delay=asked), "memories": []})
    await pausing.says(await pausing.conversation(), "The landlord is on my mind.")
    await thought(pausing)
    [(*_, delay)] = await waiting(pausing)
    assert given - 20 < delay <= given


async def test_there_is_no_reflection_where_neither_memory_nor_follow_ups_are_allowed(
    database_url: str, model: ScriptedModel, brief_lull: None
) -> None:
    async with open_world(database_url, model=chat_model(model), reflection="always") as world:
        await world.says(await world.conversation(agent_id="librarian"), "hello there")
        await world.says(await world.conversation(kind="group"), "@bot hello there")
        await thought(world)
    assert model.reflections == []


async def test_a_group_that_wants_follow_ups_gets_them_and_no_memories(pausing: World, model: ScriptedModel) -> None:
    group = await pausing.conversation(kind="group")
    await pausing.sql("UPDATE conversations SET autonomy_enabled = true WHERE id = %s", group)
    model.decisions.append({"follow_up": decided(matter="allergic to peanuts", reason=None), "memories": [FACT]})
    await pausing.says(group, "@bot " + PEANUTS)
    await thought(pausing)
    assert len(await waiting(pausing)) == 1
    assert await facts(pausing) == []


async def test_the_model_reads_no_trigger_at_a_pause(pausing: World, model: ScriptedModel) -> None:
    here = await pausing.conversation()
    await pausing.says(here, "I have to call the landlord.")
    await thought(pausing)
    model.answers.append("How did it go with the landlord?")
    assert (await pausing.silence(here, "task_incomplete", reason="zebra")).state == "delivered"
    await until(lambda: any("(unasked)" in asked.text for asked in model.reflections))
    asked = model.reflections[-1]
    assert "Assistant (unasked):\n| How did it go with the landlord?" in asked.text
    assert not any(prompt in asked.text for prompt in PROMPTS.values())
    assert "zebra" not in asked.text + asked.system


async def test_the_same_topic_is_not_brought_up_twice(pausing: World, model: ScriptedModel) -> None:
    """The rules prevent it, whatever the model proposes."""
    here = await pausing.conversation()
    await pausing.says(here, "I have to call the landlord.")
    await thought(pausing)
    model.answers.append("How did it go with the landlord?")
    assert (await pausing.silence(here, "task_incomplete", topic="call the landlord")).state == "delivered"
    model.decisions.append({"follow_up": decided(), "memories": []})
    await thought(pausing)
    assert await waiting(pausing) == []
