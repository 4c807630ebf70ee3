"""Test `/api/samples`: sample data is loaded and removed without leaving anything."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from rapport.builtin import BuiltinChatModel
from rapport.core.samples import read_chat
from tests.channels.http.test_auth import make_key, until_closed
from tests.support.world import World, open_world

NOTES = ["sample-on-call", "sample-releases", "sample-time-off", "sample-travel"]


async def samples(world: World, method: str = "GET", headers: dict[str, str] | None = None) -> dict[str, Any]:
    answer = await world.http.request(method, "/api/samples", headers=headers)
    assert answer.status_code == (204 if method == "DELETE" else 200), answer.text
    return answer.json() if answer.content else {}


async def everything(world: World) -> list[Any]:
    tables = ("conversations", "messages", "notes", "chunks", "sentence_vectors", "memories", "timers", "events")
    return [await world.sql(f"SELECT count(*) FROM {table}") for table in tables]


def test_the_chat_is_one_worth_asking_about() -> None:
    """Five people, several days with silences between, replies, and nothing that is for the agent already."""
    chat = read_chat(datetime.now(UTC))
    said = chat.messages
    assert 35 <= len(said) <= 45
    assert len({one.author and one.author.id for one in said}) == 5
    ids = [one.row_id for one in said]
    assert len(set(ids)) == len(ids)
    gaps = [after.created_at - before.created_at for before, after in pairwise(said)]
    assert all(gap > timedelta() for gap in gaps)
    assert sum(gap > timedelta(hours=12) for gap in gaps) >= 4
    assert datetime.now(UTC) - said[-1].created_at < timedelta(hours=1)
    replies = [one for one in said if one.reply_to is not None]
    assert len(replies) >= 8
    assert all(one.reply_to in ids[: ids.index(one.row_id)] for one in replies)
    assert not any("@" in str(one.content) for one in said)


OFFSITE = re.compile(r"guesthouse|Ghent|Lisbon|offsite|rooms?\b|budget|rain|13th", re.IGNORECASE)
IMPORT = re.compile(r"import|batch|invoice|orders|05:26|2\.4|flag|Good enough", re.IGNORECASE)


async def lit(world: World, thread: str, call: str, who: str, *, about: str = "") -> tuple[list[str], dict[str, Any]]:
    """Return the texts of the messages selected for a call, and the model's input."""
    said = await world.history(thread)
    words = {one["id"]: str(one["content"]) for one in said}
    link = {"reply_to_id": next(key for key, text in words.items() if text.startswith(about))} if about else {}
    reply = await world.says(thread, call, author={"id": who, "name": who.title()}, **link)
    told = (await world.http.get(f"/api/threads/{thread}/context", params={"message_id": reply["id"]})).json()
    return [words[one["id"]] for one in told["messages"] if one["id"] in words], told


async def test_a_call_brings_its_own_topic_and_not_the_other(world: World) -> None:
    """Each of the two discussions has silences of days, and only minutes are between them."""
    thread = (await samples(world, "POST"))["thread_id"]
    offsite, told = await lit(world, thread, "@bot what do you think?", "maya")
    assert len(offsite) >= 10
    assert all(OFFSITE.search(text) or text == "Works for me." for text in offsite), offsite
    assert [one["id"] for one in told["notes"] if one["given"]] == ["sample-travel"]
    release, told = await lit(world, thread, "@bot what would you do?", "jonas", about="So: do I roll 2.4 back")
    assert len(release) >= 10
    assert all(IMPORT.search(text) for text in release if not text.startswith("I'm on call")), release
    assert [one["id"] for one in told["notes"] if one["given"]] == ["sample-releases"]


async def test_without_any_key_it_has_something_to_say_to_them(database_url: str) -> None:
    """The built-in model's answer: who said what about the matter, what the notes say, and what is open."""
    async with open_world(database_url, model=BuiltinChatModel()) as world:
        thread = (await samples(world, "POST"))["thread_id"]
        reply = await world.says(thread, "@bot what do you think?", author={"id": "maya", "name": "Maya"})
        assert [source["id"] for source in reply["sources"]] == ["sample-travel"]
        for part in (
            "You asked: “The guesthouse in Ghent needs an answer by six. Do we take it?”",
            "Tomás said: “If it fits the travel budget, yes.”",
            "“Hotel: up to 130 euros a night, breakfast included.” [source: sample-travel]",
            "Still open: Aiko's question",
        ):
            assert part in reply["content"]
        asked = next(one for one in await world.history(thread) if str(one["content"]).startswith("So: do I roll"))
        jonas = {"id": "jonas", "name": "Jonas"}
        reply = await world.says(thread, "@bot what would you do?", author=jonas, reply_to_id=asked["id"])
        assert [source["id"] for source in reply["sources"]] == ["sample-releases"]
        assert "Priya said: “Small batches: some twenty minutes longer" in reply["content"]
        assert "“Roll back first, look for the cause afterwards.” [source: sample-releases]" in reply["content"]


