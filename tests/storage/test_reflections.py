"""Test which messages a reflection reads, and what marks them as done."""

from __future__ import annotations

from rapport.domain.conversation import Incoming
from rapport.ingest.accept import accept
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.followups.reflections import Reflections


async def test_messages_are_fresh_until_the_model_has_reflected_on_them(database: Database) -> None:
    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion")).id
    accepted = await accept(database, Incoming("local", where, "I live in Porto"), worker_id="w", claim=True)
    async with database.statement() as connection:
        reflections = Reflections(connection)
        paused = await reflections.load_pause("local", where, user_message_count=1)
        assert paused is not None
        assert [one.text for one in paused.fresh] == ["I live in Porto"]
        assert await reflections.mark_reflected("local", where, user_message_count=1, upto=accepted.created_at)
        again = await reflections.load_pause("local", where, user_message_count=1)
        assert again is not None
        assert ([one.text for one in again.messages], list(again.fresh)) == (["I live in Porto"], [])
        assert await reflections.load_pause("local", where, user_message_count=0) is None


async def test_what_came_from_a_file_is_not_taken_for_the_owners_words(database: Database) -> None:
    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion")).id
        await connection.execute(
            "INSERT INTO messages (conversation_id, id, owner_id, role, content, client_message_id, created_at)"
            " VALUES (%s, 'm', 'local', 'user', 'I live in Oslo', 'import:telegram:user1:5', now() - interval '1 day')",
            (where,),
        )
    await accept(database, Incoming("local", where, "hello"), worker_id="w", claim=True)
    async with database.statement() as connection:
        paused = await Reflections(connection).load_pause("local", where, user_message_count=1)
    assert paused is not None
    assert [one.text for one in paused.messages] == ["I live in Oslo", "hello"]
    assert [one.text for one in paused.fresh] == ["hello"]


async def test_a_reflection_is_not_recorded_if_a_follow_up_was_sent_meanwhile(database: Database) -> None:
    async with database.statement() as connection:
        where = (await Conversations(connection).create("local", agent_id="companion")).id
    accepted = await accept(database, Incoming("local", where, "hello"), worker_id="w", claim=True)
    async with database.statement() as connection:
        reflections = Reflections(connection)
        paused = await reflections.load_pause("local", where, user_message_count=1)
        assert paused is not None
        await connection.execute(
            "UPDATE conversations SET consecutive_followups = consecutive_followups + 1 WHERE id = %s", (where,)
        )
        assert not await reflections.mark_reflected(
            "local", where, user_message_count=1, upto=accepted.created_at, followups=paused.consecutive_followups
        )
