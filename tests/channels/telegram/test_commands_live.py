"""Test commands and buttons over HTTP, also delivered twice or sent by the wrong person."""

from __future__ import annotations

from rapport.channels.telegram.commands.run_command import COMMANDS
from tests.channels.telegram.peer import flood
from tests.channels.telegram.town import Town

TAG = "@rapport_bot"


async def test_the_commands_are_registered(town: Town) -> None:
    await town.peer.until(lambda: town.peer.commands)
    assert [(one["command"], one["description"]) for one in town.peer.commands["default"]] == list(COMMANDS)


async def test_a_command_is_answered_as_a_reply_and_is_in_no_history(town: Town) -> None:
    ordered = await town.hears(town.ann_alone, town.ann, "/start")
    [answer] = town.peer.posted(town.ann_alone)
    assert "Hello, Ann!" in answer.text
    assert answer.reply_to == ordered.message_id
    assert await town.told(town.ann_alone) == []
    assert town.world.model.calls == []
    await town.hears(town.ann_alone, town.ann, "hello")
    assert "/start" not in str(town.world.model.calls)


async def test_a_command_that_comes_twice_is_answered_once(town: Town) -> None:
    town.peer.repeats_updates(3)
    town.peer.will(flood(1), on="sendMessage")
    town.ann_alone.says(town.ann, "/help")
    await town.peer.until_sent(town.ann_alone, 1)
    await town.settled()
    assert len(town.peer.sent(town.ann_alone)) == 1


async def test_commands_and_talk_are_answered_in_order(town: Town) -> None:
    town.ann_alone.says(town.ann, "/help")
    town.ann_alone.says(town.ann, "/mute 2h")
    await town.settled()
    first, second = town.peer.sent(town.ann_alone)
    assert "/followups" in first
    assert second.startswith("Muted until")
    assert (await town.world.silence(await town.conversation(town.ann_alone))).gate == "muted"
    await town.hears(town.ann_alone, town.ann, "/unmute")
    assert (await town.world.silence(await town.conversation(town.ann_alone))).state == "delivered"


async def test_in_a_group_a_command_for_another_bot_is_just_something_said(town: Town) -> None:
    town.team.says(town.ann, "/help@other_bot")
    town.team.says(town.ann, "/weather")
    await town.settled()
    assert town.peer.sent(town.team) == []
    assert [text for _, text in await town.told(town.team)] == ["/help@other_bot", "/weather"]
    topic = town.forum.topic("Questions")
    ordered = await town.hears(town.forum, town.ben, "/help@Rapport_Bot", topic=topic)
    [answer] = town.peer.posted(town.forum)
    assert (answer.reply_to, answer.topic) == (ordered.message_id, topic)
    assert "Tag me (@rapport_bot)" in answer.text


async def test_why_shows_what_an_answer_was_made_from(town: Town) -> None:
    await town.hears(town.team, town.ben, "The boat is called Albatross")
    await town.hears(town.team, town.ann, f"{TAG} what is the boat called?")
    [answer] = town.peer.posted(town.team)
    await town.hears(town.team, town.cara, "/why", reply_to=answer)
    assert "The boat is called Albatross" in town.peer.sent(town.team)[-1]


async def test_forgetting_asks_first_and_only_an_admin_may(town: Town) -> None:
    await town.hears(town.team, town.ben, "The boat is called Albatross")
    await town.hears(town.team, town.dan, "/forget")
    assert town.peer.sent(town.team) == ["Only an admin of this group can do that."]
    asked = await town.hears(town.team, town.ann, "/forget@rapport_bot")
    question = town.peer.posted(town.team)[-1]
    assert question.reply_to == asked.message_id
    yes, no = (data for _, data in question.buttons)
    # Somebody else presses: they are not kept waiting, and nothing happens.
    wrong = town.team.presses(town.dan, question, yes)
    await town.settled()
    assert wrong.answer is not None
    assert len(question.buttons) == 2
    assert len(await town.told(town.team)) == 1
    pressed = town.team.presses(town.ann, question, yes)
    await town.settled()
    assert pressed.answer is not None
    assert question.buttons == []
    assert town.peer.sent(town.team)[-1].startswith("Erased: all messages of this group")
    assert await town.told(town.team) == []
    # What is said afterwards begins anew, and is not erased by the same button.
    await town.hears(town.team, town.ben, "The boat is called Cormorant")
    town.peer.redeliver(pressed)
    await town.settled()
    assert await town.told(town.team) == [("Ben", "The boat is called Cormorant")]
    assert no


async def test_when_telegram_asks_to_wait_a_command_waits(town: Town) -> None:
    town.peer.will(flood(3), on="getChatMember")
    await town.hears(town.team, town.ann, "/followups@rapport_bot on")
    asked, again = [request.at for request in town.peer.calls("getChatMember")]
    assert again - asked >= 3.0
    assert town.peer.sent(town.team)[0].startswith("Follow-ups are on here")


async def test_who_thinks_better_of_it_keeps_everything(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "hello")
    await town.hears(town.ann_alone, town.ann, "/forget")
    question = town.peer.posted(town.ann_alone)[-1]
    town.ann_alone.presses(town.ann, question, question.buttons[1][1])
    await town.settled()
    assert town.peer.sent(town.ann_alone)[-1] == "Nothing was erased."
    assert len(await town.told(town.ann_alone)) == 2


async def test_after_forgetting_a_direct_chat_goes_on_as_a_new_one(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "My cat is called Miso.")
    before = await town.conversation(town.ann_alone)
    await town.hears(town.ann_alone, town.ann, "/forget yes")
    assert town.peer.sent(town.ann_alone)[-1].startswith("Erased")
    await town.hears(town.ann_alone, town.ann, "what is my cat called?")
    assert await town.conversation(town.ann_alone) != before
    assert "Miso" not in str(town.world.model.calls[-1])
    assert len(await town.world.sql("SELECT id FROM conversations")) == 1
