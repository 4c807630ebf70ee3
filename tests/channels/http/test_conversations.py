"""Test a message and its reply over HTTP (CONV-1…8)."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from rapport.context.summary_rules import get_window_limit
from rapport.domain.errors import NotFound
from rapport.domain.ids import is_id
from tests.support.cases import every_case
from tests.support.world import World, until


async def test_a_message_gets_the_agents_answer(world: World) -> None:
    world.model.will_say("Hello, Ana.")
    created = await world.http.post("/chat/conversations", json={"agent": "companion"})
    assert created.status_code == 201
    conversation = created.json()["id"]
    assert is_id(conversation)

    reply = await world.says(conversation, "hi, I'm Ana")

    assert is_id(reply["id"])
    assert reply["role"] == "assistant"
    assert reply["content"] == "Hello, Ana."
    assert reply["sources"] == []
    assert (reply["guardUsed"], reply["fallbackUsed"], reply["cancelled"]) == (False, False, False)


async def test_a_conversation_begins_without_a_body_and_belongs_to_the_librarian(world: World) -> None:
    created = await world.http.post("/chat/conversations")
    shown = await world.http.get(f"/chat/conversations/{created.json()['id']}")
    assert shown.json()["agent"] == "librarian"
    assert (await world.http.post("/api/threads")).json()["agent"] == "companion"


async def test_history_shows_what_was_said_with_true_times(world: World) -> None:
    conversation = await world.conversation()
    reply = await world.says(conversation, "one", author={"id": "7", "name": "Ana"})
    messages = await world.history(conversation)
    assert [(m["role"], m["content"]) for m in messages] == [("user", "one"), ("assistant", "re: one")]
    assert messages[0]["author"] == {"id": "7", "name": "Ana"}
    assert messages[1]["id"] == reply["id"]
    assert messages[1]["reply_to_id"] == messages[0]["id"]
    stored = await world.sql("SELECT created_at FROM messages ORDER BY created_at")
    assert [datetime.fromisoformat(m["created_at"]) for m in messages] == [row[0] for row in stored]


async def test_history_pages_through_everything_once(world: World) -> None:
    conversation = await world.conversation()
    for number in range(12):
        await world.says(conversation, str(number))
    seen: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    while True:
        page = (await world.http.get(f"/api/threads/{conversation}/history", params={"limit": 5, **before})).json()
        seen = page["messages"] + seen
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert [message["id"] for message in seen] == [message["id"] for message in await world.history(conversation)]
    said = [message["content"] for message in seen if message["role"] == "user"]
    assert said == [str(number) for number in range(12)]
    assert [message["role"] for message in seen].count("assistant") == 12
    assert all((a["created_at"], a["id"]) < (b["created_at"], b["id"]) for a, b in pairwise(seen))


async def test_a_history_cursor_of_another_conversation_is_refused(world: World) -> None:
    conversation, other = await world.conversation(), await world.conversation()
    reply = await world.says(other, "hello")
    response = await world.http.get(f"/api/threads/{conversation}/history", params={"before": reply["id"]})
    assert response.status_code == 400


async def test_conversations_are_listed_by_their_last_message(world: World) -> None:
    first, second, third = [await world.conversation() for _ in range(3)]
    await world.says(first, "again")
    page = (await world.http.get("/api/threads", params={"limit": 2})).json()
    assert [thread["id"] for thread in page["threads"]] == [first, third]
    rest = (await world.http.get("/api/threads", params={"limit": 2, "before": page["next"]})).json()
    assert [thread["id"] for thread in rest["threads"]] == [second]
    assert rest["next"] is None
    assert (await world.http.get("/api/threads", params={"before": "nonsense"})).status_code == 400


async def test_the_model_is_given_the_current_message_once(world: World) -> None:
    """duplicate message injection"""
    conversation = await world.conversation()
    await world.says(conversation, "first")
    await world.says(conversation, "second")
    texts = [str(message.text) for message in world.model.calls[1][1:]]
    assert texts == ["first", "re: first", "second"]


async def test_the_same_text_twice_is_two_messages(world: World) -> None:
    conversation = await world.conversation()
    await world.says(conversation, "yes")
    await world.says(conversation, "yes")
    assert [m["content"] for m in await world.history(conversation) if m["role"] == "user"] == ["yes", "yes"]
    assert [str(m.text) for m in world.model.calls[1][1:]] == ["yes", "re: yes", "yes"]


async def test_the_same_client_message_id_is_stored_and_answered_once(world: World) -> None:
    conversation = await world.conversation()
    replies = await asyncio.gather(
        *(world.says(conversation, "hello", client_message_id="abc") for _ in range(5)),
    )
    later = await world.says(conversation, "hello", client_message_id="abc")
    assert {reply["id"] for reply in replies} == {later["id"]}
    assert len(world.model.calls) == 1
    assert len(await world.history(conversation)) == 2


async def test_a_client_message_id_belongs_to_one_message(world: World) -> None:
    conversation, other = await world.conversation(), await world.conversation()
    await world.says(conversation, "hello", client_message_id="abc")
    assert (await world.post(conversation, "something else", client_message_id="abc")).status_code == 409
    await world.says(other, "something else", client_message_id="abc")


async def test_turns_of_one_conversation_run_one_at_a_time_and_in_order(world: World) -> None:
    conversation = await world.conversation()
    slow = world.model.will_wait("slow")
    first = asyncio.create_task(world.says(conversation, "one"))
    await slow.begun.wait()
    others: list[asyncio.Task[dict[str, Any]]] = []
    for text in ("two", "three", "four"):
        others.append(asyncio.create_task(world.says(conversation, text)))
        await until(lambda: stored(world, len(others) + 1))
    assert len(world.model.calls) == 1
    assert slow.gate is not None
    slow.gate.set()
    await asyncio.gather(first, *others)
    said = [str(call[-1].text) for call in world.model.calls]
    assert said == ["one", "two", "three", "four"]
    # Each turn saw what was said before it, the answers included, and nothing that came later.
    assert [str(message.text) for message in world.model.calls[1][1:]] == ["one", "slow", "two"]
    assert [str(message.text) for message in world.model.calls[2][1:]] == ["one", "two", "slow", "re: two", "three"]


async def stored(world: World, count: int) -> bool:
    return await world.sql("SELECT count(*) FROM messages WHERE role = 'user'") == [(count,)]


async def test_conversations_run_side_by_side(world: World) -> None:
    slow_one, other = await world.conversation(), await world.conversation()
    slow = world.model.will_wait("slow")
    waiting = asyncio.create_task(world.says(slow_one, "one"))
    await slow.begun.wait()
    assert (await world.says(other, "quick"))["content"] == "re: quick"
    assert slow.gate is not None
    slow.gate.set()
    assert (await waiting)["content"] == "slow"


async def test_the_window_stays_bounded(world: World) -> None:
    conversation = await world.conversation()
    for number in range(40):
        await world.says(conversation, f"message {number}")
    # Instructions, summary, history, the message; a summary is made at once above 22 messages, but no turn waits for it.
    assert max(len(call) for call in world.model.calls) <= 1 + 1 + get_window_limit() + 1


async def test_the_instructions_are_made_anew_each_turn(world: World) -> None:
    conversation = await world.conversation()
    await world.says(conversation, "one")
    await world.says(conversation, "two")
    for call in world.model.calls:
        assert call[0].type == "system"
        assert [message.type for message in call[1:]].count("system") == 0


async def test_content_blocks_come_back_as_they_were(world: World) -> None:
    conversation = await world.conversation()
    blocks = [{"type": "text", "text": "what is this?"}, {"type": "image", "url": "https://example.org/cat.png"}]
    await world.says(conversation, blocks)
    assert (await world.history(conversation))[0]["content"] == blocks
    assert world.model.calls[0][-1].content == blocks


async def test_a_reply_refers_to_a_message_of_the_conversation(world: World) -> None:
    conversation = await world.conversation()
    first = await world.says(conversation, "one")
    second = await world.says(conversation, "about that", reply_to_id=first["id"])
    assert (await world.history(conversation))[2]["reply_to_id"] == first["id"]
    assert (await world.post(conversation, "x", reply_to_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")).status_code == 400
    assert second["content"] == "re: about that"


async def test_a_group_message_is_answered_only_when_it_is_for_the_agent(world: World) -> None:
    group = await world.conversation(kind="group")
    ana = {"id": "1", "name": "Ana"}
    aside = await world.post(group, "shall we eat?", author=ana)
    assert (aside.status_code, aside.json()["replied"]) == (202, False)
    asked = await world.says(group, "@bot what do you think?", author=ana)
    assert asked["role"] == "assistant"
    assert (await world.post(group, "mail me@bot.example", author=ana)).status_code == 202
    replied = await world.post(group, "why?", author=ana, reply_to_id=asked["id"])
    assert replied.status_code == 200
    # The speakers stand in what the model reads, itself among them.
    [_, quoted, call] = world.model.calls[0]
    assert isinstance(quoted, HumanMessage)
    assert re.search(r"^\[Ana, \w{3} \d\d:\d\d\] shall we eat\?$", quoted.text, re.MULTILINE)
    assert re.fullmatch(r"\[Ana, .+ UTC\] @bot what do you think\?", call.text)
    [_, quoted, call] = world.model.calls[1]
    assert re.search(r"^\[you \(Companion\), .+, replying to Ana\] re: ", quoted.text, re.MULTILINE)
    assert await world.sql("SELECT open_event_count FROM conversations") == [(0,)]


async def test_an_erased_conversation_is_gone_with_its_working_state(world: World) -> None:
    conversation = await world.conversation()
    await world.says(conversation, "a secret")
    await world.silence(conversation)  # an answer has no checkpoint, a follow-up has one
    await until(lambda: checkpointed(world))
    assert (await world.http.delete(f"/chat/conversations/{conversation}")).status_code == 204
    assert (await world.http.get(f"/api/threads/{conversation}/history")).status_code == 404
    for table in ("messages", "events", "checkpoints", "checkpoint_blobs"):
        assert await world.sql(f"SELECT count(*) FROM {table}") == [(0,)], table


async def checkpointed(world: World) -> bool:
    return await world.sql("SELECT count(*) > 0 FROM checkpoints") == [(True,)]


async def test_a_conversation_erased_during_its_turn_stays_erased(world: World) -> None:
    conversation = await world.conversation()
    slow = world.model.will_wait()
    waiting = asyncio.create_task(world.post(conversation, "one"))
    await slow.begun.wait()
    await world.http.delete(f"/chat/conversations/{conversation}")
    assert slow.gate is not None
    slow.gate.set()
    response = await waiting  # its turn was cancelled, or had nowhere to put its answer any more
    assert response.status_code == 404 or response.json()["cancelled"]
    assert await world.sql("SELECT count(*) FROM messages") == [(0,)]


async def test_a_waiting_message_is_not_answered_when_its_conversation_is_erased(world: World) -> None:
    for _ in range(5):
        conversation = await world.conversation()
        first = world.model.will_wait()
        waiting = [asyncio.create_task(world.post(conversation, "one"))]
        await first.begun.wait()
        waiting += [asyncio.create_task(world.post(conversation, text)) for text in ("two", "three")]
        await until(lambda: stored(world, 3))
        asked = len(world.model.calls)
        assert (await world.http.delete(f"/chat/conversations/{conversation}")).status_code == 204
        assert [response.status_code for response in await asyncio.gather(*waiting)] == [404, 404, 404]
        assert len(world.model.calls) == asked
    assert await world.sql("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM checkpoints)") == [(0, 0)]


async def test_a_stranger_who_would_erase_a_conversation_disturbs_nothing(world: World) -> None:
    conversation = await world.conversation()
    slow = world.model.will_wait("still here")
    waiting = asyncio.create_task(world.post(conversation, "one"))
    await slow.begun.wait()
    with pytest.raises(NotFound):
        await world.worker.erase("somebody else", conversation)
    slow.go_on()
    assert (await waiting).json()["content"] == "still here"


@every_case("agent", ["nobody", "", "x" * 65])
async def test_an_unknown_agent_is_refused(world: World, agent: str) -> None:
    response = await world.http.post("/chat/conversations", json={"agent": agent})
    assert response.status_code in {400, 422}
    assert response.headers["content-type"] == "application/problem+json"
