"""Test group messages from channels: forum topics, other bots, platform ids, parents that are not stored (CTX-1, CTX-9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import pytest

from rapport.domain.conversation import Author, Incoming
from rapport.domain.errors import Conflict
from rapport.domain.outgoing import Outgoing
from rapport.ingest.accept import accept
from rapport.ingest.content import MAX_PAYLOAD_BYTES, keep_storable_payload
from rapport.storage.database import Connection, Database
from rapport.storage.messages.messages import Messages
from rapport.storage.prepared_statement import PreparedStatement
from tests.support.cases import every_case
from tests.support.world import World, until

ANA = {"id": "u1", "name": "Ana"}
WEATHER = {"id": "u8", "name": "Weather"}


async def group(world: World, **settings: Any) -> str:
    return await world.conversation(kind="group", **settings)


async def stored(world: World, where: str, content: Any, **more: Any) -> str:
    """Store a message that is not answered; return its id."""
    response = await world.post(where, content, **more)
    assert response.status_code == 202, response.text
    assert response.json()["replied"] is False
    return response.json()["id"]


# ---- what is kept of a message


async def test_a_message_keeps_what_its_channel_knows_of_it(world: World) -> None:
    where = await group(world)
    first = await stored(world, where, "tea?", author=ANA, thread_id="7", platform_id="41", mentions=["u2", "u3", "u2"])
    reply = await world.says(where, "@bot well?", author=ANA, thread_id="7", platform_id="42")
    history = await world.history(where)
    assert [(one["id"], one["thread_id"], one["is_bot"]) for one in history] == [
        (first, "7", False),
        (reply["reply_to_id"], "7", False),
        (reply["id"], "7", True),
    ]
    assert all("payload" not in one and one["context_snapshot"] is None for one in history)
    assert await world.sql("SELECT mentions, platform_id FROM messages WHERE id = %s", first) == [(["u2", "u3"], "41")]


async def test_the_platforms_own_update_is_kept_and_never_loaded(world: World) -> None:
    where = await group(world)
    update = {"update_id": 7, "message": {"text": "hi", "from": {"is_premium": True}}}
    ticket = await world.worker.accept(Incoming("local", where, "hi", payload=update))
    assert await world.sql("SELECT payload FROM messages") == [(update,)]
    async with world.database.statement() as connection:
        message = await Messages(connection).get("local", where, ticket.accepted.message_id)
    assert message is not None
    assert "is_premium" not in repr(message)
    assert "is_premium" not in str(await world.history(where))


@pytest.mark.parametrize(
    "payload",
    [{"text": "a\x00b"}, {"text": "\ud800"}, {"text": "x" * MAX_PAYLOAD_BYTES}, {"at": object()}, {1: {2: 3}}],
)
async def test_an_update_that_cant_be_kept_is_no_reason_to_lose_its_message(world: World, payload: Any) -> None:
    where = await group(world)
    assert keep_storable_payload(payload) is None
    await world.worker.accept(Incoming("local", where, "hi", payload=payload))
    assert await world.sql("SELECT content, payload FROM messages") == [("hi", None)]


@pytest.mark.parametrize("text", ["\\u0000", "C:\\users\\u00001", "\\\\u0000"])
async def test_an_update_that_only_speaks_of_a_nul_is_kept(world: World, text: str) -> None:
    where = await group(world)
    await world.worker.accept(Incoming("local", where, "hi", payload={"text": text, text: 1}))
    assert await world.sql("SELECT payload FROM messages") == [({"text": text, text: 1},)]
    assert keep_storable_payload({"text": f"{text}\x00"}) is None
    assert keep_storable_payload({"text": f"\\\x00{text}"}) is None


async def test_a_follow_up_stays_in_the_topic_where_the_talk_was(world: World) -> None:
    where = await group(world)
    await world.sql("UPDATE conversations SET autonomy_enabled = true")
    await world.says(where, "@bot is the tent dry?", thread_id="7")
    timer = await world.silence(where)
    assert timer.state == "delivered"
    last = (await world.history(where))[-1]
    assert (last["autonomous"], last["thread_id"], last["is_bot"]) == (True, "7", True)


# ---- what is replied to


async def test_a_parent_is_found_by_what_its_platform_calls_it(world: World) -> None:
    where, elsewhere = await group(world), await group(world)
    parent = await stored(world, where, "tea?", platform_id="41")
    await stored(world, elsewhere, "coffee?", platform_id="41")
    await stored(world, where, "yes", reply_to_platform_id="41", context_snapshot={"text": "tea?"})
    await stored(world, where, "no", context_snapshot={"id": "41", "text": "tea?"})
    assert [(one["reply_to_id"], one["context_snapshot"]) for one in (await world.history(where))[1:]] == [
        (parent, None),
        (parent, None),
    ]


async def test_a_parent_that_nobody_has_stored_is_kept_as_the_reply_tells_it(world: World) -> None:
    where = await group(world)
    snapshot = {"id": "3", "author": "Zoe", "text": "the thai place", "created_at": "2024-05-03T11:00:00+02:00"}
    await world.says(where, "@bot is this still open?", context_snapshot=snapshot)
    asked, _ = await world.history(where)
    assert asked["reply_to_id"] is None
    assert asked["context_snapshot"] == {
        "id": "3",
        "author": {"id": "Zoe", "name": "Zoe"},
        "text": "the thai place",
        "created_at": "2024-05-03T09:00:00+00:00",
    }
    assert await stored(world, where, "to whom?", reply_to_platform_id="never seen")


async def test_a_reply_to_what_the_agent_sent_is_for_the_agent(world: World) -> None:
    """By the id that the platform gave the agent's message when it was delivered."""
    where = await group(world, channel="recording")
    await world.says(where, "@bot hello")
    await world.drain()
    assert await world.sql("SELECT platform_id FROM messages WHERE role = 'assistant'") == [("platform-1",)]
    reply = await world.says(where, "and now?", reply_to_platform_id="platform-1")
    assert reply["content"]


