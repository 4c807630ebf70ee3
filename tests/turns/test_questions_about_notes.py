"""Test questions that a strict agent answers without a similar sentence: by exact words, or about the notes themselves (RAG-2, RAG-4).

With the bundled embedder; the model is a scripted one, or the built-in one where its words are looked at.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rapport.builtin import BuiltinChatModel
from tests.e2e.scripted import ScriptedModel, chat_model, scripted_model
from tests.support.cases import every_case
from tests.support.world import World, open_world
from tests.turns.test_grounding import GUARD, Log, block_of, fenced, log, note, talk

__all__ = ["log"]

SAMPLES = ["sample-on-call", "sample-releases", "sample-time-off", "sample-travel"]
NOTES = {
    "pager": (
        "Pager rules",
        "Levels: sev 1 means that nobody can pay, sev 2 that some cannot. The first is acknowledged in 15 minutes.",
    ),
    "extensions": ("Extensions", "Ruth Adeyemi, People team: 214. Pierre Lang, Finance: 118. Ben Osei, IT: 300."),
    "contract": ("Contract sheet", "Hours: 40 a week.\n\nNotice on both sides: 3 months.\n\nPlace of work: Zurich."),
    "kitchen": ("The kitchen", "Whoever takes the last cup makes a new pot. The dishwasher runs at 18:00."),
    "parking": ("Parking", "Visitors park behind the building. The gate code changes every Monday."),
}


@pytest.fixture
async def model() -> AsyncGenerator[ScriptedModel]:
    async with scripted_model() as listening:
        yield listening


@pytest.fixture
async def world(database_url: str, model: ScriptedModel) -> AsyncGenerator[World]:
    async with open_world(database_url, model=chat_model(model)) as opened:
        yield opened


async def add_notes(world: World) -> None:
    for id_, (title, text) in NOTES.items():
        await note(world, id_, text, title=title)


async def add_samples(world: World) -> None:
    assert (await world.http.post("/api/samples")).status_code == 200


async def search(world: World, question: str) -> dict[str, Any]:
    return (await world.http.get("/api/notes/search", params={"q": question, "limit": 1})).json()


# ---- near the threshold


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When must I acknowledge a sev 1 incident?", "pager"),
        ("When must I acknowledge a SEV-1 incident?", "pager"),
        ("Who is in charge of the People team?", "extensions"),
        ("How much notice do I have to give if I quit?", "contract"),
    ],
)
async def test_a_passage_with_the_rare_words_of_the_question_is_answered_from(
    world: World, model: ScriptedModel, question: str, answer: str
) -> None:
    """Each comes first and is less similar than the threshold."""
    await add_notes(world)
    model.answers.append(f"So it is [source: {answer}].")
    reply = await world.says(await talk(world), question)
    assert not reply["guardUsed"]
    assert [source["id"] for source in reply["sources"]] == [answer]
    found = await search(world, question)
    assert found["best_similarity"] < found["min_similarity"] <= found["relevance"]
    assert found["passages"][0]["id"] == answer


@pytest.mark.parametrize(
    "question",
    [
        "Who founded the football team?",
        "What is the weekly wage of a nurse?",
        "How many visitors did the Louvre have?",
    ],
)
async def test_a_word_in_common_is_no_answer(world: World, model: ScriptedModel, question: str) -> None:
    await add_notes(world)
    reply = await world.says(await talk(world), question)
    assert (reply["content"], reply["guardUsed"], reply["sources"]) == (GUARD, True, [])
    assert model.calls == []


async def test_two_notes_equally_near_without_a_word_of_the_question_are_about_something_else(
    log: Log, world: World, model: ScriptedModel
) -> None:
    await note(world, "choir", "Rehearsals of the choir are on Mondays at seven in the parish hall.", title="Choir")
    await note(world, "brass", "Rehearsals of the brass band are on Mondays at seven in the barn.", title="Brass band")
    question = "When does the orchestra play?"
    found = await search(world, question)
    assert found["relevance"] < found["min_similarity"] < found["best_similarity"]
    reply = await world.says(await talk(world), question)
    assert (reply["content"], reply["guardUsed"]) == (GUARD, True)
    assert model.calls == []
    assert [line["reason"] for line in log.named("chat.guard")] == ["nothing_stands_out"]


# ---- questions about the notes themselves

WHICH = [
    "What documents do you have?",
    "Which notes do you have?",
    "list your documents",
    "How many notes are there?",
    "Summarise my notes",
    "Welche Dokumente hast du?",
    "@librarian what files do you have?",
]


@pytest.mark.parametrize("agent", ["librarian", "companion"])
@pytest.mark.parametrize("question", WHICH)
async def test_asked_which_notes_there_are_the_model_is_given_the_list(
    world: World, model: ScriptedModel, question: str, agent: str
) -> None:
    await add_samples(world)
    model.answers.append("Travel [source: sample-travel] and on call [source: sample-on-call].")
    reply = await world.says(await talk(world, agent), question)
    call = model.calls[0]
    block = block_of(call.system) if agent == "librarian" else call.note.partition("\nSources:\n")[2]
    assert "The person has 4 notes; these are the beginnings of all." in block.splitlines()[0]
    sources = fenced(block)
    assert sorted(sources) == SAMPLES
    assert sources["sample-travel"][0] == "# Travel and expenses"
    assert not reply["guardUsed"]
    assert [source["id"] for source in reply["sources"]] == ["sample-travel", "sample-on-call"]


async def test_of_many_notes_the_latest_are_listed_and_the_model_is_told_how_many_there_are(
    world: World, model: ScriptedModel
) -> None:
    for number in range(33):
        await note(world, f"note-{number:02}", f"Shelf {number} holds jars.", title=f"Shelf {number}")
    await world.says(await talk(world), WHICH[0])
    block = block_of(model.calls[0].system)
    assert "The person has 33 notes; these are the beginnings of the 30 changed last." in block.splitlines()[0]
    assert list(fenced(block)) == [f"note-{number:02}" for number in range(32, 2, -1)]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("summarise the travel note", "sample-travel"),
        ("Summarise sample-releases please", "sample-releases"),
        ("Give me an overview of Time off", "sample-time-off"),
        ("give me a summary of the note on call", "sample-on-call"),
    ],
)
async def test_a_note_that_is_named_is_given_from_its_beginning(
    world: World, model: ScriptedModel, question: str, named: str
) -> None:
    await add_samples(world)
    await world.says(await talk(world), question)
    block = block_of(model.calls[0].system)
    assert "The note was asked for as a whole; this is all of it." in block.splitlines()[0]
    assert list(fenced(block)) == [named]


async def test_the_handbook_is_summarised_from_its_first_passages(world: World, model: ScriptedModel) -> None:
    chapters = "\n\n".join(
        f"# Chapter {number}\n\nRule {number} of the house: {'be kind, and tidy up after dinner. ' * 12}"
        for number in range(12)
    )
    await note(world, "staff-handbook-2026", chapters, title="Employee handbook")
    await note(world, "parking", "Visitors park behind the building.", title="Parking")
    await world.says(await talk(world), "summarise the handbook")
    block = block_of(model.calls[0].system)
    assert "these are the first 8 of its 12 passages" in block.splitlines()[0]
    [(named, lines)] = fenced(block).items()
    assert named == "staff-handbook-2026"
    assert "## Chapter 7" in lines
    assert "## Chapter 8" not in lines


@every_case(
    "question",
    [
        "Summarise the theory of relativity",
        "Give me an overview of the French revolution",
        "Which documents do I need for a visa to India?",
        "What are the main points of Hamlet?",
    ],
)
async def test_what_only_sounds_like_it_is_refused(world: World, model: ScriptedModel, question: str) -> None:
    await add_samples(world)
    assert (await world.says(await talk(world), question))["content"] == GUARD
    assert model.calls == []


async def test_whoever_has_no_notes_hears_the_guard(log: Log, world: World, model: ScriptedModel) -> None:
    for question in (WHICH[0], "summarise the handbook"):
        reply = await world.says(await talk(world), question)
        assert (reply["content"], reply["guardUsed"]) == (GUARD, True)
    assert model.calls == []
    assert {line["reason"] for line in log.named("chat.guard")} == {"no_notes"}


async def test_nobody_is_told_of_another_persons_notes(world: World, model: ScriptedModel) -> None:
    await world.app.library.add("somebody-else", "Nothing happened today.", title="Diary", note_id="diary")
    await add_samples(world)
    await world.says(await talk(world), WHICH[0])
    assert sorted(fenced(block_of(model.calls[-1].system))) == SAMPLES
    assert (await world.says(await talk(world), "summarise the diary"))["content"] == GUARD


async def test_the_built_in_model_lists_the_notes_and_sums_one_up(database_url: str) -> None:
    async with open_world(database_url, model=BuiltinChatModel()) as world:
        await add_samples(world)
        for agent in ("librarian", "companion"):
            reply = await world.says(await talk(world, agent), WHICH[0])
            assert reply["content"].startswith("I have 4 notes: Travel and expenses [source: sample-travel], ")
            assert sorted(source["id"] for source in reply["sources"]) == SAMPLES
            reply = await world.says(await talk(world, agent), "summarise the travel note")
            assert reply["content"].startswith("Book trips at least three weeks ahead. Hotel: up to 130 euros")
            assert [source["id"] for source in reply["sources"]] == ["sample-travel"]
