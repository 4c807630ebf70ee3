"""Test the messages around a message: links by replies, neighbours and forum topics, at a bounded cost (by EXPLAIN)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from rapport.domain.context_selection import MAX_RECENT_MESSAGES
from rapport.domain.conversation import Author, Message
from rapport.domain.event import ClaimedEvent
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.messages.messages import Messages
from rapport.storage.messages.neighbours import (
    MAX_REPLIES,
    MAX_REPLIES_PER_MESSAGE,
    LinkedMessages,
    load_linked,
    load_recent,
)
from rapport.storage.work.turn_input import PICTURES, load_turn_input
from tests.storage.explained import MODES, Explained
from tests.support.cases import every_case

NOON = datetime(2024, 5, 6, 12, 0, tzinfo=UTC)
IMAGE = {"type": "image", "url": "https://example.org/cat.png"}
LONG = 20_000

# One in four replies to one of the twenty before it, one in fifty is the agent's, one in five is in a topic.
_CHAT = """
INSERT INTO messages (conversation_id, id, owner_id, role, author_id, author_name, content, created_at, reply_to_id,
                      thread_id, platform_id)
SELECT %(chat)s, 'm' || lpad(n::text, 12, '0'), 'local', CASE WHEN n %% 50 = 0 THEN 'assistant' ELSE 'user' END,
       'u' || n %% 40, 'User ' || n %% 40, 'message ' || n || repeat(' and so on', 10),
       %(noon)s + n * interval '1 minute',
       CASE WHEN n %% 4 = 0 AND n > 30 THEN 'm' || lpad((n - 1 - (n * 7919) %% 20)::text, 12, '0')
            WHEN n %% 97 = 0 THEN 'm000000000005' END,
       CASE WHEN n %% 5 = 1 THEN 't' || n %% 20 END, 'p' || n