async def test_a_reply_to_any_part_of_what_the_agent_sent_is_for_the_agent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, elsewhere = await group(world, channel="recording"), await group(world)

    async def in_parts(message: Outgoing) -> AsyncIterator[str]:
        world.channel.sent.append(message.text)
        later = "" if len(world.channel.sent) == 1 else f"-{len(world.channel.sent)}"  # a platform gives no id twice
        for part in ("p1", "p2", "p3"):
            yield f"{part}{later}"

    monkeypatch.setattr(world.channel, "send", in_parts)
    long = await world.says(where, "@bot tell me everything")
    await world.drain()
    for part in ("p1", "p2", "p3"):
        reply = await world.says(where, "and why?", reply_to_platform_id=part)
        asked = next(one for one in await world.history(where) if one["id"] == reply["reply_to_id"])
        assert asked["reply_to_id"] == long["id"]
    await stored(world, where, "and why?", reply_to_platform_id="p4")
    await stored(world, elsewhere, "and why?", reply_to_platform_id="p2")


async def test_what_was_sent_stays_sent_when_its_echo_comes_at_the_same_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that hears its own messages may store one before the answer to its sending is here."""
    where = await group(world, channel="recording")
    async with await psycopg.AsyncConnection.connect(world.database.url) as echo:

        async def send(message: Outgoing) -> AsyncIterator[str]:
            world.channel.sent.append(message.text)
            await echo.execute(
                "INSERT INTO messages (conversation_id, id, owner_id, role, content, created_at, platform_id)"
                " VALUES (%s, 'echo', 'local', 'user', %s, now(), 'p1')",
                (where, message.text),
            )
            yield "p1"

        async def waits() -> bool:
            return await world.sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ) == [(1,)]

        monkeypatch.setattr(world.channel, "send", send)
        await world.says(where, "@bot tell me")
        await until(waits)
        await echo.commit()
    await world.drain()
    assert await world.sql("SELECT state, platform_ids, error FROM outbox") == [("sent", ["p1"], None)]
    assert len(world.channel.sent) == 1
    assert await world.sql("SELECT id FROM messages WHERE platform_id = 'p1'") == [("echo",)]


async def test_an_unknown_reply_to_id_is_still_an_error(world: World) -> None:
    where = await group(world)
    response = await world.post(where, "hm", reply_to_id="01J8ZQ4T9V0E7M3K2N5R6S8XYA", context_snapshot={"text": "x"})
    assert response.status_code == 400
    assert await world.history(where) == []


# ---- topics


async def test_in_a_direct_chat_a_topic_changes_nothing(world: World) -> None:
    where = await world.conversation()
    await world.says(where, "the train leaves at nine")
    await world.says(where, "and I need a ticket", thread_id="7")
    reply = await world.says(where, "when does it leave?", thread_id="8")
    told = [str(message.content) for message in world.model.calls[-1]]
    assert {"the train leaves at nine", "and I need a ticket", "when does it leave?"} <= set(told)
    route = f"/api/threads/{where}/context"
    now = (await world.http.get(route, params={"message_id": reply["id"], "strategy": "recent"})).json()
    assert [one["id"] for one in now["messages"]] == [one["id"] for one in await world.history(where)][:-1]


# ---- who is addressed


async def test_a_text_mention_a_command_and_a_reply_are_for_the_agent(world: World) -> None:
    where = await group(world)
    assert (await world.says(where, "what do you think?", mentions=["companion"]))["role"] == "assistant"
    assert (await world.says(where, "/ask@bot what do you think?"))["role"] == "assistant"
    last = await world.says(where, "@bot and you?")
    assert (await world.says(where, "thanks", reply_to_id=last["id"]))["role"] == "assistant"
    await stored(world, where, "what do you think?", mentions=["u2"])
    await stored(world, where, "/ask@weatherbot what do you think?")
    await stored(world, where, "> @bot and you?\nI'd like to know too")
    await stored(world, where, "just write `@bot` and ask")


# ---- other bots


async def test_what_another_bot_says_is_kept_and_never_answered(world: World) -> None:
    where, alone = await group(world), await world.conversation()
    reply = await world.says(where, "@bot hello")
    await stored(world, where, "@bot it rains", author=WEATHER, is_bot=True)
    await stored(world, where, "it rains", author=WEATHER, is_bot=True, mentions=["companion"])
    await stored(world, where, "it rains", author=WEATHER, is_bot=True, reply_to_id=reply["id"])
    await stored(world, alone, "it rains", author=WEATHER, is_bot=True)
    await world.drain()
    history = await world.history(where)
    assert [one["is_bot"] for one in history] == [False, True, True, True, True]
    assert len(world.model.calls) == 1
    assert await world.sql("SELECT open_event_count FROM conversations") == [(0,), (0,)]


async def test_two_agents_in_one_group_end_after_one_reply(world: World) -> None:
    """Each hears what the other says as that of a bot, whatever it says."""
    ours, theirs = await group(world), await group(world)
    world.model.will_say("@bot what do you say?", "@bot no, what do you say?")
    reply = await world.says(ours, "@bot settle this", author=ANA)
    await stored(world, theirs, "@bot settle this".replace("@bot", "@other"), author=ANA)
    await stored(world, theirs, reply["content"], author={"id": "ours", "name": "Ours"}, is_bot=True)
    await world.drain()
    assert [one["role"] for one in await world.history(theirs)] == ["user", "user"]
    assert len(world.model.calls) == 1


async def test_a_bots_message_does_not_count_as_a_persons(world: World) -> None:
    """Timers stay pending, and follow-ups in a row are still counted."""
    where = await group(world)
    await world.says(where, "@bot hello")
    await world.sql("UPDATE conversations SET consecutive_followups = 2")
    timer = {"trigger_type": "check_in", "delay_seconds": 3600}
    made = await world.http.post(f"/api/threads/{where}/timers", json=timer)
    assert made.status_code == 201, made.text
    before = await world.sql("SELECT user_message_count, consecutive_followups FROM conversations")
    await stored(world, where, "it rains", is_bot=True)
    assert await world.sql("SELECT user_message_count, consecutive_followups FROM conversations") == before
    assert await world.sql("SELECT count(*) FROM timers WHERE state = 'pending'") == [(1,)]
    await stored(world, where, "I see")
    assert await world.sql("SELECT consecutive_followups FROM conversations") == [(0,)]
    assert await world.sql("SELECT count(*) FROM timers WHERE state = 'pending'") == [(0,)]


# ---- the same again


async def test_the_same_message_of_a_platform_is_stored_once(world: World) -> None:
    where, elsewhere = await group(world), await group(world)
    first = await world.says(where, "@bot hello", author=ANA, platform_id="41")
    again = await world.says(where, "@bot hello", author=ANA, platform_id="41")
    assert again["id"] == first["id"]
    silent = await stored(world, where, "hm", author=ANA, platform_id="42")
    assert await stored(world, where, "hm", author=ANA, platform_id="42") == silent
    other = await world.post(where, "something else", author=ANA, platform_id="42")
    assert other.status_code == 409
    assert "platform_id" in other.json()["detail"]
    assert await stored(world, elsewhere, "hm", author=ANA, platform_id="42") != silent
    assert len(await world.history(where)) == 3
    assert len(world.model.calls) == 1


async def test_a_clients_id_counts_before_the_platforms(database: Database) -> None:
    from rapport.storage.conversations.conversations import Conversations

    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion", kind="group")).id

    async def sent(text: str, **more: Any) -> str:
        return (await accept(database, Incoming("local", where, text, **more), worker_id="w", claim=False)).message_id

    one = await sent("one", client_message_id="a", platform_id="1")
    two = await sent("two", client_message_id="b", platform_id="2")
    assert await sent("one", client_message_id="a", platform_id="9") == one
    assert await sent("two", client_message_id="c", platform_id="2") == two
    with pytest.raises(Conflict, match="client_message_id"):
        await sent("two", client_message_id="a", platform_id="2")
    with pytest.raises(Conflict, match="platform_id"):
        await sent("two", platform_id="2", author=Author("u", "U"))


async def test_many_that_bring_the_same_message_at_once_store_it_once(world: World) -> None:
    where = await group(world)
    found = await asyncio.gather(*(stored(world, where, "hm", platform_id="42") for _ in range(8)))
    assert len(set(found)) == 1
    assert len(await world.history(where)) == 1


# ---- hostile bodies


@every_case(
    "content",
    [
        "x" * 30_000,
        "👍🏽👨‍👩‍👧‍👦",
        "\u202e\u2067שלום @bot עולם\u2069",
        "a\u0301" * 100,
        "```" * 5_000,
        "> " * 10_000,
        "@" * 20_000,
    ],
)
async def test_odd_words_are_kept_as_they_are(world: World, content: str) -> None:
    where = await group(world)
    response = await world.post(where, content, context_snapshot={"text": content}, mentions=["👍"], thread_id="👍")
    assert response.status_code in (200, 202), response.text
    first = (await world.history(where))[0]
    assert (first["content"], first["context_snapshot"]["text"], first["thread_id"]) == (content, content, "👍")


@every_case(
    "fields",
    [
        {"mentions": ["a\x00"]},
        {"thread_id": "a\x00"},
        {"platform_id": "a\x00"},
        {"reply_to_platform_id": "a\x00"},
        {"context_snapshot": {"text": "a\x00"}},
        {"context_snapshot": {"text": "a", "id": "\x00"}},
        {"context_snapshot": {"text": "a", "author": "\x00"}},
        {"context_snapshot": {"text": "a", "author": {"id": "a", "name": "\x00"}}},
        {"context_snapshot": {"text": " \n"}},
        {"context_snapshot": {"text": "a", "created_at": "yesterday"}},
        {"context_snapshot": {"text": "a", "created_at": "9999-12-31T23:59:59-12:00"}},
        {"context_snapshot": {"text": "x" * 33_000}},
        {"mentions": [" "]},
    ],
)
async def test_what_cant_be_stored_is_refused_and_nothing_is_stored(world: World, fields: dict[str, Any]) -> None:
    where = await group(world)
    response = await world.post(where, "hello", **fields)
    assert response.status_code in (400, 413), response.text
    assert await world.history(where) == []


@every_case(
    "fields",
    [
        {"mentions": "ana"},
        {"mentions": ["a"] * 51},
        {"mentions": ["a" * 201]},
        {"mentions": [""]},
        {"mentions": [1]},
        {"thread_id": ""},
        {"thread_id": "x" * 201},
        {"thread_id": 7},
        {"platform_id": "x" * 201},
        {"is_bot": "yes"},
        {"is_bot": 1},
        {"context_snapshot": "a text"},
        {"context_snapshot": {}},
        {"context_snapshot": {"text": ""}},
        {"context_snapshot": {"text": "a", "created_at": 1}},
        {"context_snapshot": {"text": "a", "payload": {}}},
        {"payload": {}},
    ],
)
async def test_a_malformed_message_is_refused(world: World, fields: dict[str, Any]) -> None:
    where = await group(world)
    response = await world.post(where, "hello", **fields)
    assert response.status_code == 422, response.text
    assert await world.history(where) == []


async def test_half_of_a_surrogate_pair_is_refused(world: World) -> None:
    where = await group(world)
    response = await world.http.post(
        f"/chat/conversations/{where}/messages",
        content=b'{"content": "hello", "context_snapshot": {"text": "\\ud800"}}',
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 400
    assert await world.history(where) == []


# ---- what it costs


class Counting:
    """A database that counts the statements that go to it."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self._database = database
        self.count = 0
        run_prepared = PreparedStatement.execute

        async def count_prepared(statement: PreparedStatement, connection: Any, values: Mapping[str, Any]) -> list[Any]:
            if isinstance(connection, Counted):
                self.count += 1
                connection = connection.connection
            return await run_prepared(statement, connection, values)

        monkeypatch.setattr(PreparedStatement, "execute", count_prepared)

    @asynccontextmanager
    async def statement(self) -> AsyncGenerator[Connection]:
        async with self._database.statement() as connection:
            yield cast("Connection", Counted(self, connection))


