"""Test admission of chats, migration of groups, and people who block the bot."""

from __future__ import annotations

import pytest

from rapport.domain.errors import InvalidInput
from rapport.storage.telegram import ChatMapping, MappedChat, TelegramUpdates
from tests.channels.telegram.peer import Posted, telegram_peer
from tests.channels.telegram.town import Town, at, days_ago, logged, open_town, restarted, telegram_settings
from tests.support.cases import every_case
from tests.support.world import open_world

TAG = "@rapport_bot"


# ---- who is let in


async def test_nobody_is_let_in_until_the_settings_say_so(database_url: str) -> None:
    with logged() as lines:
        async with open_town(database_url, telegram_allowed_users="", telegram_allowed_chats="") as town:
            town.ann_alone.says(town.ann, "a secret of Ann's")
            town.ann_alone.says(town.ann, "/start")
            town.team.says(town.ben, f"{TAG} a secret of the team's")
            await town.settled()
            assert town.peer.calls("sendMessage") == []
            for table in ("telegram_updates", "messages", "conversations", "telegram_usernames", "outbox"):
                assert await town.world.sql(f"SELECT count(*) FROM {table}") == [(0,)], table
            async with town.world.database.statement() as connection:
                refused = await TelegramUpdates(connection, town.peer.bot.id).list_rejected_chats()
    assert {(one.chat_id, one.name, one.times) for one in refused} == {
        (town.ann.id, "Ann", 2),
        (town.team.id, "Team", 1),
    }
    assert [line["event"] for line in lines].count("telegram.nobody_allowed") == 1
    remedies = {line["chat"]: line["remedy"] for line in lines if line["event"] == "telegram.refused"}
    assert f"TELEGRAM_ALLOWED_USERS={town.ann.id} " in remedies[town.ann.id]
    assert f"TELEGRAM_ALLOWED_CHATS={town.team.id} " in remedies[town.team.id]
    assert (
        len([line for line in lines if line["event"] == "telegram.refused"]) == 2
    )  # a repeated attempt is logged once
    assert "secret" not in str(lines)


async def test_a_stranger_gets_silence_while_others_are_served(town: Town) -> None:
    zoe = town.peer.person("Zoe", username="zoe")
    elsewhere = town.peer.group("Elsewhere", [zoe, town.ann])
    town.peer.private(zoe).says(zoe, "let me in")
    elsewhere.says(town.ann, f"{TAG} here too?")  # Ann is let in, and this group is not
    town.team.people.append(zoe)
    town.peer.private(town.cara).says(town.cara, "a member of the team, directly")
    town.team.says(zoe, f"{TAG} and here?")  # in a group that is let in everybody may speak
    await town.settled()
    assert [chat.title for chat in town.peer.chats.values() if town.peer.sent(chat)] == ["Team"]
    [row] = await town.world.sql("SELECT array_agg(content) FROM messages WHERE role = 'user'")
    assert row[0] == [f"{TAG} and here?"]


async def test_the_settings_say_whose_chat_it_is(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "as somebody of her own")
    assert await town.world.sql("SELECT owner_id FROM conversations") == [(f"telegram:{town.ann.id}",)]
    async with restarted(town, telegram_allowed_users=f" {town.ann.id} = local ; 77") as town:
        await town.hears(town.ann_alone, town.ann, "as the owner of this server")
        # What was said as somebody else stays theirs.
        [here] = await town.world.sql("SELECT id FROM conversations WHERE owner_id = 'local'")
        assert [one["content"] for one in await town.world.history(here[0])] == [
            "as the owner of this server",
            "re: as the owner of this server",
        ]