FROM generate_series(1, %(count)s) n
"""


class Chat:
    """A group that is written down as it would be stored."""

    def __init__(self, database: Database, id_: str) -> None:
        self.database, self.id = database, id_
        self._count = 0

    async def says(self, text: str, *, minutes: float | None = None, id_: str | None = None, **more: Any) -> str:
        """A message, a minute after the one before or so many after noon; returns its id."""
        self._count += 1
        fields: dict[str, Any] = {
            "conversation_id": self.id,
            "id": id_ or f"m{self._count:04}",
            "owner_id": "local",
            "role": "user",
            "author_id": "ana",
            "author_name": "Ana",
            "content": text,
            "created_at": NOON + timedelta(minutes=self._count if minutes is None else minutes),
            **more,
        }
        names = ", ".join(fields)
        values = ", ".join(f"%({name})s" for name in fields)
        async with self.database.statement() as connection:
            await connection.execute(f"INSERT INTO messages ({names}) VALUES ({values})".encode(), fields)
        return str(fields["id"])

    async def linked(self, call: Message, **more: int) -> LinkedMessages:
        async with self.database.statement() as connection:
            return await load_linked(connection, "local", self.id, call, **more)


def a_call(chat: Chat | str, *, minutes: float = 10_000, **more: Any) -> Message:
    where = chat if isinstance(chat, str) else chat.id
    return Message("call", where, "user", "@bot?", NOON + timedelta(minutes=minutes), **more)


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


@pytest.fixture
async def chat(database: Database) -> Chat:
    async with database.statement() as connection:
        made = await Conversations(connection).create("local", agent_id="companion", kind="group")
    return Chat(database, made.id)


async def long_chat(database: Database, count: int = LONG) -> str:
    """A chat of so many messages, with statistics."""
    async with database.statement() as connection:
        made = await Conversations(connection).create("local", agent_id="companion", kind="group")
        await connection.execute(_CHAT, {"chat": made.id, "count": count, "noon": NOON})
        await connection.execute("ANALYZE messages")
    return made.id


# ---- links


async def test_an_anchor_comes_with_its_chain_and_its_neighbourhood(chat: Chat) -> None:
    for number in range(1, 4):
        await chat.says(f"before {number}")
    root = await chat.says("shall we eat out?")
    parent = await chat.says("thai?", reply_to_id=root)
    anchor = await chat.says("the one on 10th Ave", reply_to_id=parent)
    answer = await chat.says("it is closed on Mondays", reply_to_id=anchor)
    later = await chat.says("tuesday then", reply_to_id=answer)
    elsewhere = await chat.says("did anybody see my keys?")
    found = await chat.linked(a_call(chat, reply_to_id=anchor), neighbours=2)
    assert found.anchor is not None
    assert (found.anchor.id, found.anchor.text) == (anchor, "the one on 10th Ave")
    assert ids(found.chain) == [root, parent, answer, later]
    assert ids(found.around) == [root, parent, anchor, answer, later]
    everything = await chat.linked(a_call(chat, reply_to_id=anchor))
    assert ids(everything.around) == ["m0001", "m0002", "m0003", root, parent, anchor, answer, later, elsewhere]


async def test_what_was_said_after_the_call_is_not_linked_to_it(chat: Chat) -> None:
    anchor = await chat.says("lunch?", minutes=1)
    await chat.says("yes", minutes=2, reply_to_id=anchor)
    await chat.says("the call", minutes=3, id_="call", reply_to_id=anchor)
    await chat.says("too late", minutes=4, reply_to_id=anchor)
    found = await chat.linked(a_call(chat, minutes=3, reply_to_id=anchor))
    assert (ids(found.chain), ids(found.around)) == (["m0002"], ["m0001", "m0002"])


async def test_only_what_somebody_said_to_this_owner_is_linked(chat: Chat, database: Database) -> None:
    hidden = await chat.says("Continue our conversation naturally.", metadata=Jsonb({"synthetic": True}))
    await chat.says("what was said so far", role="system-summary")
    await chat.says("of somebody else", owner_id="eve")
    anchor = await chat.says("hello", reply_to_id=hidden)
    await chat.says("a summary", role="system-summary", reply_to_id=anchor)
    found = await chat.linked(a_call(chat, reply_to_id=anchor))
    assert (ids(found.chain), ids(found.around)) == ([], [anchor])
    assert await chat.linked(a_call(chat, reply_to_id=hidden)) == LinkedMessages(None, (), ())
    async with database.statement() as connection:
        assert await load_linked(connection, "eve", chat.id, a_call(chat, reply_to_id=anchor)) == LinkedMessages(
            None, (), ()
        )


async def test_a_circle_of_replies_ends(chat: Chat) -> None:
    """No channel makes one, but a file may claim one."""
    await chat.says("one", id_="one", reply_to_id="three")
    await chat.says("two", id_="two", reply_to_id="one")
    await chat.says("three", id_="three", reply_to_id="two")
    await chat.says("itself", id_="itself", reply_to_id="itself")
    found = await chat.linked(a_call(chat, reply_to_id="two"))
    assert ids(found.chain) == ["one", "three"]
    assert ids((await chat.linked(a_call(chat, reply_to_id="itself"))).chain) == []


async def test_a_chain_is_followed_so_far_and_no_further(chat: Chat) -> None:
    said = [await chat.says("first")]
    for number in range(100):
        said.append(await chat.says(f"and {number}", reply_to_id=said[-1]))
    found = await chat.linked(a_call(chat, reply_to_id=said[50]), depth=20)
    assert ids(found.chain) == [*said[30:50], *said[51 : 51 + MAX_REPLIES]]


async def test_of_very_many_replies_the_latest_are_taken(chat: Chat) -> None:
    anchor = await chat.says("who comes?")
    replies = [await chat.says("me", reply_to_id=anchor) for _ in range(MAX_REPLIES_PER_MESSAGE + 15)]
    found = await chat.linked(a_call(chat, reply_to_id=anchor))
    assert ids(found.chain) == replies[15:]


async def test_an_anchor_has_its_picture_and_the_others_only_words(chat: Chat) -> None:
    blocks = Jsonb([{"type": "text", "text": "look"}, IMAGE])
    first = await chat.says("", blocks=Jsonb([IMAGE]))
    anchor = await chat.says("look", blocks=blocks, reply_to_id=first)
    found = await chat.linked(a_call(chat, reply_to_id=anchor))
    assert found.anchor is not None
    assert found.anchor.content == [{"type": "text", "text": "look"}, IMAGE]
    assert [message.content for message in found.chain] == ["[picture]"]


async def test_in_a_forum_only_the_topic_is_linked_but_an_anchor_is_always_given(chat: Chat) -> None:
    general = await chat.says("which topic?")
    anchor = await chat.says("tents", thread_id="7", reply_to_id=general)
    await chat.says("stoves", thread_id="8", reply_to_id=anchor)
    answer = await chat.says("mine is old", thread_id="7", reply_to_id=anchor)
    found = await chat.linked(a_call(chat, reply_to_id=anchor, thread_id="7"))
    assert (ids(found.chain), ids(found.around)) == ([answer], [anchor, answer])
    across = await chat.linked(a_call(chat, reply_to_id=general, thread_id="7"))
    assert across.anchor is not None
    assert across.anchor.id == general


async def test_what_a_reply_has_brought_along_is_its_anchor(chat: Chat) -> None:
    snapshot = {
        "id": "17",
        "author": {"id": "u9", "name": "Zoe"},
        "text": "We should look at the restaurant",
        "created_at": "2024-05-03T09:00:00+00:00",
    }
    call = a_call(chat, context_snapshot=snapshot, thread_id="7")
    found = await chat.linked(call)
    assert found.anchor == Message(
        "snapshot:17",
        chat.id,
        "user",
        "We should look at the restaurant",
        datetime(2024, 5, 3, 9, tzinfo=UTC),
        Author("u9", "Zoe"),
        thread_id="7",
    )
    assert (found.chain, found.around) == ((), (found.anchor,))


@every_case("when", [None, "2099-01-01T00:00:00+00:00", "yesterday", "2024-05-03T09:00:00"])
async def test_a_snapshot_of_no_known_time_stands_just_before_the_call(chat: Chat, when: str | None) -> None:
    snapshot = {"text": "this?"} if when is None else {"text": "this?", "created_at": when}
    call = a_call(chat, context_snapshot=snapshot)
    found = await chat.linked(call)
    assert found.anchor is not None
    assert found.anchor.id == "snapshot:call"
    assert found.anchor.created_at == call.created_at - timedelta(microseconds=1)
    assert found.anchor.author is None


async def test_a_call_without_a_reply_runs_no_query_for_links(database: Database) -> None:
    async with database.statement() as connection:
        explained = Explained(connection, "force_custom_plan")
        assert await load_linked(explained.as_connection, "local", "c", a_call("c")) == LinkedMessages(None, (), ())
    assert explained.plan == {}


async def test_links_are_found_without_walking_the_chat(database: Database) -> None:
    """To the fifth message there are two hundred replies."""
    where = await long_chat(database)
    for mode in MODES:
        for anchor, topic in product((5, 97, 10_001, LONG - 19), (None, "t1")):
            call = a_call(where, minutes=LONG + 1, reply_to_id=f"m{anchor:012}", thread_id=topic)
            async with database.statement() as connection:
                explained = Explained(connection, mode)
                found = await load_linked(explained.as_connection, "local", where, call)
            assert found.anchor is not None
            if (anchor, topic) == (10_001, None):
                assert len(found.around) == 41
            if (anchor, topic) == (5, None):
                assert len(found.chain) >= MAX_REPLIES_PER_MESSAGE
            assert "messages" not in explained.whole_scans()
            assert explained.walked("messages") <= 200
            assert explained.sorted() <= 100
            assert explained.pages() <= 1_000


async def test_a_parent_is_found_by_what_its_platform_calls_it(database: Database) -> None:
    where = await long_chat(database)
    for mode in MODES:
        async with database.statement() as connection:
            explained = Explained(connection, mode)
            found = await Messages(explained.as_connection).find_by_platform_id("local", where, "p10001")
        assert found is not None
        assert found.id == "m000000010001"
        assert explained.walked("messages") == 1
        assert explained.pages() <= 10


# ---- the latest


async def test_the_latest_of_a_topic_or_of_everything(chat: Chat, database: Database) -> None:
    for number in range(10):
        await chat.says(f"{number}", thread_id="7" if number % 2 else None)
    before = (NOON + timedelta(minutes=9), "m0009")
    async with database.statement() as connection:
        anywhere = await load_recent(connection, "local", chat.id, before=before, limit=3)
        there = await load_recent(connection, "local", chat.id, before=before, limit=3, thread_id="7")
        assert await load_recent(connection, "eve", chat.id, before=before, limit=3) == []
    assert [message.text for message in anywhere] == ["5", "6", "7"]
    assert [message.text for message in there] == ["3", "5", "7"]


async def test_a_turn_of_a_group_reads_its_latest_messages_in_one_walk(database: Database) -> None:
    where = await long_chat(database)
    chat = Chat(database, where)
    for number, topic in enumerate([None, "t1", "t16"], 1):
        call = await chat.says("@bot?", minutes=LONG + number, id_=f"call{number}", thread_id=topic)
        event = ClaimedEvent(call, where, "local", 1, 1, "companion", "group", "api", "somebody")
        for mode in MODES:
            async with database.statement() as connection:
                explained = Explained(connection, mode)
                material = await load_turn_input(
                    explained.as_connection, event, limit=MAX_RECENT_MESSAGES, embedder="none"
                )
            assert material is not None
            assert (len(material.earlier), material.summary) == (MAX_RECENT_MESSAGES, None)
            if topic is not None:
                assert {message.thread_id for message in material.earlier} == {topic}
            assert material.earlier == sorted(material.earlier, key=lambda message: message.created_at)
            assert "messages" not in explained.whole_scans()
            assert explained.walked("messages") <= MAX_RECENT_MESSAGES + 10
            assert explained.pages() <= 250


async def test_a_group_is_told_what_an_earlier_summary_covers(chat: Chat, database: Database) -> None:
    for number in range(30):
        await chat.says(f"{number}")
    await chat.says("they talked", role="system-summary", id_="summary")
    call = await chat.says("@bot?")
    async with database.statement() as connection:
        await connection.execute(
            "UPDATE conversations SET summary_id = 'summary', summarized_until = %s", (NOON + timedelta(minutes=25),)
        )
        event = ClaimedEvent(call, chat.id, "local", 1, 1, "companion", "group", "api", "somebody")
        material = await load_turn_input(connection, event, limit=MAX_RECENT_MESSAGES, embedder="none")
    assert material is not None
    assert material.summary is None
    assert [message.text for message in material.earlier] == [f"{number}" for number in range(30)]


async def test_pictures_come_with_the_newest_messages_only(chat: Chat, database: Database) -> None:
    """A hundred of them could be two hundred megabytes."""
    for _ in range(PICTURES + 2):
        await chat.says("", blocks=Jsonb([IMAGE]))
    call = await chat.says("@bot look", blocks=Jsonb([{"type": "text", "text": "@bot look"}, IMAGE]))
    async with database.statement() as connection:
        event = ClaimedEvent(call, chat.id, "local", 1, 1, "companion", "group", "api", "somebody")
        material = await load_turn_input(connection, event, limit=MAX_RECENT_MESSAGES, embedder="none")
    assert material is not None
    assert [message.content for message in material.earlier] == ["[picture]"] * 2 + [[IMAGE]] * PICTURES
    assert material.message.content == [{"type": "text", "text": "@bot look"}, IMAGE]
