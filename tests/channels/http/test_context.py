"""Test `GET /api/threads/{id}/context`: the explanation of a reply (CTX-6)."""

from __future__ import annotations

from typing import Any

import httpx

from rapport.domain.ids import new_id
from rapport.domain.memory import MemoryCandidate
from tests.support.world import World
from tests.turns.test_chime_in import ANN, DAN, HOW_LONG, REFUNDS, challenge, receipt, said


async def context(world: World, thread: str, **query: str) -> httpx.Response:
    return await world.http.get(f"/api/threads/{thread}/context", params=query)


async def explained(world: World, thread: str, **query: str) -> dict[str, Any]:
    response = await context(world, thread, **query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_reply_is_explained_by_what_was_kept_with_it(world: World) -> None:
    group, first = await challenge(world)
    reply = await world.says(group, "@bot is this still open?", author=DAN, reply_to_id=first)
    [*_, call, _] = await world.history(group)
    kept = await receipt(world, group)
    by_reply = await explained(world, group, message_id=reply["id"])
    assert by_reply == {
        "message_id": call["id"],
        "reply_id": reply["id"],
        "stored": True,
        "strategy": "relevant",
        "anchor_id": first,
        "messages": kept["messages"],
        "memories": [],
        "notes": [],
        "summary_id": None,
        "looked_up": [],
        "tools": [],
        "agent": {"id": "companion", "version": 1},
        "problem": None,
        "usage": by_reply["usage"],
    }
    assert (by_reply["usage"]["calls"], by_reply["usage"]["estimated"]) == (1, True)
    assert await explained(world, group, message_id=call["id"]) == by_reply
    await world.post(group, "nothing to do with it", author=ANN)
    assert await explained(world, group) == by_reply


async def test_with_a_strategy_the_selection_is_computed_now(world: World) -> None:
    group, first = await challenge(world)
    call = await said(world, group, DAN, 0, "I wonder what to do")
    told = {one["content"]: one["id"] for one in await world.history(group)}
    thai = told["The thai restaurant on 10th Ave?"]
    # Nobody called the agent there: what would it have been given?
    now = await explained(world, group, message_id=call)
    assert (now["stored"], now["message_id"], now["reply_id"]) == (False, call, None)
    assert now["messages"][-1]["id"] == call
    gap = await explained(world, group, message_id=call, strategy="time_gap")
    assert [one["id"] for one in gap["messages"]] == [thai, call]
    recent = await explained(world, group, message_id=call, strategy="recent")
    assert [one["id"] for one in recent["messages"]] == [first, told["Any thoughts?"], thai, call]
    reply = await world.says(group, "@bot ^", author=DAN)
    kept = await explained(world, group, message_id=reply["id"])
    other = await explained(world, group, message_id=reply["id"], strategy="time_gap")
    assert (kept["stored"], other["stored"]) == (True, False)
    assert (kept["strategy"], other["strategy"]) == ("relevant", "time_gap")


async def test_notes_and_memories_are_named_with_their_scores(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    memory = await world.app.memory.create(
        "local", "companion", MemoryCandidate("The user sends goods back all the time.")
    )
    here = await world.conversation()
    await world.says(here, HOW_LONG)
    told = await explained(world, here)
    assert (told["strategy"], told["stored"]) == ("recent", True)
    assert [one["reasons"] for one in told["messages"]] == [["trigger"]]
    assert [(one["id"], one["given"]) for one in told["notes"]] == [("refunds", True)]
    assert [one["id"] for one in told["memories"]] == [memory.id]
    assert all(0 < one["score"] <= 1 for one in [*told["notes"], *told["memories"]])


async def test_a_note_that_was_not_close_enough_is_not_said_to_have_been_given(world: World) -> None:
    await world.http.post("/api/notes", json={"id": "refunds", "text": REFUNDS})
    for agent in ("companion", "librarian"):
        here = await world.conversation(agent_id=agent)
        await world.says(here, "Which planet has the most moons?")
        told = await explained(world, here)
        assert [(one["id"], one["given"]) for one in told["notes"]] == [("refunds", False)], agent


async def test_a_direct_chat_names_its_summary(world: World) -> None:
    here = await world.conversation()
    for number in range(20):
        await world.says(here, f"number {number}")
    told = await explained(world, here)
    history = await world.history(here)
    assert told["summary_id"] in {one["id"] for one in history if one["role"] == "system-summary"}
    assert [one["reasons"] for one in told["messages"]] == [["recent"]] * (len(told["messages"]) - 1) + [["trigger"]]
    summary = await context(world, here, message_id=told["summary_id"])
    assert summary.status_code == 404


async def test_a_follow_up_is_explained_without_its_trigger(world: World) -> None:
    here = await world.conversation()
    await world.says(here, "I have to call the landlord.")
    assert (await world.silence(here)).state == "delivered"
    [question, reply, unasked] = await world.history(here)
    told = await explained(world, here, message_id=unasked["id"])
    assert (told["message_id"], told["reply_id"]) == (unasked["id"], unasked["id"])
    assert [one["id"] for one in told["messages"]] == [question["id"], reply["id"]]
    # As it would be for one from before receipts were kept.
    await world.sql("UPDATE messages SET metadata = metadata - 'context'")
    again = await explained(world, here, message_id=unasked["id"])
    assert again["stored"] is False
    assert again["messages"] == told["messages"]


async def test_what_is_not_there_or_somebody_elses_is_not_found(world: World) -> None:
    group, _ = await challenge(world)
    foreign = await world.conversation("bob", kind="group")
    here = await world.conversation()
    reply = await world.says(here, "hello")
    assert (await world.silence(here)).state == "delivered"
    [(trigger,)] = await world.sql("SELECT id FROM messages WHERE synthetic")
    for thread, query in (
        (foreign, {}),
        (new_id(), {}),
        ("nonsense", {}),
        (group, {}),  # nothing was answered there
        (group, {"message_id": reply["id"]}),
        (here, {"message_id": trigger}),
        (here, {"message_id": trigger, "strategy": "recent"}),
        (here, {"message_id": new_id()}),
        (here, {"message_id": "' OR 1=1 --"}),
        (here, {"message_id": "x" * 5_000}),
    ):
        assert (await context(world, thread, **query)).status_code == 404, (thread, query)
    assert (await context(world, here, strategy="clairvoyance")).status_code == 422


# ---- searching


async def search(world: World, thread: str, q: str, **query: Any) -> httpx.Response:
    return await world.http.get(f"/api/threads/{thread}/search", params={"q": q, **query})


async def test_a_chat_can_be_searched(world: World) -> None:
    group, first = await challenge(world)
    await said(world, group, ANN, 5, "The gathering needs a tent", thread_id="camping")
    found = (await search(world, group, "Which restaurant for the gathering did Ann mean?")).json()["messages"]
    assert found[0]["id"] == first
    assert (found[0]["author"], found[0]["role"], found[0]["thread_id"]) == ("Ann", "user", None)
    assert found[0]["words"] > found[-1]["words"]
    assert len((await search(world, group, "gathering", limit=1)).json()["messages"]) == 1
    camping = (await search(world, group, "gathering", topic="camping")).json()["messages"]
    assert [one["text"] for one in camping] == ["The gathering needs a tent"]


async def test_a_direct_chat_is_searched_by_words(world: World) -> None:
    conversation = await world.conversation()
    await world.says(conversation, "My bicycle is green")
    [said_, answered] = (await search(world, conversation, "bicycles")).json()["messages"]
    assert {said_["text"], answered["text"]} == {"My bicycle is green", "re: My bicycle is green"}
    assert (said_["similarity"], said_["words"]) == (None, 1.0)


async def test_what_cannot_be_searched_is_said(world: World) -> None:
    group, _ = await challenge(world)
    theirs = await world.conversation("ana", kind="group")
    for thread in (theirs, new_id(), "nonsense"):
        refused = await search(world, thread, "restaurant")
        assert refused.status_code == 404
        assert "There is no conversation" in refused.json()["detail"]
    for q, query in (
        ("", {}),
        ("?!", {}),
        ("x" * 501, {}),
        ("a\x00b", {}),
        ("tent", {"limit": 0}),
        ("tent", {"topic": "\x00"}),
    ):
        refused = await search(world, group, q, **query)
        assert refused.status_code in (400, 413, 422), (q, refused.text)
