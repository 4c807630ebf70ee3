"""Test that a topic is brought up once until the person writes about it again, with pauses between follow-ups (AUTO-1, AUTO-10, ADR 35)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rapport.builtin import BuiltinChatModel
from tests.e2e.scripted import ScriptedModel, chat_model, scripted_model
from tests.support.cases import every_case
from tests.support.passing_time import keep_silent, pass_time, settle
from tests.support.world import World, open_world

FLATS = (
    "I cannot decide between the flat in Porto and the one in Lisbon, I have to tell the landlord by Friday"
)  # fmt: skip
WORDS = [
    ("waiting_for_decision", "flat in Porto or Lisbon"),
    ("task_incomplete", "tell the landlord"),
    ("check_in", "Friday"),
    ("question_unanswered", "the one in Lisbon"),
    ("waiting_for_decision", "landlord by Friday"),
    ("task_incomplete", "decide about the flat"),
    ("check_in", "Porto"),
]
SAYINGS = ["Any thoughts on the two places?", "How are things?", "Is there any news?", "Still there?", "What now?"]
MINUTE, HOUR = 60.0, 3_600.0


@pytest.fixture
async def builtin(database_url: str) -> AsyncGenerator[World]:
    async with open_world(database_url, model=BuiltinChatModel()) as opened:
        yield opened


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def eager(database_url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    """A world with a model that calls tools, in which a reflection starts at once after a turn."""
    for place in ("rapport.turns.reflect.PAUSE_SECONDS", "rapport.runtime.post_turn_jobs.PAUSE_SECONDS"):
        monkeypatch.setattr(place, 0.0)
    async with open_world(database_url, model=chat_model(model), reflection="always") as opened:
        yield opened


def wish(trigger_type: str, matter: str, delay: float = 5 * MINUTE) -> dict[str, Any]:
    about = {"trigger_type": trigger_type, "delay_seconds": delay, "matter": matter, "reason": None}
    return {"follow_up": about, "memories": []}


def plan_eagerly(model: ScriptedModel, words: list[tuple[str, str]]) -> None:
    model.decisions.clear()
    model.decisions.extend(wish(*each) for each in words)


async def gates(world: World) -> list[str | None]:
    rows = await world.sql("SELECT gate FROM timers WHERE state = 'suppressed' ORDER BY fired_at")
    return [row[0] for row in rows]


async def test_the_built_in_model_brings_up_a_topic_once(builtin: World) -> None:
    here = await builtin.conversation()
    await builtin.says(here, FLATS)
    unasked = await keep_silent(builtin, here, hours=50)
    assert len(unasked) == 1, unasked


async def test_a_model_that_plans_eagerly_in_other_words_brings_up_a_topic_once(
    eager: World, model: ScriptedModel
) -> None:
    here = await eager.conversation()
    model.answers += ["That is a hard choice. Which one is nearer to your work?", *SAYINGS]
    plan_eagerly(model, WORDS)
    await eager.says(here, FLATS)
    unasked = await keep_silent(eager, here, hours=50)
    assert len(unasked) == 1, unasked


@every_case("first", range(len(WORDS)))
async def test_a_topic_is_brought_up_once_whatever_its_first_trigger_type(
    eager: World, model: ScriptedModel, first: int
) -> None:
    here = await eager.conversation()
    model.answers += ["I see.", *SAYINGS]
    plan_eagerly(model, WORDS[first:] + WORDS[:first])
    await eager.says(here, FLATS)
    unasked = await keep_silent(eager, here, hours=26)
    assert len(unasked) == 1


async def test_a_message_about_something_else_does_not_reopen_a_topic(eager: World, model: ScriptedModel) -> None:
    here = await eager.conversation()
    model.answers += ["A hard choice.", "Any thoughts on the two places?"]
    plan_eagerly(model, WORDS)
    await eager.says(here, FLATS)
    assert len(await keep_silent(eager, here, hours=26)) == 1
    model.answers += ["Yes, it is.", *SAYINGS]
    plan_eagerly(model, WORDS)
    await eager.says(here, "The weather is lovely today.")
    assert await keep_silent(eager, here, hours=26) == []


async def test_a_message_about_a_topic_reopens_it(eager: World, model: ScriptedModel) -> None:
    here = await eager.conversation()
    model.answers += ["A hard choice.", "Any thoughts on the two places?"]
    plan_eagerly(model, WORDS)
    await eager.says(here, FLATS)
    assert len(await keep_silent(eager, here, hours=26)) == 1
    model.answers += ["I see.", *SAYINGS]
    plan_eagerly(model, WORDS)
    await eager.says(here, "I'm still torn between Porto and Lisbon")
    assert len(await keep_silent(eager, here, hours=26)) == 1


@pytest.mark.parametrize("is_builtin", [True, False], ids=["built in", "eager"])
async def test_different_topics_are_an_hour_apart_and_at_most_two_a_day(
    database_url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, *, is_builtin: bool
) -> None:
    for place in ("rapport.turns.reflect.PAUSE_SECONDS", "rapport.runtime.post_turn_jobs.PAUSE_SECONDS"):
        monkeypatch.setattr(place, 0.0)
    chosen = BuiltinChatModel() if is_builtin else chat_model(model)
    async with open_world(database_url, model=chosen, reflection="always") as world:
        here = await world.conversation()
        model.replies = dict.fromkeys(DIFFERENT, "I see.")
        for text in DIFFERENT:
            await world.says(here, text)
            await settle(world)
        model.answers += ["Did you get your passport renewed?", "And which bike is it?", "How was the dentist?"]
        wishes = [
            ("task_incomplete", "renew the passport"),
            ("waiting_for_decision", "red or blue bike"),
            ("check_in", "dentist about the tooth"),
        ]
        plan_eagerly(model, wishes * 3)
        await world.says(here, "That's it for the moment.")
        unasked = await keep_silent(world, here, hours=20)
        assert len(unasked) == 2 if not is_builtin else len(unasked) <= 2, unasked
        for one, next_one in itertools.pairwise(unasked):
            assert next_one.after - one.after >= HOUR - 1
            assert next_one.text != one.text


DIFFERENT = (
    "I have to renew my passport.",
    "I can't decide between the red bike and the blue bike.",
    "I need to call the dentist about my tooth.",
)


async def test_it_holds_after_a_restart_and_on_another_replica(
    database_url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("rapport.turns.reflect.PAUSE_SECONDS", "rapport.runtime.post_turn_jobs.PAUSE_SECONDS"):
        monkeypatch.setattr(place, 0.0)
    model.answers += ["A hard choice.", "Any thoughts on the two places?"]
    async with open_world(database_url, model=chat_model(model), reflection="always") as world:
        here = await world.conversation()
        plan_eagerly(model, WORDS[:1])
        await world.says(here, FLATS)
        assert len(await keep_silent(world, here, hours=2)) == 1
    async with open_world(database_url, model=chat_model(model), reflection="always") as world:
        model.answers += ["Yes, it is.", *SAYINGS]
        plan_eagerly(model, WORDS[1:])
        await world.says(here, "The weather is lovely today.")
        assert await keep_silent(world, here, hours=26) == []


async def test_an_inferred_one_that_is_due_too_early_is_held_back_and_says_why(
    eager: World, model: ScriptedModel
) -> None:
    """Whatever was planned: the limits hold again when a timer fires."""
    here = await eager.conversation()
    model.answers += ["I see.", *SAYINGS[1:3], "Hm.", *SAYINGS[3:]]
    await eager.says(here, "I have to renew my passport.")
    assert (await eager.silence(here, "task_incomplete", origin="planner", topic="renew passport")).state == "delivered"
    await eager.sql("UPDATE conversations SET last_followup_at = last_followup_at - interval '59 minutes'")
    became = await eager.silence(here, "check_in", origin="planner", topic="something else")
    assert (became.state, became.gate) == ("suppressed", "too_frequent")
    await eager.sql("UPDATE conversations SET last_followup_at = last_followup_at - interval '2 minutes'")
    assert (await eager.silence(here, "check_in", origin="planner", topic="something else")).state == "delivered"
    await eager.says(here, "hm")  # a new silence
    await pass_time(eager, 2 * HOUR)
    became = await eager.silence(here, "check_in", origin="planner", topic="a third thing")
    assert (became.state, became.gate) == ("suppressed", "daily_limit")
    await pass_time(eager, 23 * HOUR)
    assert (await eager.silence(here, "check_in", origin="planner", topic="a third thing")).state == "delivered"
    listed = (await eager.http.get(f"/api/threads/{here}/timers")).json()
    assert [one["gate"] for one in listed["past"] if one["gate"]] == ["daily_limit", "too_frequent"]
    stats = (await eager.http.get("/api/autonomy/stats")).json()
    assert stats["suppressed"] == {"daily_limit": 1, "too_frequent": 1}


async def test_a_matter_that_was_brought_up_meanwhile_is_held_back_when_its_timer_fires(
    eager: World, model: ScriptedModel
) -> None:
    here = await eager.conversation()
    model.answers += ["I see.", *SAYINGS]
    reply = await eager.says(here, FLATS)
    source = [str(reply["reply_to_id"])]
    planned: dict[str, Any] = {"origin": "planner", "sources": source}
    first = await eager.silence(here, "waiting_for_decision", topic="flat in Porto", **planned)
    assert first.state == "delivered"
    await pass_time(eager, 2 * HOUR)
    became = await eager.silence(here, "task_incomplete", topic="tell landlord", **planned)
    assert (became.state, became.gate) == ("suppressed", "repeated")


async def test_words_that_repeat_an_earlier_follow_up_are_not_said(eager: World, model: ScriptedModel) -> None:
    """The model is not told the topic: its text may be about another one than was planned."""
    here = await eager.conversation()
    model.answers += ["A hard choice.", "I see.", "Have you chosen between Porto and Lisbon?"]
    plan_eagerly(model, [])
    await eager.says(here, FLATS)
    await eager.says(here, "I have to renew my passport.")
    plan_eagerly(model, [WORDS[0], ("task_incomplete", "renew the passport")])
    await eager.says(here, "That is all, I think.")
    model.answers += ["Is it the flat in Lisbon or Porto, then?"]
    unasked = await keep_silent(eager, here, hours=20)
    assert len(unasked) <= 1, unasked


async def test_what_a_person_sets_is_not_bound_by_the_new_limits(eager: World, model: ScriptedModel) -> None:
    here = await eager.conversation()
    await eager.says(here, FLATS)
    for number in range(3):
        model.answers.append(f"Porto or Lisbon, number {number}?")
        assert (await eager.silence(here, "waiting_for_decision")).state == "delivered"
        await eager.sql("UPDATE conversations SET last_followup_at = last_followup_at - interval '16 seconds'")
    became = await eager.silence(here, "check_in")
    assert (became.state, became.gate) == ("suppressed", "consecutive")
    assert set(await gates(eager)) == {"consecutive"}


async def test_a_timer_that_a_person_set_counts_as_bringing_up_its_topic(eager: World, model: ScriptedModel) -> None:
    here = await eager.conversation()
    plan_eagerly(model, [])
    await eager.says(here, FLATS)
    model.answers.append("Have you chosen between Porto and Lisbon?")
    assert (await eager.silence(here, "waiting_for_decision")).state == "delivered"
    plan_eagerly(model, WORDS)
    assert await keep_silent(eager, here, hours=26) == []