async def test_one_request_brings_them_and_one_takes_them_away(world: World) -> None:
    mine = await world.conversation()
    await world.says(mine, "hello")
    await world.http.post("/api/notes", json={"id": "mine", "text": "My own note, about whales."})
    before = await everything(world)
    assert await samples(world) == {"loaded": False, "thread_id": None, "notes": []}

    loaded = await samples(world, "POST")
    assert (loaded["loaded"], loaded["notes"]) == (True, NOTES)
    thread = loaded["thread_id"]
    assert await samples(world) == loaded
    assert len(await world.history(thread)) == len(read_chat(datetime.now(UTC)).messages)
    [listed, *_] = [one for one in (await world.http.get("/api/threads")).json()["threads"] if one["id"] == thread]
    assert (listed["kind"], listed["agent"], listed["title"]) == ("group", "companion", "Sample: the team's chat")
    titles = {one["title"] for one in (await world.http.get("/api/notes")).json()["notes"]}
    assert {"On call", "Releases and rolling back", "Time off", "Travel and expenses"} <= titles
    people = (await world.http.get(f"/api/threads/{thread}/people")).json()["people"]
    assert {one["name"] for one in people} == {"Maya", "Tomás", "Priya", "Jonas", "Aiko"}

    # It is a chat like any other: the agent can be called there.
    reply = await world.says(thread, "@bot what do you think?", author={"id": "maya", "name": "Maya"})
    told = (await world.http.get(f"/api/threads/{thread}/context", params={"message_id": reply["id"]})).json()
    assert 3 <= len(told["messages"]) <= 30

    await samples(world, "DELETE")
    assert await samples(world) == {"loaded": False, "thread_id": None, "notes": []}
    assert await everything(world) == before
    await samples(world, "DELETE")  # twice is once


async def test_loading_the_samples_twice_keeps_later_messages(world: World) -> None:
    loaded = await samples(world, "POST")
    thread = loaded["thread_id"]
    await world.post(thread, "one more thing", author={"id": "maya", "name": "Maya"})
    await world.http.put("/api/notes/sample-travel", json={"text": "# Travel\nBy bicycle only."})
    before = await world.history(thread)
    assert await samples(world, "POST") == loaded
    assert await world.history(thread) == before
    assert "bicycle" in (await world.http.get("/api/notes/sample-travel")).json()["text"]
    await samples(world, "DELETE")
    assert (await world.http.get("/api/notes/sample-travel")).status_code == 404


async def test_missing_samples_are_loaded_again(world: World) -> None:
    loaded = await samples(world, "POST")
    await world.http.delete("/api/notes/sample-travel")
    await world.http.delete(f"/chat/conversations/{loaded['thread_id']}")
    some = await samples(world)
    assert some == {"loaded": False, "thread_id": None, "notes": [one for one in NOTES if one != "sample-travel"]}
    assert await samples(world, "POST") == loaded


async def test_a_note_that_only_has_the_same_id_is_left_alone(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "sample-travel", "text": "My own note about travelling."})
    loaded = await samples(world, "POST")
    assert (loaded["loaded"], loaded["notes"]) == (False, [one for one in NOTES if one != "sample-travel"])
    await samples(world, "DELETE")
    assert (await world.http.get("/api/notes/sample-travel")).json()["text"] == "My own note about travelling."


async def test_every_owner_has_separate_samples(world: World) -> None:
    _, ana = await make_key(world, "ana")
    _, ben = await make_key(world, "ben")
    await until_closed(world)
    hers, his = await samples(world, "POST", ana), await samples(world, "POST", ben)
    assert hers["thread_id"] != his["thread_id"]
    await samples(world, "DELETE", ana)
    assert (await samples(world, headers=ana))["notes"] == []
    assert await samples(world, headers=ben) == his
    for method in ("GET", "POST", "DELETE"):
        assert (await world.http.request(method, "/api/samples")).status_code == 401
