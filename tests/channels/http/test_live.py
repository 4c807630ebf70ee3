"""Test live streams: a subscriber gets everything once and in order, and a slow one affects nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from rapport.channels.http.live import event_feed as watching
from rapport.channels.http.live import slow_clients as sending
from rapport.domain.conversation import Author, Incoming
from rapport.domain.errors import Busy
from rapport.ingest.accept import accept, apply_edit
from rapport.storage.access.api_keys import ApiKeys
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.new_messages import PAGE, NewMessages
from tests.storage.explained import Explained, PlanMode, plans
from tests.support.listening import listening
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import World, open_world, until


@pytest.fixture
async def elsewhere(world: World, database_url: str) -> AsyncGenerator[World]:
    """Another process on the same database."""
    async with open_world(database_url) as other:
        await until(world.worker.live_updates.has_peers)
        yield other


async def store(world: World, thread: str, text: str, **more: object) -> str:
    """Store a message without notifying any process."""
    incoming = Incoming("local", thread, text, **more)  # pyright: ignore[reportArgumentType]
    return (await accept(world.database, incoming, worker_id="nobody", claim=False)).message_id


# ---- what is told


async def test_a_subscriber_gets_messages_and_the_tokens_of_a_running_answer(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("Take the **night** train.")
    async with listening(world.http, thread) as listener:
        asking = asyncio.create_task(world.says(thread, "How do I get to Lisbon?"))
        await listener.until(lambda: listener.named("started"))
        step.go_on()
        reply = await asking
        await listener.until_said("How do I get to Lisbon?", "Take the **night** train.")
        asked, answered = listener.named("message")

        assert listener.events[0].name == "hello"
        assert answered["id"] == reply["id"]
        assert "<strong>night</strong>" in answered["html"]
        assert listener.named("started") == [{"message_id": asked["id"]}]
        assert listener.written(asked["id"]) == "Take the **night** train."
        assert listener.named("ended") == [{"message_id": asked["id"], "reply_id": reply["id"]}]
        names = [event.name for event in listener.events if event.name not in ("token", "timers")]
        assert names == ["hello", "message", "started", "ended", "message"]
    await until(lambda: world.worker.live_updates.count_subscriptions(thread) == 0)


async def test_a_reconnecting_client_gets_what_it_missed_and_nothing_twice(world: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as listener:
        await world.says(thread, "one")
        await listener.until_said("one", "re: one")
        known = listener.last_id
    await world.says(thread, "two")
    await world.says(thread, "three")

    async with listening(world.http, thread, after=known) as again:
        await again.until_said("two", "re: two", "three", "re: three")
        await world.says(thread, "four")
        await again.until_said("two", "re: two", "three", "re: three", "four", "re: four")
        assert again.named("hello") == []


async def test_a_reconnecting_browser_resumes_from_its_last_event_id_header(world: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as listener:
        await world.says(thread, "one")
        await listener.until_said("one", "re: one")
        first, last = (event.id for event in listener.events if event.name == "message")
    async with listening(world.http, thread, at="?after=0") as everything:
        await everything.until_said("one", "re: one")
    async with listening(world.http, thread, at="?after=0", after=first) as again:
        await again.until_said("re: one")
        assert again.last_id == last


async def test_a_client_that_missed_many_messages_gets_all_of_them_in_order(world: World) -> None:
    thread = await world.conversation(kind="group")
    async with listening(world.http, thread) as listener:
        known = listener.last_id
    texts = [f"{number} " + "long " * (number % 7) * 2_000 for number in range(70)]
    for text in texts:
        await store(world, thread, text)
    async with listening(world.http, thread, after=known) as again:
        await again.until_said(*texts)
        numbers = [int(event.id or 0) for event in again.events if event.name == "message"]
        assert numbers == sorted(set(numbers))


async def test_a_late_subscriber_gets_a_running_answer_from_its_first_token(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("slowly but surely")

    async def ask() -> str:
        headers = {"Accept": "text/event-stream"}
        address = f"/chat/conversations/{thread}/messages"
        async with world.http.stream("POST", address, json={"content": "Well?"}, headers=headers) as response:
            await response.aread()
            return response.headers["x-message-id"]

    asking = asyncio.create_task(ask())
    await step.begun.wait()
    async with listening(world.http, thread) as listener:
        await listener.until(lambda: listener.named("token"))
        assert listener.named("token")[0]["text"] == "slowly"
        step.go_on()
        message_id = await asking
        await listener.until_said("slowly but surely")
        assert listener.named("started") == [{"message_id": message_id}]
        assert listener.written(message_id) == "slowly but surely"


async def test_thousands_of_words_arrive_without_loss(world: World) -> None:
    thread = await world.conversation()
    words = " ".join(f"word{number}" for number in range(2_000))
    step = world.model.will_wait(words)
    async with listening(world.http, thread) as one, listening(world.http, thread) as other:
        asking = asyncio.create_task(world.says(thread, "Tell me everything."))
        await one.until(lambda: one.named("started"))
        await other.until(lambda: other.named("started"))
        step.go_on()
        await asking
        for listener in (one, other):
            await listener.until_said("Tell me everything.", words)
            assert listener.written(listener.named("started")[0]["message_id"]) == words


async def test_a_follow_up_comes_as_a_message_and_nothing_of_its_trigger_does(world: World) -> None:
    thread = await world.conversation()
    await world.says(thread, "I'll think about it.")
    async with listening(world.http, thread) as listener:
        known = listener.last_id
        await world.silence(thread, reason="a secret")
        await listener.until_said("How is it going?")
        assert listener.named("message")[0]["autonomous"] is True
        await listener.until(lambda: listener.named("timers"))
        assert listener.named("started") == listener.named("token") == []
    async with listening(world.http, thread, after=known) as again:
        await again.until_said("How is it going?")
        for event in (*listener.events, *again.events):
            assert "Continue our conversation" not in str(event)
            assert "secret" not in str(event)


async def test_a_message_that_is_changed_is_told_again(world: World) -> None:
    thread = await world.conversation(kind="group", channel="recording")
    author = Author("7", "Ada")
    await store(world, thread, "Lunch at one?", author=author, platform_id="p1")
    async with listening(world.http, thread) as listener:
        await store(world, thread, "Yes", author=Author("8", "Ben"), platform_id="p2")
        edited = Incoming(
            "local", thread, "Lunch at two?", author=author, platform_id="p1", edited_at=datetime.now(UTC)
        )
        assert await apply_edit(world.database, edited)
        await listener.until_said("Yes", "Lunch at two?")
        numbers = [int(event.id or 0) for event in listener.events if event.name == "message"]
        assert numbers == sorted(numbers)


async def test_follow_ups_that_are_set_moved_and_cancelled_are_told_of(world: World) -> None:
    thread = await world.conversation()
    timers = f"/api/threads/{thread}/timers"
    body = {"trigger_type": "check_in", "delay_seconds": 3600, "timer_id": "tea"}
    async with listening(world.http, thread) as listener:

        async def told(times: int) -> None:
            await listener.until(lambda: len(listener.named("timers")) >= times)

        assert (await world.http.post(timers, json=body)).status_code == 201
        await told(1)
        assert (await world.http.patch(f"{timers}/tea", json={"delay_seconds": 60})).status_code == 200
        await told(2)
        assert (await world.http.delete(f"{timers}/tea")).status_code == 204
        await told(3)
        assert (await world.http.post(timers, json=body)).status_code == 201
        await told(4)
        await world.says(thread, "Never mind.")  # which cancels what waits
        await told(5)


async def test_a_memory_change_reaches_every_stream_of_the_owner(world: World, elsewhere: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as here, listening(elsewhere.http, thread) as there:
        made = (await world.http.post("/api/memories", json={"content": "Likes tea."})).json()
        await world.http.patch(f"/api/memories/{made['id']}", json={"content": "Likes green tea."})
        for listener in (here, there):
            await listener.until(lambda heard=listener: heard.named("memory.created") and heard.named("memory.updated"))
            assert listener.named("memory.updated")[0]["content"] == "Likes green tea."
            assert listener.named("memory.created")[0]["id"] == made["id"]
        await world.http.delete(f"/api/memories/{made['id']}")
        for listener in (here, there):
            await listener.until(lambda heard=listener: heard.named("memory.deleted"))
            assert listener.named("memory.deleted") == [{"id": made["id"]}]
            assert (len(listener.named("memory.created")), len(listener.named("memory.updated"))) == (1, 1)


async def test_a_memory_stored_by_a_turn_reaches_the_stream(world: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as listener:
        await world.says(thread, "Please remember that my sister is called Nora.")
        await listener.until(lambda: listener.named("memory.created"))
        assert "Nora" in listener.named("memory.created")[0]["content"]


# ---- from wherever it comes


async def test_a_message_stored_by_another_process_reaches_the_stream(world: World, elsewhere: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as listener:
        await elsewhere.says(thread, "Hello from afar")
        await listener.until_said("Hello from afar", "re: Hello from afar")
        assert listener.named("token") == []  # it was written there


async def test_a_message_without_a_notification_is_found_by_polling(world: World) -> None:
    thread = await world.conversation(kind="group")
    async with listening(world.http, thread) as listener:
        await store(world, thread, "psst")
        await listener.until_said("psst")


async def test_messages_of_two_processes_reach_the_streams_of_both_in_order(world: World, elsewhere: World) -> None:
    thread = await world.conversation(kind="group")
    async with listening(world.http, thread) as here, listening(elsewhere.http, thread) as there:

        async def speak(server: World, name: str) -> None:
            for number in range(10):
                response = await server.post(thread, f"{name} {number}", author={"id": name, "name": name})
                assert response.status_code == 202

        await asyncio.gather(
            *(speak(server, f"{who}{n}") for n in range(3) for who, server in (("a", world), ("b", elsewhere)))
        )
        for listener in (here, there):
            await listener.until(lambda heard=listener: len(heard.messages) >= 60)
            numbers = [int(event.id or 0) for event in listener.events if event.name == "message"]
            assert numbers == sorted(set(numbers))
        assert here.messages == there.messages
        assert len(set(here.messages)) == 60


# ---- whose it is, and for how long


async def test_a_conversation_of_another_owner_cannot_be_subscribed_to(world: World) -> None:
    foreign = await world.conversation(owner="somebody")
    for thread in (foreign, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "nonsense"):
        response = await world.http.get(f"/api/threads/{thread}/events")
        assert response.status_code == 404
    mine = await world.conversation()
    for number in ("x", "-1", "1.5", "9" * 40, "²"):
        response = await world.http.get(f"/api/threads/{mine}/events", params={"after": number})
        assert response.status_code == 400, number


async def test_a_page_of_another_site_hears_nothing(world: World) -> None:
    thread = await world.conversation()
    response = await world.http.get(f"/api/threads/{thread}/events", headers={"Origin": "https://evil.example"})
    assert response.status_code == 401


async def test_revoking_a_key_ends_its_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ACCESS_CACHE_SECONDS", 0.0)
    async with world.database.statement() as connection:
        _, secret = await ApiKeys(connection).create("ada", name="ada")
    thread = await world.conversation(owner="ada", kind="group")
    async with listening(world.http, thread, Authorization=f"Bearer {secret}") as listener:
        await world.sql("UPDATE api_keys SET revoked_at = clock_timestamp()")
        incoming = Incoming("ada", thread, "a secret")
        await accept(world.database, incoming, worker_id="nobody", claim=False)
        await asyncio.wait_for(listener.ended.wait(), LIMIT_SECONDS)
        assert listener.messages == []


async def test_who_opens_too_many_streams_is_told_and_others_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapport.runtime.live_updates.MAX_SUBSCRIPTIONS", 2)
    threads = [await world.conversation() for _ in range(3)]
    async with listening(world.http, threads[0]) as first:
        async with listening(world.http, threads[1]):
            refused = await world.http.get(f"/api/threads/{threads[2]}/events")
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "10"
            assert refused.json()["detail"] == "2 connections of yours are open already: close some."
        await until(lambda: world.worker.live_updates.count_subscriptions(threads[1]) == 0)
        async with listening(world.http, threads[2]) as third:
            await world.says(threads[2], "hi")
            await third.until_said("hi", "re: hi")
        await world.says(threads[0], "hello")
        await first.until_said("hello", "re: hello")


async def test_when_a_conversation_is_erased_its_streams_end(world: World) -> None:
    thread = await world.conversation()
    async with listening(world.http, thread) as listener:
        await world.http.delete(f"/chat/conversations/{thread}")
        await asyncio.wait_for(listener.ended.wait(), LIMIT_SECONDS)
    assert (await world.http.get(f"/api/threads/{thread}/events")).status_code == 404


async def test_a_server_that_stops_sends_everybody_away_at_once(world: World) -> None:
    thread = await world.conversation()
    step = world.model.will_wait("in the end")
    async with listening(world.http, thread) as listener:
        asking = asyncio.create_task(world.says(thread, "Well?"))
        await step.begun.wait()
        world.worker.begin_drain(10 * LIMIT_SECONDS)
        await asyncio.wait_for(listener.ended.wait(), LIMIT_SECONDS)
        with pytest.raises(Busy):
            await world.worker.live_updates.subscribe("local", thread)
        step.go_on()
        assert (await asking)["content"] == "in the end"


async def test_without_subscribers_nothing_is_polled(world: World) -> None:
    thread = await world.conversation()
    await world.says(thread, "hello")
    live = world.worker.live_updates
    assert live.count_subscriptions(thread) == 0
    assert not live._changed  # pyright: ignore[reportPrivateUsage]
    assert not live._hints  # pyright: ignore[reportPrivateUsage]


# ---- those who are slow


def stalled(world: World, thread: str) -> socket.socket:
    """A client that requests a stream and never reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    client.connect(("127.0.0.1", int(world.http.base_url.port or 0)))
    client.sendall(f"GET /api/threads/{thread}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


async def test_who_stops_reading_is_cut_off_and_nobody_else_notices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "STALL_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(sending, "CHECK_INTERVAL_SECONDS", 0.1)
    thread = await world.conversation(kind="group")
    live = world.worker.live_updates
    clients = [stalled(world, thread) for _ in range(20)]
    async with listening(world.http, thread) as reader:
        await until(lambda: live.count_subscriptions(thread) == 21)
        texts = [f"{number} " + "x" * 20_000 for number in range(20)]
        for text in texts:
            assert (await world.post(thread, text)).status_code == 202
        await reader.until_said(*texts)
        await until(lambda: live.count_subscriptions(thread) == 1)
        assert (await world.post(thread, "still there?")).status_code == 202
        await reader.until(lambda: reader.messages[-1] == "still there?")
    for client in clients:
        client.close()


async def test_who_reads_slowly_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "STALL_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(sending, "CHECK_INTERVAL_SECONDS", 0.1)
    thread = await world.conversation(kind="group")
    client = stalled(world, thread)
    client.setblocking(False)
    await until(lambda: world.worker.live_updates.count_subscriptions(thread) == 1)
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def read_slowly() -> bytes:
        heard = b""
        while b'"content":"9 ' not in heard:
            piece = await asyncio.wait_for(loop.sock_recv(client, 2_048), LIMIT_SECONDS)
            assert piece, "cut off"
            heard += piece
            await asyncio.sleep(0.02)
        return heard

    reading = asyncio.create_task(read_slowly())
    for number in range(10):
        await store(world, thread, f"{number} " + "y" * 20_000)
    heard = await reading
    assert [f'"content":"{number} '.encode() in heard for number in range(10)] == [True] * 10
    assert loop.time() - begun > 1.0, "it was not slower than the time-out of a client that reads nothing"
    client.close()


async def test_many_who_come_back_at_once_are_told_the_same(world: World) -> None:
    thread = await world.conversation(kind="group")
    lines = [f"line {number}" for number in range(50)]
    for line in lines:
        await store(world, thread, line)
    async with contextlib.AsyncExitStack() as stack:
        everybody = [await stack.enter_async_context(listening(world.http, thread, after="0")) for _ in range(30)]
        for listener in everybody:
            await listener.until_said(*lines)


# ---- what it costs


@plans
async def test_new_messages_are_read_by_an_index_however_long_the_history(database: Database, mode: PlanMode) -> None:
    async with database.statement() as connection:
        thread = (await Conversations(connection).create("local", agent_id="companion")).id
        await connection.execute(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at)"
            " SELECT %s, 'm' || n, 'local', 'user', repeat('words ', 20), clock_timestamp() + n * interval '1 s'"
            " FROM generate_series(1, 20000) AS n",
            (thread,),
        )
        await connection.execute("ANALYZE messages")
        newest = (await NewMessages(connection).get_position("local", thread)).newest
        explained = Explained(connection, mode)
        page = await NewMessages(explained.as_connection).list_after("local", thread, newest - 5)
        assert [seq for seq, _ in page] == list(range(newest - 4, newest + 1))
        assert explained.walked("messages") <= PAGE
        await NewMessages(explained.as_connection).get_positions([thread])
        assert explained.walked("messages") == 1
