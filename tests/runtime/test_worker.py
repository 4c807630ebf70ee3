"""Test the promises of the runtime under failures: nothing lost, nothing answered twice (RES-5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rapport.domain.channel import OutcomeUnknown
from rapport.domain.conversation import Incoming
from rapport.domain.draft import Draft
from rapport.domain.errors import Busy, Permanent, Transient
from rapport.domain.event import ClaimedEvent, Reply
from rapport.ingest.accept import accept
from rapport.replies.reply_kinds import FALLBACK
from rapport.storage.database import Database
from rapport.storage.work.events import Events, Superseded
from rapport.storage.work.outbox import Outbox
from rapport.storage.work.workers import Workers
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until


async def claimed_by(database: Database, conversation: str, text: str, worker: str) -> ClaimedEvent:
    """Store a message as a process that stops right afterwards."""
    accepted = await accept(database, Incoming("local", conversation, text), worker_id=worker, claim=True)
    assert accepted.claimed is not None
    return accepted.claimed


async def test_what_a_dead_worker_was_running_is_answered_by_another(world: World) -> None:
    conversation = await world.conversation()
    await claimed_by(world.database, conversation, "left behind", worker="a worker that never was")
    await world.drain()
    assert [m["content"] for m in await world.history(conversation)] == ["left behind", "re: left behind"]


async def test_a_living_workers_turn_is_left_alone(world: World, database: Database) -> None:
    conversation = await world.conversation()
    async with database.statement() as alive:
        await Workers(alive).join("a quiet worker")
        event = await claimed_by(database, conversation, "mine", worker="a quiet worker")
        await world.sql("UPDATE workers SET lease_until = now() + interval '5 s' WHERE id = 'a quiet worker'")
        async with database.transaction() as connection:
            assert await Workers(connection).reap_dead_workers(except_for="somebody") == 0
        assert await world.sql("SELECT worker_id, fence FROM events") == [("a quiet worker", event.fence)]


async def test_a_worker_whose_lease_ran_out_is_dead_even_if_it_is_connected(world: World, database: Database) -> None:
    conversation = await world.conversation()
    async with database.statement() as stuck:
        await Workers(stuck).join("a stuck worker")
        await claimed_by(database, conversation, "hello", worker="a stuck worker")
        await world.sql("UPDATE workers SET lease_until = now() - interval '1 s' WHERE id = 'a stuck worker'")
        await world.drain()
    assert len(await world.history(conversation)) == 2


async def test_a_worker_that_lost_its_event_cannot_commit(world: World) -> None:
    conversation = await world.conversation()
    stale = await claimed_by(world.database, conversation, "hello", worker="a slow worker")
    await world.drain()  # somebody else has answered
    async with world.database.statement() as connection:
        with pytest.raises(Superseded):
            await Events(connection).finish(stale, Reply("too late"), agent_name="x", push=False)
    assert [m["content"] for m in await world.history(conversation)] == ["hello", "re: hello"]
    assert await world.sql("SELECT open_event_count FROM conversations") == [(0,)]


async def test_a_message_waits_for_its_turn_behind_a_dead_workers_one(world: World) -> None:
    conversation = await world.conversation()
    await claimed_by(world.database, conversation, "one", worker="gone")
    reply = await world.says(conversation, "two")
    assert reply["content"] == "re: two"
    assert [m["content"] for m in await world.history(conversation)] == ["one", "two", "re: one", "re: two"]


async def test_an_event_that_nobody_runs_is_returned_to_the_line(world: World) -> None:
    """As after a client that was cancelled between the commit and the start of its turn."""
    conversation = await world.conversation()
    await claimed_by(world.database, conversation, "stray", worker=world.worker.worker_id)
    await world.drain()
    assert len(await world.history(conversation)) == 2


async def test_a_turn_that_keeps_failing_unexpectedly_ends_with_the_fallback(world: World) -> None:
    conversation = await world.conversation()
    event = await claimed_by(world.database, conversation, "poison", worker="gone")
    await world.sql("UPDATE events SET attempts = 10 WHERE id = %s", event.id)
    await world.drain()
    [_, reply] = await world.history(conversation)
    assert reply["fallbackUsed"]
    assert reply["content"].startswith(FALLBACK)
    assert world.model.calls == []


async def test_a_model_that_fails_costs_one_fallback_and_no_more(world: World) -> None:
    conversation = await world.conversation()
    world.model.will_fail(*[ConnectionError("no route")] * 3)
    reply = await world.says(conversation, "hello")
    assert reply["fallbackUsed"]
    assert reply["content"].startswith(FALLBACK)
    assert len(world.model.calls) == 3
    assert (await world.says(conversation, "again"))["content"] == "re: again"


async def test_a_model_that_recovers_is_asked_again(world: World) -> None:
    conversation = await world.conversation()
    world.model.will_fail(TimeoutError(), ConnectionError())
    reply = await world.says(conversation, "hello")
    assert (reply["content"], reply["fallbackUsed"]) == ("re: hello", False)


async def test_two_replicas_share_the_work_and_the_order(database_url: str) -> None:
    async with open_world(database_url) as one, open_world(database_url) as two:
        conversation = await one.conversation()
        slow = one.model.will_wait("first")
        first = asyncio.create_task(one.says(conversation, "1"))
        await slow.begun.wait()
        # The other replica accepts while the first one is busy there; the answer reaches its own client.
        second = asyncio.create_task(two.says(conversation, "2"))
        await until(lambda: queued(one))
        assert slow.gate is not None
        slow.gate.set()
        assert (await first)["content"] == "first"
        assert (await second)["content"] == "re: 2"
        assert [m["content"] for m in await two.history(conversation)] == ["1", "2", "first", "re: 2"]


async def queued(world: World) -> bool:
    return await world.sql("SELECT count(*) FROM events WHERE state = 'queued'") == [(1,)]


async def test_a_worker_that_is_full_leaves_the_rest_to_others(database_url: str) -> None:
    async with open_world(database_url, max_turns=1) as full, open_world(database_url) as free:
        blocked, other = await full.conversation(), await full.conversation()
        slow = full.model.will_wait("slow")
        waiting = asyncio.create_task(full.says(blocked, "one"))
        await slow.begun.wait()
        assert (await full.says(other, "two"))["content"] == "re: two"
        assert len(free.model.calls) == 1
        assert slow.gate is not None
        slow.gate.set()
        await waiting


async def test_stopping_lets_a_turn_finish(database_url: str) -> None:
    async with open_world(database_url) as world:
        conversation = await world.conversation()
        slow = world.model.will_wait("done")
        waiting = asyncio.create_task(world.says(conversation, "one"))
        await slow.begun.wait()
        world.worker.begin_drain(5)
        assert (await world.post(conversation, "late")).status_code == 503
        assert slow.gate is not None
        slow.gate.set()
        assert (await waiting)["content"] == "done"


async def test_stopping_hands_over_what_takes_too_long(database_url: str) -> None:
    async with open_world(database_url) as leaving, open_world(database_url) as staying:
        conversation = await leaving.conversation()
        slow = leaving.model.will_wait("never")
        waiting = asyncio.create_task(leaving.post(conversation, "one"))
        await slow.begun.wait()
        leaving.worker.begin_drain(0.1)
        response = await waiting
        assert (response.status_code, response.json()["content"]) == (200, "re: one")
        assert [m["content"] for m in await staying.history(conversation)] == ["one", "re: one"]


async def test_stopping_alone_says_that_the_message_is_kept(database_url: str) -> None:
    async with open_world(database_url) as leaving:
        conversation = await leaving.conversation()
        slow = leaving.model.will_wait("never")
        waiting = asyncio.create_task(leaving.post(conversation, "one", client_message_id="a"))
        await slow.begun.wait()
        leaving.worker.begin_drain(0.1)
        response = await waiting
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        assert "stored" in response.json()["detail"]
    async with open_world(database_url) as back:
        assert (await back.says(conversation, "one", client_message_id="a"))["content"] == "re: one"
        assert len(await back.history(conversation)) == 2


async def test_nothing_is_accepted_while_stopping(world: World) -> None:
    conversation = await world.conversation()
    world.worker.begin_drain(0)
    with pytest.raises(Busy):
        await world.worker.accept(Incoming("local", conversation, "hello"))
    assert await world.sql("SELECT count(*) FROM messages") == [(0,)]


# ---- streaming and cancelling


async def frames(world: World, conversation: str, content: str, **more: str) -> AsyncIterator[tuple[str, Any]]:
    async with world.http.stream(
        "POST",
        f"/chat/conversations/{conversation}/messages",
        json={"content": content, **more},
        headers={"accept": "text/event-stream"},
    ) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


async def test_a_stream_is_tokens_and_then_the_stored_message(world: World) -> None:
    conversation = await world.conversation()
    world.model.will_say("one two three four")
    got = [frame async for frame in frames(world, conversation, "count")]
    assert [name for name, _ in got[:-1]] == ["token"] * (len(got) - 1)
    assert "".join(data["token"] for _, data in got[:-1]) == "one two three four"
    assert got[-1][0] == "final"
    assert got[-1][1] == (await world.history(conversation))[-1]


async def test_tokens_come_before_the_answer_is_finished(world: World) -> None:
    conversation = await world.conversation()
    slow = world.model.will_wait("early then late")
    stream = frames(world, conversation, "go")
    assert await anext(stream) == ("token", {"token": "early"})
    assert slow.gate is not None
    slow.gate.set()
    assert [name async for name, _ in stream][-1] == "final"


async def test_a_client_that_leaves_in_the_middle_loses_nothing(world: World) -> None:
    conversation = await world.conversation()
    slow = world.model.will_wait("all of the answer")
    stream = frames(world, conversation, "go")
    await anext(stream)
    await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert slow.gate is not None
    slow.gate.set()
    await world.drain()
    assert (await world.history(conversation))[-1]["content"] == "all of the answer"


async def test_a_cancelled_turn_keeps_what_was_streamed_and_says_so(world: World) -> None:
    conversation = await world.conversation()
    world.model.will_wait("beginning and the rest")
    stream = frames(world, conversation, "go")
    await anext(stream)
    cancelled = await world.http.post(f"/chat/conversations/{conversation}/cancel")
    assert cancelled.json() == {"cancelled": True}
    [(name, message)] = [frame async for frame in stream]
    assert name == "cancelled"
    assert (message["content"], message["cancelled"]) == ("beginning", True)
    assert (await world.history(conversation))[-1] == message
    assert (await world.says(conversation, "go on"))["content"] == "re: go on"


async def test_a_turn_is_cancelled_wherever_it_runs(database_url: str) -> None:
    async with open_world(database_url) as one, open_world(database_url) as two:
        conversation = await one.conversation()
        slow = one.model.will_wait("never")
        waiting = asyncio.create_task(one.says(conversation, "hello"))
        await slow.begun.wait()
        assert (await two.http.post(f"/chat/conversations/{conversation}/cancel")).json() == {"cancelled": True}
        reply = await waiting
        assert (reply["cancelled"], reply["content"]) == (True, "")
        # An answer that never began is no part of what the model reads later.
        await one.says(conversation, "next")
        assert [str(m.text) for m in one.model.calls[-1][1:]] == ["hello", "next"]


async def test_cancelling_when_nothing_runs_changes_nothing(world: World) -> None:
    conversation = await world.conversation()
    await world.says(conversation, "hello")
    assert (await world.http.post(f"/chat/conversations/{conversation}/cancel")).json() == {"cancelled": False}
    assert len(await world.history(conversation)) == 2


# ---- delivery


async def test_a_reply_to_a_pushed_channel_goes_through_the_outbox(world: World) -> None:
    conversation = await world.conversation(channel="recording")
    for text in ("one", "two", "three"):
        await world.says(conversation, text)
    await world.drain()
    assert world.channel.sent == ["re: one", "re: two", "re: three"]
    assert await world.sql("SELECT DISTINCT state FROM outbox") == [("sent",)]


async def test_a_send_that_failed_is_tried_again_in_order(world: World) -> None:
    conversation = await world.conversation(channel="recording")
    world.channel.failures.append(Transient("flood control", retry_after=0))
    await world.says(conversation, "one")
    await world.says(conversation, "two")
    await until(lambda: waits(world))
    await world.sql("UPDATE outbox SET due_at = now()")
    await world.drain()
    assert world.channel.sent == ["re: one", "re: two"]


async def waits(world: World) -> bool:
    return await world.sql("SELECT count(*) FROM outbox WHERE attempts = 1 AND state = 'queued'") == [(1,)]


@pytest.mark.parametrize(
    ("error", "state"), [(OutcomeUnknown("timed out"), "unknown"), (Permanent("blocked by the user"), "failed")]
)
async def test_a_send_that_must_not_be_repeated_is_parked(world: World, error: Exception, state: str) -> None:
    conversation = await world.conversation(channel="recording")
    world.channel.failures.append(error)
    await world.says(conversation, "one")
    await world.drain()
    assert world.channel.sent == []
    assert await world.sql("SELECT state FROM outbox") == [(state,)]


async def test_a_crash_between_send_and_mark_does_not_send_twice(world: World) -> None:
    conversation = await world.conversation(channel="recording")
    event = await claimed_by(world.database, conversation, "hello", worker=world.worker.worker_id)
    async with world.database.transaction() as connection:
        # In one transaction, so that the world's own worker can't be quicker.
        await Events(connection).finish(event, Reply("hi"), agent_name="x", push=True)
        taken = await Outbox(connection).claim(
            worker_id="dies after sending", channels=["recording"], limit=1, patience=60
        )
    assert len(taken) == 1
    await world.drain()
    assert await world.sql("SELECT state FROM outbox") == [("unknown",)]
    assert world.channel.sent == []


async def test_a_channel_that_fails_unexpectedly_blocks_nothing(world: World) -> None:
    conversation, other = await world.conversation(channel="recording"), await world.conversation(channel="recording")
    world.channel.failures.append(RuntimeError("a bug in the channel"))
    await world.says(conversation, "one")
    await until(lambda: parked(world))
    await world.says(conversation, "two")
    await world.says(other, "three")
    await world.drain()
    assert world.channel.sent == ["re: two", "re: three"]


async def parked(world: World) -> bool:
    return await world.sql("SELECT count(*) FROM outbox WHERE state = 'unknown'") == [(1,)]


# ---- regressions


async def test_a_client_that_resends_while_it_waits_in_line_gets_its_stream(world: World) -> None:
    """The first connection breaks; the second one keeps waiting and gets tokens and the reply."""
    conversation = await world.conversation()
    slow = world.model.will_wait("slow")
    blocking = asyncio.create_task(world.says(conversation, "one"))
    await slow.begun.wait()
    first = asyncio.create_task(collect(world, conversation, "two", "key"))
    await until(lambda: queued(world))
    second = asyncio.create_task(collect(world, conversation, "two", "key"))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.sleep(0.1)
    assert slow.gate is not None
    slow.gate.set()
    await blocking
    assert (await asyncio.wait_for(second, LIMIT_SECONDS))[-1][0] == "final"


async def collect(world: World, conversation: str, content: str, key: str) -> list[tuple[str, Any]]:
    return [frame async for frame in frames(world, conversation, content, client_message_id=key)]


async def test_what_waits_behind_a_recovered_turn_is_answered_at_once(world: World) -> None:
    """A worker also gets its own notification about a finished turn, which must not stop it."""
    conversation = await world.conversation()
    await claimed_by(world.database, conversation, "one", worker="gone")
    for text in ("two", "three", "four"):
        await accept(world.database, Incoming("local", conversation, text), worker_id="gone", claim=True)
    await world.drain()
    assert [m["content"] for m in await world.history(conversation)][4:] == [
        "re: one",
        "re: two",
        "re: three",
        "re: four",
    ]
    assert await world.sql("SELECT max(attempts) FROM events WHERE fence < 3") == [(2,)]
    assert len(world.model.calls) == 4


async def test_a_reply_that_cannot_be_stored_as_it_is_is_stored_as_it_can(world: World) -> None:
    conversation = await world.conversation()
    world.model.will_say("be\x00fore \ud800 after")
    assert (await world.says(conversation, "hello"))["content"] == "before ? after"
    assert len(world.model.calls) == 1


async def test_a_turn_can_be_cancelled_from_its_start_until_its_reply_is_settled() -> None:
    loading, settled = Draft(), Draft()
    assert loading.cancel()
    loading.begin()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    settled.end()
    assert not settled.cancel()


async def test_a_turn_that_needs_no_model_is_cancelled_while_it_loads(world: World) -> None:
    conversation = await world.conversation(agent_id="librarian")

    async def loads() -> bool:
        return await world.sql(
            "SELECT count(*) FROM pg_locks WHERE relation = 'note_counts'::regclass AND NOT granted"
        ) == [(1,)]

    async with world.database.transaction() as connection:
        await connection.execute("LOCK TABLE note_counts")
        waiting = asyncio.create_task(world.says(conversation, "hello"))
        await until(loads)
        assert (await world.http.post(f"/chat/conversations/{conversation}/cancel")).json() == {"cancelled": True}
    reply = await waiting
    assert (reply["cancelled"], reply["content"], reply["guardUsed"]) == (True, "", False)
    assert await world.sql("SELECT state, attempts FROM events") == [("done", 1)]


async def test_erasing_a_conversation_and_finishing_its_turn_do_not_block_each_other(world: World) -> None:
    for _ in range(10):
        conversation = await world.conversation()
        slow = world.model.will_wait()
        waiting = asyncio.create_task(world.post(conversation, "one"))
        await slow.begun.wait()
        assert slow.gate is not None
        slow.gate.set()
        erased = await world.http.delete(f"/chat/conversations/{conversation}")
        assert erased.status_code == 204
        assert (await waiting).status_code in {200, 404}
    await world.worker.stop(seconds=1)
    assert await world.sql("SELECT count(*) FROM checkpoints") == [(0,)]


async def test_dead_workers_and_waiting_messages_do_not_outlive_a_clock_that_went_back(world: World) -> None:
    conversation = await world.conversation()
    await claimed_by(world.database, conversation, "one", worker="gone")
    await world.sql(
        "INSERT INTO workers (id, host, pid, lease_until) VALUES ('gone', 'h', 1, now() + interval '1 hour') RETURNING 1"
    )
    await accept(world.database, Incoming("local", conversation, "two"), worker_id="gone", claim=False)
    await world.sql("UPDATE events SET due_at = now() + interval '1 hour' RETURNING 1")
    await world.drain()
    assert len(await world.history(conversation)) == 4
