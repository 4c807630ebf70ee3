"""Test the agent in Telegram chats: whom it answers, with which context, and where."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rapport.runtime import typing_indicator as typing
from tests.channels.telegram.peer import Posted
from tests.channels.telegram.town import Impatient, Town, days_ago, restarted

ANCHOR = "User is replying to this specific message:"
TAG = "@rapport_bot"
PHOTO: list[dict[str, Any]] = [{"file_id": "x", "file_unique_id": "y", "width": 1, "height": 1}]


async def receipt(town: Town, *, chat: Any = None) -> dict[str, Any]:
    """Return the context of the latest answer in the team's chat."""
    [row] = await town.world.sql(
        "SELECT metadata -> 'context' FROM messages WHERE conversation_id = %s AND role = 'assistant'"
        " ORDER BY created_at DESC LIMIT 1",
        await town.conversation(chat or town.team),
    )
    return row[0]


def busy_days(town: Town) -> tuple[Posted, Posted]:
    """Five people, two things at once, over four days: where to eat, and how to move the server. The first of each."""
    team = town.team
    dinner = team.says(town.ann, "We should look at the restaurant for the gathering", date=days_ago(4))
    server = team.says(town.ben, "The old server has to be moved before the lease ends", date=days_ago(4, minutes=3))
    team.says(town.cara, "Somewhere near the river would be nice to eat", date=days_ago(4, minutes=5))
    team.says(town.dan, "I can copy the database on Friday night", date=days_ago(3), reply_to=server)
    team.says(town.ben, "The backup of the server has to be checked first", date=days_ago(2))
    team.says(town.eve, "Any thoughts on dinner?", date=days_ago(2, minutes=4))
    team.says(town.dan, "The disk of the new machine is twice as large", date=days_ago(1))
    team.says(town.cara, "The thai restaurant on 10th Ave?", date=days_ago(0, minutes=-10))
    return dinner, server


# ---- directly


async def test_what_somebody_writes_to_the_bot_is_answered_as_a_reply(town: Town) -> None:
    town.world.model.will_say("Hello, **Ann**!")
    asked = town.ann_alone.says(town.ann, "hi")
    await town.peer.until_sent(town.ann_alone, 1)
    [answer] = town.peer.posted(town.ann_alone)
    assert (answer.text, answer.reply_to) == ("Hello, Ann!", asked.message_id)
    assert answer.entity_texts("bold") == ["Ann"]
    await town.settled()
    assert await town.told(town.ann_alone) == [("Ann", "hi"), ("Companion", "Hello, **Ann**!")]


async def test_two_people_have_two_conversations(town: Town) -> None:
    town.ann_alone.says(town.ann, "My cat is called Miso.")
    town.ben_alone.says(town.ben, "hello")
    await town.settled()
    assert town.peer.sent(town.ann_alone) == ["re: My cat is called Miso."]
    assert town.peer.sent(town.ben_alone) == ["re: hello"]
    owners = await town.world.sql("SELECT owner_id, kind, channel FROM conversations ORDER BY owner_id")
    assert owners == [(f"telegram:{person.id}", "direct", "telegram") for person in (town.ann, town.ben)]


async def test_an_album_is_answered_once(town: Town) -> None:
    first = town.ann_alone.says(town.ann, caption="my garden", photo=PHOTO, media_group_id="1")
    for _ in range(3):
        town.ann_alone.says(town.ann, photo=PHOTO, media_group_id="1")
    await town.settled()
    [answer] = town.peer.posted(town.ann_alone)
    assert answer.reply_to == first.message_id
    assert [text for _, text in await town.told(town.ann_alone)].count("[photo]") == 3


async def test_an_album_in_reply_to_the_agent_is_answered_once(town: Town) -> None:
    await town.hears(town.team, town.ann, f"{TAG} shall I show you my garden?")
    [asked] = town.peer.posted(town.team)
    first, *_ = [town.team.says(town.ann, photo=PHOTO, media_group_id="1", reply_to=asked) for _ in range(3)]
    await town.settled()
    [_, answer] = town.peer.posted(town.team)
    assert answer.reply_to == first.message_id