@every_case(
    ("changes", "told"),
    [
        ({"telegram_allowed_users": "@ann"}, "TELEGRAM_ALLOWED_USERS: '@ann' is not an id"),
        ({"telegram_allowed_chats": "-100123, Team"}, "TELEGRAM_ALLOWED_CHATS: 'Team' is not an id"),
        ({"telegram_allowed_users": "12="}, "after 12= comes the name of a Rapport user"),
    ],
)
async def test_a_list_that_can_not_be_read_is_told_at_the_start(
    database_url: str, changes: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        async with open_town(database_url, starts=False, **changes):
            pass


async def test_who_is_no_longer_let_in_is_not_heard(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "hello")
    async with restarted(town, telegram_allowed_users="") as town:
        await town.hears(town.ann_alone, town.ann, "still there?")
        assert await town.world.sql("SELECT count(*) FROM telegram_rejected_chats") == [(1,)]
        assert len(await town.told(town.ann_alone)) == 2
    assert len(town.peer.sent(town.ann_alone)) == 1


# ---- a group that moves


async def test_a_group_that_becomes_a_supergroup_is_the_same_conversation(town: Town) -> None:
    await town.hears(town.club, town.ben, "The boat is called Albatross")
    before = await town.conversation(town.club)
    with logged() as lines:
        moved = town.club.migrates()
        # At once, so that it comes with the news of the move.
        asked = moved.says(town.ann, f"{TAG} what is the boat called?")
        await town.settled()
    assert await town.conversation(moved) == before
    [answer] = town.peer.posted(moved)
    assert answer.reply_to == asked.message_id
    assert "The boat is called Albatross" in town.given()[1]
    [line] = [line for line in lines if line["event"] == "telegram.chat_migrated"]
    assert str(moved.id) in line["remedy"]
    assert not [line for line in lines if line["event"] == "telegram.refused"]


async def test_a_group_that_was_silent_until_it_moved_is_let_in_all_the_same(town: Town) -> None:
    moved = town.club.migrates()
    moved.says(town.ann, f"{TAG} hello")
    await town.settled()
    await town.hears(moved, town.ben, f"{TAG} hello again")
    assert len(town.peer.sent(moved)) == 2
    assert await town.world.sql("SELECT owner_id FROM conversations") == [(f"telegram:{town.club.id}",)]


async def test_what_is_sent_into_a_group_that_has_moved_follows_it(town: Town) -> None:
    """The answer is ready before the news of the move: Telegram itself says where the group is now."""
    slow = town.world.model.will_wait("It is Albatross.")
    town.club.says(town.ben, f"{TAG} what is the boat called?")
    await slow.begun.wait()
    town.peer.updates.allowed = ["nothing"]  # the news itself never comes
    moved = town.club.migrates()
    slow.go_on()
    await town.peer.until_sent(moved, 1)
    await town.settled()
    assert town.peer.sent(moved) == ["It is Albatross."]
    town.peer.updates.allowed = ()
    again = await town.hears(moved, town.ann, "are you sure?", reply_to=town.peer.posted(moved)[0])
    assert town.peer.posted(moved)[1].reply_to == again.message_id
    assert await town.world.sql("SELECT count(*) FROM conversations") == [(1,)]


@pytest.mark.parametrize("way", ["at once", "by the button"])
async def test_a_group_that_has_moved_is_let_in_after_it_was_forgotten(town: Town, way: str) -> None:
    """The settings still have the id that it had as a group, and only the chat's row knows that."""
    await town.hears(town.club, town.ben, "The boat is called Albatross")
    moved = town.club.migrates()
    if way == "at once":
        await town.hears(moved, town.ann, "/forget yes")
    else:
        await town.hears(moved, town.ann, "/forget")
        [question] = town.peer.posted(moved)
        moved.presses(town.ann, question, question.buttons[0][1])
        await town.settled()
    assert town.peer.sent(moved)[-1].startswith("Erased")
    await town.hears(moved, town.ann, f"{TAG} what is the boat called?")
    assert town.peer.sent(moved)[-1].startswith("re: ")
    assert "Albatross" not in town.given()[1]
    assert await town.world.sql("SELECT owner_id FROM conversations") == [(f"telegram:{town.club.id}",)]


@pytest.mark.parametrize("spoken", [True, False], ids=["after a talk", "before any"])
async def test_a_group_that_has_moved_begins_anew_after_its_conversation_was_deleted(town: Town, spoken: bool) -> None:
    """Somebody deletes it on the page. The settings still have the group's old id, and let it in as before."""
    if spoken:
        await town.hears(town.club, town.ben, "The boat is called Albatross")
    moved = town.club.migrates()
    await town.hears(moved, town.ben, "It is blue")
    for _ in range(2):
        [(owner, here)] = await town.world.sql("SELECT owner_id, id FROM conversations")
        await town.world.worker.erase(owner, here)
        with logged() as lines:
            await town.hears(moved, town.ann, f"{TAG} what is the boat called?")
        assert town.peer.sent(moved)[-1].startswith("re: ")
        assert "Albatross" not in town.given()[1]
        assert not [line for line in lines if line["event"] == "telegram.refused"]
        assert owner == f"telegram:{town.club.id}"
        assert await town.conversation(moved) != here
    async with restarted(town, telegram_allowed_chats=f"{town.team.id}") as town:
        await town.hears(moved, town.ann, f"{TAG} and now?")  # that lets in neither the group nor what it has become
        assert len(town.peer.sent(moved)) == 2


async def test_changing_the_setting_to_a_migrated_groups_new_id_keeps_its_conversation(town: Town) -> None:
    await town.hears(town.club, town.ben, "The boat is called Albatross")
    moved = town.club.migrates()
    await town.settled()
    before = await town.conversation(moved)
    for chats in (f"{moved.id}", f"{moved.id}, {town.club.id}"):
        async with restarted(town, telegram_allowed_chats=chats) as town:
            await town.hears(moved, town.ann, f"{TAG} what is the boat called?")
            assert await town.conversation(moved) == before
            assert (await town.told(moved))[0] == ("Ben", "The boat is called Albatross")


async def test_what_comes_while_its_conversation_is_erased_begins_a_new_one(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.hears(town.ann_alone, town.ann, "hello")
    [(owner, before)] = await town.world.sql("SELECT owner_id, id FROM conversations")
    of_chat = ChatMapping.find_by_chat

    async def found_and_erased(places: ChatMapping, chat_id: int) -> MappedChat | None:
        """Erased by somebody on the page, right after the chat was found to be that conversation."""
        place = await of_chat(places, chat_id)
        if place is not None and place.conversation_id == before:
            await town.world.worker.erase(owner, before)
        return place

    monkeypatch.setattr(ChatMapping, "find_by_chat", found_and_erased)
    await town.hears(town.ann_alone, town.ann, "are you there?")
    assert await town.told(town.ann_alone) == [("Ann", "are you there?"), ("Companion", "re: are you there?")]


# ---- people who want no more


async def test_who_blocks_the_bot_gets_nothing_until_they_let_it_again(town: Town) -> None:
    await town.hears(town.ann_alone, town.ann, "hello")
    here = await town.conversation(town.ann_alone)
    town.ann.blocks_bot()
    await town.settled()
    assert (await town.world.silence(here)).gate == "unreachable"
    town.ann.unblocks_bot()
    await town.settled()
    assert (await town.world.silence(here)).state == "delivered"
    await town.settled()
    assert len(town.peer.sent(town.ann_alone)) == 2


async def test_an_answer_to_a_chat_that_refuses_it_is_parked(town: Town) -> None:
    """The chat blocks the bot while the answer is written, without an update: only the send shows it."""
    town.peer.updates.allowed = ["message"]
    slow = town.world.model.will_wait("Are you there?")
    town.ann_alone.says(town.ann, "hello")
    await slow.begun.wait()
    town.ann.has_blocked_bot = True
    slow.go_on()
    await town.settled()
    [(state, error)] = await town.outbox()
    assert state == "failed"
    assert error is not None
    assert "blocked by the user" in error
    here = await town.conversation(town.ann_alone)
    assert (await town.world.silence(here)).gate == "unreachable"
    # Who writes again is there again.
    town.ann.has_blocked_bot = False
    await town.hears(town.ann_alone, town.ann, "I'm back")
    assert town.peer.sent(town.ann_alone) == ["re: I'm back"]
    assert (await town.world.silence(here)).state == "delivered"


async def test_a_group_that_removes_the_bot_and_one_that_is_gone(town: Town) -> None:
    await town.hears(town.team, town.ann, "/followups@rapport_bot on")
    await town.hears(town.team, town.ann, f"{TAG} hello")
    await town.hears(town.club, town.ann, "/followups@rapport_bot on")
    team, club = await town.conversation(town.team), await town.conversation(town.club)
    town.team.kicks_bot()
    await town.settled()
    assert (await town.world.silence(team)).gate == "unreachable"
    town.team.takes_bot_back()
    await town.settled()
    assert (await town.world.silence(team)).state == "delivered"
    del town.peer.chats[town.club.id]
    assert (await town.world.silence(club)).state == "delivered"  # nobody has told that it is gone
    await town.settled()
    assert [state for state, _ in await town.outbox()][-1] == "failed"
    assert (await town.world.silence(club)).gate == "unreachable"


async def test_being_made_an_admin_changes_nothing(town: Town) -> None:
    await town.hears(town.team, town.ann, f"{TAG} hello")
    town.team.makes_bot_admin()
    await town.settled()
    assert await town.world.sql("SELECT unreachable_since FROM conversations") == [(None,)]


# ---- titles


async def test_a_conversation_is_called_as_its_chat_is(town: Town) -> None:
    await town.hears(town.team, town.ann, "hello")
    town.team.title = "The Team"
    await town.hears(town.team, town.ann, "we have another name")
    assert await town.world.sql("SELECT title FROM conversations") == [("The Team",)]


# ---- the bot's own name


async def test_the_bot_is_called_by_the_name_that_it_has_now(town: Town) -> None:
    """BotFather has given it another username while the server was down; the conversation is as old as the first."""
    await town.hears(town.team, town.ann, f"{TAG} hello")
    assert f"called {TAG} " in town.given()[0]

    def renamed() -> None:
        town.peer.bot.username = "harbour_bot"

    async with restarted(town, meanwhile=renamed) as town:
        await town.hears(town.team, town.ben, f"{TAG} are you there?")  # nobody has that name any more
        assert len(town.peer.sent(town.team)) == 1
        asked = await town.hears(town.team, town.ben, "@harbour_bot are you there?")
        assert [one.reply_to for one in town.peer.posted(town.team)][1:] == [asked.message_id]
        assert "called @harbour_bot " in town.given()[0]


# ---- dates


async def test_messages_of_a_backlog_keep_their_platform_dates(town: Town) -> None:
    """The server was down: messages sent meanwhile keep their times and order, and later ones follow them."""
    team, night = town.team, [days_ago(0.5, minutes=minutes) for minutes in (0, 0, 1, 240)]
    said: list[Posted] = []

    def at_night() -> None:
        said.append(team.says(town.ann, "first", date=night[0]))
        said.append(team.says(town.ben, "in the same second", date=night[1]))
        said.append(team.says(town.cara, f"{TAG} a minute later", date=night[2]))
        said.append(team.says(town.ben, "towards the morning", date=night[3]))
        town.peer.shuffles_updates(3)

    await town.hears(team, town.ann, "the evening before", date=days_ago(1))
    async with restarted(town, meanwhile=at_night) as town:
        await town.peer.until_sent(team, 1)
        now = await town.hears(team, town.ben, "good morning")
        assert [text for _, text in await town.told(team)] == [
            "the evening before",
            "first",
            "in the same second",
            f"{TAG} a minute later",
            "towards the morning",
            f"re: {town.given()[2]}",
            "good morning",
        ]
        for posted, date in zip(said, night, strict=True):
            assert (await town.stored_at(posted)).replace(microsecond=0) == at(date)
        assert (await town.stored_at(now)) > await town.stored_at(said[-1])
        assert "] in the same second" in town.given()[1]
        assert "towards the morning" not in town.given()[1]  # that came after the question


@pytest.mark.parametrize("off", [-20, -3, 3, 20])
async def test_a_new_message_is_placed_after_the_agents_latest_message(town: Town, off: int) -> None:
    """The platform's clock differs by some seconds, and its resolution is one second."""
    clock = town.peer.platform.clock
    town.peer.platform.clock = lambda: clock() + off
    texts: list[str] = []
    for number in range(3):
        text = f"question {number}"
        await town.hears(town.ann_alone, town.ann, text)
        texts += [text, f"re: {text}"]
    assert [text for _, text in await town.told(town.ann_alone)] == texts
    assert len(town.given()[1].splitlines()) >= 4


async def test_the_history_shows_the_platforms_date(database_url: str) -> None:
    async with telegram_peer() as peer:
        ann = peer.person("Ann")
        chat = peer.private(ann)
        settings = telegram_settings(peer, (), (), telegram_allowed_users=f"{ann.id}=local")
        async with open_world(database_url, **settings) as world:
            date = days_ago(2)
            chat.says(ann, "two days ago", date=date)
            await peer.until_sent(chat, 1)
            [row] = await world.sql("SELECT id FROM conversations")
            shown, answer = await world.history(row[0])
            assert shown["created_at"].startswith(at(date).isoformat()[:19])
            assert not answer["created_at"].startswith(at(date).isoformat()[:10])


async def test_a_date_in_the_future_is_not_used(town: Town) -> None:
    far = days_ago(-30)
    said = await town.hears(town.ann_alone, town.ann, "from the future", date=far)
    assert (await town.stored_at(said)) < at(far)
    assert [text for _, text in await town.told(town.ann_alone)] == ["from the future", "re: from the future"]
