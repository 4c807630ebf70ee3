"""Test edits: the history changes too, and the agent answers at most once."""

from __future__ import annotations

import asyncio
from typing import Any

from rapport.ingest.embed_messages import MessageEmbedding
from rapport.storage.messages.incoming import MAX_STORED_EDITS
from tests.channels.telegram.peer import Chat
from tests.channels.telegram.town import Town, days_ago
from tests.support.waiting import LIMIT_SECONDS

TAG = "@rapport_bot"


async def words(town: Town, chat: Chat) -> list[str]:
    """Return the messages of people in a chat."""
    return [text for name, text in await town.told(chat) if name != "Companion"]


async def indexed(town: Town, group: str) -> list[tuple[str, Any]]:
    """The vectors of the group, once every message has one."""
    index = MessageEmbedding(town.world.database, town.world.app.context_selector.embedder)
    while (await index.embed_next(group)).has_more:
        pass
    rows = await town.world.sql("SELECT message_id, embedding::text FROM message_vectors ORDER BY created_at")
    return [(row[0], row[1]) for row in rows]


async def test_a_change_is_in_the_history_and_in_what_the_model_is_given(town: Town) -> None:
    said = await town.hears(town.team, town.ann, "We meet at noon")
    town.team.edits(said, "We meet at one")
    await town.settled()
    assert await words(town, town.team) == ["We meet at one"]
    await town.hears(town.team, town.ben, f"{TAG} when?")
    assert "We meet at one" in town.given()[1]
    assert "noon" not in town.given()[1]
    [row] = await town.world.sql("SELECT payload FROM messages WHERE platform_id = %s", said.platform_id)
    assert row[0]["message"]["text"] == "We meet at noon"  # what was said first is not lost
    assert [edit["edited_message"]["text"] for edit in row[0]["edits"]] == ["We meet at one"]


async def test_a_change_does_not_get_a_second_answer(town: Town) -> None:
    asked = await town.hears(town.ann_alone, town.ann, "what is the captial of France?")
    town.ann_alone.edits(asked, "what is the capital of France?")
    called = await town.hears(town.team, town.ann, f"{TAG} hello")
    town.team.edits(called, f"{TAG} hello!")
    await town.settled()
    assert len(town.peer.sent(town.ann_alone)) == 1
    assert len(town.peer.sent(town.team)) == 1
    assert await words(town, town.ann_alone) == ["what is the capital of France?"]


async def test_a_change_that_adds_the_tag_is_answered_once(town: Town) -> None:
    said = await town.hears(town.team, town.ann, "rapport_bot, which day is it?")
    assert town.peer.sent(town.team) == []
    first = town.team.edits(said, f"{TAG}, which day is it?")
    await town.settled()
    [answer] = town.peer.posted(town.team)
    assert answer.reply_to == said.message_id
    town.team.edits(said, f"{TAG}, which day is it today?")
    town.peer.redeliver(first)
    await town.settled()
    assert len(town.peer.sent(town.team)) == 1
    assert await words(town, town.team) == [f"{TAG}, which day is it today?"]


async def test_a_tag_that_is_added_to_what_was_said_long_ago_is_not_answered(town: Town) -> None:
    said = await town.hears(town.team, town.ann, "which day was it?", date=days_ago(2))
    town.team.edits(said, f"{TAG} which day was it?")
    await town.settled()
    assert await words(town, town.team) == [f"{TAG} which day was it?"]
    assert town.peer.sent(town.team) == []


async def test_a_caption_is_changed_with_what_it_belongs_to(town: Town) -> None:
    photo = [{"file_id": "x", "file_unique_id": "y", "width": 1, "height": 1}]
    shown = await town.hears(town.team, town.ann, photo=photo, caption="the hosue")
    town.team.edits(shown, "the house")
    await town.settled()
    assert await words(town, town.team) == ["[photo]\nthe house"]


async def test_changes_that_come_in_another_order_end_in_the_last_one(town: Town) -> None:
    """Within a second of each other, too."""
    said = await town.hears(town.team, town.ann, "one")
    second, third = town.team.edits(said, "two"), town.team.edits(said, "three")
    town.peer.updates.drop()
    for update_id in (third, second):
        town.peer.redeliver(update_id)
        await town.settled()
        assert await words(town, town.team) == ["three"]


async def test_changes_of_one_second_are_all_made(town: Town) -> None:
    said = await town.hears(town.team, town.ann, "one")
    for text in ("two", "three", "four"):
        town.team.edits(said, text)
        await town.settled()
        assert await words(town, town.team) == [text]


async def test_of_many_changes_the_latest_are_kept(town: Town) -> None:
    """Endless edits of a message must not make its row grow without end."""
    said = town.team.says(town.ann, "0")
    for number in range(1, MAX_STORED_EDITS + 11):
        town.team.edits(said, str(number))
    await town.settled()
    [(payload,)] = await town.world.sql("SELECT payload FROM messages WHERE role = 'user'")
    kept = [edit["edited_message"]["text"] for edit in payload["edits"]]
    assert payload["message"]["text"] == "0"
    assert kept == [str(number) for number in range(11, MAX_STORED_EDITS + 11)]


async def test_a_change_that_comes_before_the_message_stands_for_it(town: Town) -> None:
    said = town.team.says(town.ann, f"{TAG} hello")
    first = said.update_id
    second, third = town.team.edits(said, f"{TAG} hello!"), town.team.edits(said, f"{TAG} hello!!")
    town.peer.updates.drop()
    for update_id in (third, first, second):
        town.peer.redeliver(update_id)
        await town.settled()
        assert await words(town, town.team) == [f"{TAG} hello!!"]
    [answer] = town.peer.posted(town.team)
    assert answer.reply_to == said.message_id


async def test_a_command_that_is_changed_is_neither_obeyed_nor_answered(town: Town) -> None:
    ordered = await town.hears(town.ann_alone, town.ann, "/mute")
    town.ann_alone.edits(ordered, "/unmute")
    await town.settled()
    assert await town.told(town.ann_alone) == []
    assert len(town.peer.sent(town.ann_alone)) == 1
    assert town.world.model.calls == []
    assert (await town.world.sql("SELECT muted_until IS NOT NULL FROM conversations")) == [(True,)]


async def test_the_vector_of_what_was_changed_is_made_anew(town: Town) -> None:
    said = await town.hears(town.team, town.ann, "The cat sleeps on the sofa")
    await town.hears(town.team, town.ben, "The train leaves at nine")
    here = await town.conversation(town.team)
    cat, train = await indexed(town, here)
    town.team.edits(said, "The invoice of the plumber is still to be paid")
    await town.settled()
    invoice, same = await indexed(town, here)
    assert invoice[0] == cat[0]
    assert invoice[1] != cat[1]
    assert same == train
    assert await town.world.sql("SELECT vectors FROM embedding_progress") == [(2,)]


async def test_changes_while_the_answer_is_being_written_harm_nothing(town: Town) -> None:
    slow = town.world.model.will_wait("Noon.")
    asked = town.team.says(town.ann, f"{TAG} when?")
    await slow.begun.wait()
    town.team.edits(asked, f"{TAG} when do we meet?")

    async def changed() -> bool:
        return await words(town, town.team) == [f"{TAG} when do we meet?"]

    async with asyncio.timeout(LIMIT_SECONDS):
        while not await changed():
            await asyncio.sleep(0.02)
    slow.go_on()
    await town.settled()
    assert town.peer.sent(town.team) == ["Noon."]