@pytest.mark.parametrize("where", ["alone", "in reply"])
async def test_an_album_whose_caption_comes_later_is_answered_once_and_about_that(town: Town, where: str) -> None:
    chat = town.ann_alone if where == "alone" else town.team
    await town.hears(chat, town.ann, f"{TAG} shall I show you my garden?")
    [yes] = town.peer.posted(chat)
    chat.says(town.ann, photo=PHOTO, media_group_id="1", reply_to=yes)
    # Telegram hands over each of them by itself.
    await town.peer.until(lambda: not town.peer.updates.pending)
    asked = chat.says(town.ann, photo=PHOTO, caption="which of them is the rose?", media_group_id="1", reply_to=yes)
    await town.peer.until(lambda: not town.peer.updates.pending)
    chat.says(town.ann, photo=PHOTO, media_group_id="1", reply_to=yes)
    chat.says(town.ann, photo=PHOTO, media_group_id="2", reply_to=yes)  # another one
    await town.settled()
    one, other = town.peer.posted(chat)[1:]
    assert one.reply_to == asked.message_id
    assert "which of them is the rose?" in one.text
    assert other.reply_to == asked.message_id + 2
    assert [text.removeprefix("[photo]") for _, text in await town.told(chat)].count("") == 3


async def test_an_album_that_a_restart_cuts_in_two_is_answered_once(town: Town, impatient: Impatient) -> None:
    impatient.for_albums(60)
    town.ann_alone.says(town.ann, photo=PHOTO, media_group_id="1")
    await town.peer.until(lambda: not town.peer.updates.pending)
    asked: list[Posted] = []

    def meanwhile() -> None:
        impatient.for_albums(1)
        asked.append(town.ann_alone.says(town.ann, photo=PHOTO, caption="see?", media_group_id="1"))

    async with restarted(town, meanwhile=meanwhile) as town:
        await town.settled()
        assert [one.reply_to for one in town.peer.posted(town.ann_alone)] == [asked[0].message_id]


async def test_what_comes_long_after_the_rest_of_its_album_is_answered_if_it_asks_something(
    town: Town, impatient: Impatient
) -> None:
    impatient.for_albums(0.05)
    first = await town.hears(town.ann_alone, town.ann, photo=PHOTO, media_group_id="1")
    await town.hears(town.ann_alone, town.ann, photo=PHOTO, media_group_id="1")
    async with restarted(town) as town:
        await town.hears(town.ann_alone, town.ann, photo=PHOTO, media_group_id="1")
        asked = await town.hears(town.ann_alone, town.ann, photo=PHOTO, caption="see?", media_group_id="1")
        await town.hears(town.ann_alone, town.ann, photo=PHOTO, caption="and this", media_group_id="1")
        answered = [one.reply_to for one in town.peer.posted(town.ann_alone)]
    assert answered == [first.message_id, asked.message_id]


# ---- story 1: a tag, and nothing else


@pytest.mark.parametrize("call", [f"{TAG} what do you think?", f"{TAG} ^"])
async def test_a_bare_tag_gets_the_discussion_that_is_meant(town: Town, call: str) -> None:
    busy_days(town)
    town.world.model.will_say("I think the Thai place sounds good.")
    asked = await town.hears(town.team, town.eve, call)
    [answer] = town.peer.posted(town.team)
    assert (answer.text, answer.reply_to) == ("I think the Thai place sounds good.", asked.message_id)
    system, before, question = town.given()
    assert TAG in system
    assert "] The thai restaurant on 10th Ave?\n" in before
    assert "] We should look at the restaurant for the gathering\n" in before
    assert "[Cara, " in before
    assert ANCHOR not in before
    assert re.fullmatch(rf"\[Eve, [^\]]+ UTC\] {re.escape(call)}", question)
    # The receipt is what the model was given.
    kept = (await receipt(town))["messages"]
    rows = await town.world.sql("SELECT id, content FROM messages WHERE role = 'user'")
    contents: dict[str, str] = dict(rows)  # pyright: ignore[reportArgumentType]
    quoted = re.findall(r"^\[\w+, [^\]]+\] (.+)$", before, re.MULTILINE)
    assert [contents[one["id"]] for one in kept[:-1]] == quoted
    assert contents[kept[-1]["id"]] == call
    assert kept[-1]["reasons"] == ["trigger"]


# ---- story 2: a tag in a reply