@dataclass
class Counted:
    """A connection that counts its statements."""

    counting: Counting
    connection: Connection

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        self.counting.count += 1
        return await self.connection.execute(*arguments, **options)


async def test_to_accept_a_plain_message_is_one_statement(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    where = await group(world)
    counting = Counting(world.database, monkeypatch)
    plain = Incoming("local", where, "hello", thread_id="7", platform_id="1", mentions=["u1"])
    await accept(cast("Database", counting), plain, worker_id="w", claim=False)
    assert counting.count == 1
    reply = Incoming("local", where, "hello", reply_to_platform_id="1")
    await accept(cast("Database", counting), reply, worker_id="w", claim=False)
    assert counting.count == 3


# ---- their vectors


async def test_what_is_said_in_a_group_is_embedded_behind_the_talk_and_erased_with_it(world: World) -> None:
    where, alone = await group(world), await world.conversation()
    await stored(world, where, "the thai restaurant on 10th Ave?")
    await world.says(where, "@bot is it any good?")
    await world.says(alone, "this is between us")

    async def complete() -> bool:
        return await world.sql("SELECT conversation_id, count(*) FROM message_vectors GROUP BY 1") == [(where, 3)]

    await until(complete)
    assert (await world.http.delete(f"/chat/conversations/{where}")).status_code == 204
    assert await world.sql("SELECT count(*) FROM message_vectors") == [(0,)]
