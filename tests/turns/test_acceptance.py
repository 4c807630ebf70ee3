"""Test the acceptance criteria of the specification by name: over HTTP, with a scripted model behind real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from tests.e2e.scripted import ScriptedModel, chat_model, scripted_model
from tests.support.world import World, open_world, until

GUARD = "I don't have sufficiently relevant documents to answer confidently. Please add more context or documents."
FALLBACK = "Temporary issue generating response. Here are the relevant documents summary: "
SUMMARY_PROMPT = (
    "Summarize conversation so far highlighting user goals, resolved questions, outstanding issues, and relevant source"
    " ids. Keep <= 180 tokens."
)

REFUNDS = "Customers may send goods back within 30 days of purchase and get their money back."
PARKING = "Visitors park behind the building. The gate code changes every Monday; reception has it."


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


async def librarian(world: World) -> str:
    made = await world.http.post("/chat/conversations", json={})
    assert made.status_code == 201
    return made.json()["id"]


async def note(world: World, id_: str, text: str) -> None:
    added = await world.http.post("/api/notes", json={"id": id_, "text": text})
    assert added.status_code == 201, added.text


async def test_duplicate_message_injection(world: World, model: ScriptedModel) -> None:
    """The model is given the current message once, and a user who says "yes" twice has said it twice."""
    conversation = (await world.http.post("/chat/conversations", json={"agent": "companion"})).json()["id"]
    for said in ("yes", "yes", "and now?"):
        await world.says(conversation, said)
    told = [text for role, text in model.calls[-1].window if role == "user"]
    assert told == ["yes", "yes", "and now?"]
    assert [text for _, text in model.calls[0].window] == ["yes"]


async def test_citation_hallucination_removed(world: World, model: ScriptedModel) -> None:
    await note(world, "refunds", REFUNDS)
    model.answers.append("Within 30 days [source: refunds], says the boss [source: boss].\nSources: refunds, boss")
    reply = await world.says(await librarian(world), "How long can I return something I bought?")
    assert reply["content"] == (
        "Within 30 days [source: refunds], says the boss. (Removed invalid citation)\n\nSources: refunds"
    )
    assert reply["sources"] == [{"id": "refunds", "text": REFUNDS}]
    assert not reply["guardUsed"]


async def test_guard_on_low_similarity(world: World, model: ScriptedModel, capsys: pytest.CaptureFixture[str]) -> None:
    conversation = await librarian(world)
    for without_notes in (True, False):
        reply = await world.says(conversation, "Which planet has the most moons?")
        assert reply["content"] == GUARD
        assert reply["sources"] == []
        assert reply["guardUsed"] is True
        assert reply["fallbackUsed"] is False
        if without_notes:
            await note(world, "refunds", REFUNDS)
            await note(world, "parking", PARKING)
    assert model.calls == []


async def test_summary_after_threshold(world: World, model: ScriptedModel) -> None:
    conversation = (await world.http.post("/chat/conversations", json={"agent": "companion"})).json()["id"]
    model.summary = "They count. [source: nobody]"
    for number in range(6):
        await world.says(conversation, f"number {number}")
    assert [call for call in model.calls if call.system == SUMMARY_PROMPT] == []

    await world.says(conversation, "number 6")

    async def summed_up() -> bool:
        return any(message["role"] == "system-summary" for message in await world.history(conversation))

    await until(summed_up)
    history = await world.history(conversation)
    summary = next(message for message in history if message["role"] == "system-summary")
    assert "[source:" not in summary["content"]
    assert summary["content"].startswith("They count.")
    # Nothing that was said is gone, and what is covered says by what.
    assert [m["content"] for m in history if m["role"] == "user"] == [f"number {number}" for number in range(7)]
    assert [m["summary_id"] for m in history if m["role"] != "system-summary"] == [summary["id"]] * 4 + [None] * 10

    await world.says(conversation, "number 7")
    window = model.calls[-1].window
    assert len(window) == 1 + 10 + 1
    assert "They count." in window[0][1]
    assert [text for role, text in window if role == "user"][1:] == [f"number {number}" for number in range(2, 8)]


async def test_429_when_exceeded(database_url: str, model: ScriptedModel) -> None:
    async with open_world(database_url, model=chat_model(model), rate_limit=True) as world:
        for _ in range(15):  # four in each: a fifth at this pace would be a flood
            conversation = await world.conversation()
            for number in range(4):
                assert (await world.post(conversation, f"hello {number}")).status_code == 200
        refused = await world.post(await world.conversation(), "one too many")
        assert refused.status_code == 429
        assert 1 <= refused.json()["retryAfter"] <= 300
        assert refused.json()["error"]
        assert int(refused.headers["Retry-After"]) == refused.json()["retryAfter"]


async def test_breaker_fallback_deterministic(database_url: str) -> None:
    """Five failed turns in a row open the breaker: the same words without a model call, until one trial succeeds."""
    async with scripted_model() as model:
        model.fails = True
        async with open_world(database_url, model=chat_model(model)) as world:
            await note(world, "refunds", REFUNDS)
            conversation = await librarian(world)
            question = "How long can I return something I bought?"
            replies = [await world.says(conversation, question) for _ in range(5)]
            asked = len(model.calls)
            replies += [await world.says(conversation, question) for _ in range(2)]
            assert len(model.calls) == asked
            assert {reply["content"] for reply in replies} == {
                f"{FALLBACK}{REFUNDS} [source: refunds]\n\nSources: refunds"
            }
            assert all(reply["fallbackUsed"] for reply in replies)

            model.fails = False
            await world.sql("UPDATE conversations SET breaker_open_until = clock_timestamp()")
            assert not (await world.says(conversation, question))["fallbackUsed"]
            assert not (await world.says(conversation, question))["fallbackUsed"]


async def test_no_error_noise_in_normal_operation(
    world: World, model: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    await note(world, "refunds", REFUNDS)
    conversation = await librarian(world)
    model.answers.append("Within 30 days [source: refunds].")
    await world.says(conversation, "How long can I return something I bought?")
    await world.says(conversation, "Which planet has the most moons?")
    companion = await world.conversation()
    for number in range(8):
        await world.says(companion, f"number {number}")
    await world.drain()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line for line in lines if line.get("level") in {"error", "critical", "warning"}] == []