async def test_a_tag_in_a_reply_is_about_that_message(town: Town) -> None:
    dinner, server = busy_days(town)
    await town.hears(town.team, town.eve, f"{TAG} is this still on?", reply_to=server)
    _, before, _ = town.given()
    assert before.endswith(f"{ANCHOR} 'The old server has to be moved before the lease ends'")
    assert "I can copy the database on Friday night" in before
    reasons = {one["id"]: one["reasons"] for one in (await receipt(town))["messages"]}
    [row] = await town.world.sql("SELECT id FROM messages WHERE platform_id = %s", server.platform_id)
    assert "anchor" in reasons[row[0]]
    await town.hears(town.team, town.dan, f"{TAG} and this?", reply_to=dinner)
    assert town.given()[1].endswith(f"{ANCHOR} 'We should look at the restaurant for the gathering'")


async def test_a_message_older_than_the_bot_is_known_by_the_reply_to_it(town: Town) -> None:
    old = town.team.already_said(town.ann, "The key is under the blue flowerpot", date=days_ago(400))
    busy_days(town)
    await town.hears(town.team, town.ben, f"{TAG} is that still so?", reply_to=old)
    _, before, _ = town.given()
    assert before.endswith(f"{ANCHOR} 'The key is under the blue flowerpot'")
    assert ("Ann", "The key is under the blue flowerpot") not in await town.told(town.team)


# ---- what it says on its own


async def test_the_answer_to_a_follow_up_has_its_context(town: Town) -> None:
    """An admin lets it follow up; it does; and a bare "Sure" as a reply to that is about what it said."""
    await town.hears(town.team, town.cara, f"{TAG} we still have to choose a day for the picnic")
    here = await town.conversation(town.team)
    assert (await town.world.silence(here)).gate == "conversation"
    await town.hears(town.team, town.dan, "/followups@rapport_bot on")
    assert "Only an admin of this group can do that." in town.peer.sent(town.team)
    assert (await town.world.silence(here)).gate == "conversation"
    await town.hears(town.team, town.ann, "/followups@rapport_bot on")
    assert "on" in town.peer.posted(town.team)[-1].entity_texts("bold")
    town.world.model.will_say("Shall I remind you on Thursday about the picnic?")
    assert (await town.world.silence(here)).state == "delivered"
    await town.settled()
    offered = town.peer.posted(town.team)[-1]
    assert (offered.text, offered.reply_to) == ("Shall I remind you on Thursday about the picnic?", None)
    town.world.model.will_say("I will.")
    sure = await town.hears(town.team, town.dan, "Sure", reply_to=offered)
    answer = town.peer.posted(town.team)[-1]
    assert (answer.text, answer.reply_to) == ("I will.", sure.message_id)
    _, before, question = town.given()
    assert before.endswith(f"{ANCHOR} 'Shall I remind you on Thursday about the picnic?'")
    assert question.endswith("] Sure")


async def test_a_direct_chat_is_followed_up_without_asking_anybody(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "I have to choose a day")
    town.world.model.will_say("And, have you?")
    assert (await town.world.silence(await town.conversation(town.ann_alone))).state == "delivered"
    await town.settled()
    answer = town.peer.posted(town.ann_alone)[-1]
    assert (answer.text, answer.reply_to) == ("And, have you?", None)


# ---- whom it answers in a group


async def test_what_is_not_for_it_is_stored_and_not_answered(town: Town) -> None:
    town.team.says(town.ann, "good morning")
    town.team.says(town.ben, "hey @bot and @companion, and @rapport_botany, and me@rapport_bot.example")
    town.team.says(town.cara, "`@rapport_bot` is its name", entities=[{"type": "code", "offset": 0, "length": 14}])
    town.team.says(town.dan, "/weather@other_bot")
    await town.settled()
    assert len(await town.told(town.team)) == 4
    assert town.peer.sent(town.team) == []
    assert town.world.model.calls == []


@pytest.mark.parametrize("call", ["@Rapport_BOT when?", "when, @rapport_bot?", "/ask@rapport_bot when?"])
async def test_the_username_calls_the_agent(town: Town, call: str) -> None:
    asked = await town.hears(town.team, town.ann, call)
    [answer] = town.peer.posted(town.team)
    assert answer.reply_to == asked.message_id
    [row] = await town.world.sql("SELECT mentions FROM messages WHERE role = 'user'")
    assert "companion" in row[0]


async def test_it_is_called_by_a_text_mention_and_in_a_caption(town: Town) -> None:
    mention = {"type": "text_mention", "offset": 3, "length": 7, "user": town.peer.bot.raw}
    await town.hears(town.team, town.ann, "hi Rapport!", entities=[mention])
    assert len(town.peer.sent(town.team)) == 1
    shown = await town.hears(town.team, town.ann, photo=PHOTO, caption=f"{TAG} what is this?")
    assert [answer.reply_to for answer in town.peer.posted(town.team)][1:] == [shown.message_id]
    assert re.search(rf"\] \[photo\]\s+{TAG} what is this\?$", town.given()[2])


async def test_a_reply_to_the_bot_calls_the_agent(town: Town) -> None:
    await town.hears(town.team, town.ann, f"{TAG} hello")
    [first] = town.peer.posted(town.team)
    again = await town.hears(town.team, town.ben, "and I?", reply_to=first)
    assert [answer.reply_to for answer in town.peer.posted(town.team)][1:] == [again.message_id]
    assert town.given()[1].endswith(f"{ANCHOR} '{first.text}'")


async def test_another_bot_is_heard_and_never_answered(town: Town) -> None:
    weather = town.peer.person("Weather", username="weather_bot", is_bot=True)
    town.team.people.append(weather)
    await town.hears(town.team, town.ann, f"{TAG} will it rain?")
    [answer] = town.peer.posted(town.team)
    town.team.says(weather, f"{TAG} it will rain all day")
    town.team.says(weather, "am I right?", reply_to=answer)
    town.team.says(weather, "/help@rapport_bot")
    await town.settled()
    assert len(town.peer.sent(town.team)) == 1
    assert [text for name, text in await town.told(town.team) if name == "Weather"] == [
        f"{TAG} it will rain all day",
        "am I right?",
        "/help@rapport_bot",
    ]
    assert len(town.world.model.calls) == 1


async def test_a_name_is_known_to_be_somebodys(town: Town) -> None:
    await town.hears(town.team, town.ben, "I'm here")
    await town.hears(town.team, town.ann, "ask @BEN about it")
    [row] = await town.world.sql("SELECT mentions FROM messages WHERE content LIKE 'ask%%'")
    assert row[0] == [f"user{town.ben.id}"]


# ---- forums


async def test_a_topic_is_answered_in_it(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing, "FIRST_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(typing, "REPEAT_SECONDS", 0.05)
    cooking, garden = town.forum.topic("Cooking"), town.forum.topic("Garden")
    town.forum.says(town.ben, "The roses need water", topic=garden)
    slow = town.world.model.will_wait("Salt.")
    asked = town.forum.says(town.ann, f"{TAG} what is missing?", topic=cooking)
    await town.peer.until(lambda: len(town.forum.actions) >= 2)
    assert set(town.forum.actions) == {("typing", cooking)}
    slow.go_on()
    await town.peer.until_sent(town.forum, 1)
    [answer] = town.peer.posted(town.forum)
    assert (answer.text, answer.topic, answer.reply_to) == ("Salt.", cooking, asked.message_id)
    await town.settled()
    shown = len(town.forum.actions)
    # A follow-up goes on where they talked last, which is not where the agent spoke last.
    await town.hears(town.forum, town.ann, "/followups@rapport_bot on", topic=cooking)
    assert town.peer.posted(town.forum)[-1].topic == cooking
    await town.hears(town.forum, town.ben, "and the tulips", topic=garden)
    assert (await town.world.silence(await town.conversation(town.forum))).state == "delivered"
    await town.settled()
    assert town.peer.posted(town.forum)[-1].topic == garden
    assert len(town.forum.actions) == shown  # nobody waited for any of that


async def test_an_answer_to_the_general_topic_and_to_one_that_is_gone(town: Town) -> None:
    await town.hears(town.forum, town.ann, f"{TAG} hello")
    assert town.peer.posted(town.forum)[0].topic is None
    brief = town.forum.topic("Brief")
    slow = town.world.model.will_wait("Too late?")
    town.forum.says(town.ann, f"{TAG} quick!", topic=brief)
    await slow.begun.wait()
    del town.forum.topics[brief]
    slow.go_on()
    await town.peer.until_sent(town.forum, 2)
    assert town.peer.posted(town.forum)[1].text == "Too late?"
