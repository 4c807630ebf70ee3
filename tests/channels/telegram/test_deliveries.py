"""Test sending while Telegram fails: messages arrive once and in order, and no chat blocks another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from rapport.channels.telegram.writing import channel
from rapport.channels.telegram.writing.markup import Part
from rapport.domain.conversation import Incoming
from rapport.domain.errors import Transient
from rapport.domain.outgoing import Outgoing
from rapport.storage.postgres.embedded import EmbeddedPostgres
from tests.channels.telegram.peer import Chat, Fault, TelegramPeer, babbles, fails, flood, hangs, resets, telegram_peer
from tests.channels.telegram.town import (
    Impatient,
    Town,
    database_away,
    days_ago,
    logged,
    open_town,
    road_to,
    telegram_settings,
)
from tests.support.world import World, open_world, until

TAG = "@rapport_bot"
LONG = "\n\n".join(f"Part {number}: " + f"word{number} " * 550 for number in (1, 2, 3))
"""Three messages of Telegram."""


def shown(peer: TelegramPeer, chat: Chat) -> list[str]:
    """Return the first words of the bot's messages."""
    return [" ".join(text.split()[:2]) for text in peer.sent(chat)]


# ---- Telegram asks to wait


async def test_flood_control_is_obeyed_and_holds_up_no_other_chat(town: Town) -> None:
    town.peer.will(flood(3), on="sendMessage")
    town.ann_alone.says(town.ann, "hello")
    await town.peer.until(lambda: town.peer.calls("sendMessage"))
    town.ann_alone.says(town.ann, "are you there?")
    town.ben_alone.says(town.ben, "and I?")
    await town.peer.until_sent(town.ben_alone, 1)
    assert town.peer.sent(town.ann_alone) == []
    await town.peer.until_sent(town.ann_alone, 2)
    refused, *_, last, _ = [
        request.at for request in town.peer.calls("sendMessage") if request.params["chat_id"] == town.ann.id
    ]
    assert last - refused >= 3.0
    assert town.peer.sent(town.ann_alone) == ["re: hello", "re: are you there?"]
    assert len(town.peer.calls("sendMessage")) == 4  # nothing was tried in between


async def test_a_long_message_goes_on_where_it_was_interrupted(town: Town) -> None:
    town.world.model.will_say(LONG)
    town.peer.will(flood(1), on="sendMessage", skip=1)
    asked = await town.hears(town.team, town.ann, f"{TAG} tell me everything")
    await town.peer.until_sent(town.team, 3)
    await town.settled()
    assert shown(town.peer, town.team) == ["Part 1:", "Part 2:", "Part 3:"]
    first, second, third = town.peer.posted(town.team)
    assert (first.reply_to, second.reply_to, third.reply_to) == (asked.message_id, None, None)
    [row] = await town.world.sql("SELECT platform_ids FROM outbox")
    assert row[0] == [first.platform_id, second.platform_id, third.platform_id]
    # Whoever replies to a later part replies to the whole, and to the agent.
    again = await town.hears(town.team, town.ben, "go on", reply_to=second)
    assert town.peer.posted(town.team)[-1].reply_to == again.message_id
    assert "User is replying to this specific message: 'Part 1:" in town.given()[1]


# ---- Telegram fails


async def test_a_failure_of_telegrams_own_is_tried_again(town: Town) -> None:
    faults = {town.ann_alone: fails(500), town.ben_alone: fails(502, is_json=False), town.team: fails(503)}
    for (chat, fault), person in zip(faults.items(), (town.ann, town.ben, town.ann), strict=True):
        town.peer.will(fault, on="sendMessage")
        before = len(town.peer.calls("sendMessage"))
        chat.says(person, f"{TAG} hello")
        await town.peer.until(lambda before=before: len(town.peer.calls("sendMessage")) > before)
    for chat in faults:
        await town.peer.until_sent(chat, 1)
    await town.settled()
    assert [len(town.peer.sent(chat)) for chat in faults] == [1, 1, 1]
    assert [state for state, _ in await town.outbox()] == ["sent"] * 3


async def test_what_never_left_is_sent_when_telegram_can_be_reached(database_url: str) -> None:
    """Connections are refused: nothing can have arrived, so it is tried again."""
    async with telegram_peer() as peer, road_to(peer) as road:
        ann = peer.person("Ann")
        chat = peer.private(ann)
        settings = telegram_settings(peer, (), (ann,), telegram_api_url=road.url)
        async with open_world(database_url, **settings) as world:
            slow = world.model.will_wait("I am here.")
            chat.says(ann, "are you there?")
            await slow.begun.wait()
            await road.closes()
            slow.go_on()

            async def put_off() -> bool:
                rows = await world.sql("SELECT state FROM outbox WHERE error LIKE '%%can''t be reached%%'")
                return rows == [("queued",)]

            await until(put_off)
            await road.opens()
            await peer.until_sent(chat, 1)
            await world.drain()
            assert peer.sent(chat) == ["I am here."]
            assert await world.sql("SELECT state FROM outbox") == [("sent",)]


@pytest.mark.parametrize(
    "fault",
    [
        *(resets(after=True), resets(), fails(504, after=True), fails(504, is_json=False, after=True), babbles()),
        *(fails(502, is_json=False, after=True), fails(500, after=True)),
    ],
    ids=["reset after", "reset before", "504", "504 of a proxy", "no JSON", "502 of a proxy", "500"],
)
@pytest.mark.parametrize("where", ["alone", "in a group"])
async def test_an_unconfirmed_message_is_located_and_shown_once(
    impatient: Impatient, town: Town, fault: Fault, where: str
) -> None:
    """A connection that breaks looks the same before and after Telegram has taken the message."""
    impatient.for_what_is_on_its_way(0.1)
    chat = town.ann_alone if where == "alone" else town.team
    town.world.model.will_say("to Ben", "one", "two", "three", "four")
    await town.hears(town.ben_alone, town.ben, "somebody else's numbers")
    await town.hears(chat, town.ann, f"{TAG} before")
    town.peer.will(fault, on="sendMessage")
    chat.says(town.ann, f"{TAG} hello")
    await town.peer.until(lambda: town.peer.calls("editMessageReplyMarkup"))
    chat.says(town.ann, f"{TAG} and now?")
    assert [state for state, _ in await town.parked(4)] == ["sent"] * 4
    assert town.peer.sent(chat) == ["one", "two", "three"]
    # Its platform id is stored as usual: a reply to it is a reply to the agent.
    doubted = next(one for one in town.peer.posted(chat) if one.text == "two")
    await town.hears(chat, town.ann, "why?", reply_to=doubted)
    assert town.peer.sent(chat) == ["one", "two", "three", "four"]
    [(parent,)] = await town.world.sql(
        "SELECT p.content FROM messages m JOIN messages p ON p.id = m.reply_to_id WHERE m.content = 'why?'"
    )
    assert parent == "two"


async def test_an_unconfirmed_message_is_found_after_numbers_of_other_chats(impatient: Impatient, town: Town) -> None:
    """Direct chats and small groups share their numbers: while one answer was written, much was said elsewhere."""
    impatient.for_what_is_on_its_way(0.1)
    slow = town.world.model.will_wait("It took a while.")
    town.ann_alone.says(town.ann, "think about it")
    await slow.begun.wait()
    for number in range(40):
        town.club.says(town.ben, f"something {number}")
    await until(lambda: many(town, 41))
    town.peer.will(resets(after=True), on="sendMessage")
    slow.go_on()
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert town.peer.sent(town.ann_alone) == ["It took a while."]


async def many(town: Town, count: int) -> bool:
    return await town.world.sql("SELECT count(*) FROM messages WHERE role = 'user'") == [(count,)]


async def test_a_notice_that_may_have_arrived_is_shown_once(impatient: Impatient, town: Town) -> None:
    """Telegram's clock is behind: what is said after the notice seems to be older than it."""
    impatient.for_what_is_on_its_way(0.5)
    town.peer.will(resets(after=True), on="sendMessage")
    town.team.says(town.ann, "/help@rapport_bot")
    await town.peer.until_sent(town.team, 1)
    await town.hears(town.team, town.ben, "what a list", date=days_ago(0, minutes=-0.5))
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert len(town.peer.sent(town.team)) == 1


async def test_a_notice_with_buttons_that_has_arrived_is_known_to_have(impatient: Impatient, town: Town) -> None:
    impatient.for_what_is_on_its_way(0.1)
    town.peer.will(resets(after=True), on="sendMessage")
    await town.hears(town.ann_alone, town.ann, "/forget")
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert len(town.peer.sent(town.ann_alone)) == 1


async def test_a_message_that_cannot_be_located_is_not_sent_again(impatient: Impatient, town: Town) -> None:
    impatient.for_what_is_on_its_way(0.1)
    town.peer.will(resets(), on="sendMessage")
    town.peer.will(fails(400), on="editMessageReplyMarkup", times=None)
    await town.hears(town.ann_alone, town.ann, "hello")
    assert [state for state, _ in await town.parked()] == ["unknown"]
    await town.hears(town.ann_alone, town.ann, "and now?")
    assert town.peer.sent(town.ann_alone) == ["re: and now?"]


async def test_the_rest_of_a_long_message_follows_when_the_part_in_doubt_has_arrived(
    impatient: Impatient, town: Town
) -> None:
    impatient.for_what_is_on_its_way(0.1)
    town.world.model.will_say(LONG)
    town.peer.will(resets(after=True), on="sendMessage", skip=1)
    await town.hears(town.ann_alone, town.ann, "tell me")
    assert [state for state, _ in await town.parked()] == ["sent"]
    assert shown(town.peer, town.ann_alone) == ["Part 1:", "Part 2:", "Part 3:"]


async def test_a_chat_that_hangs_holds_up_no_other(impatient: Impatient, town: Town) -> None:
    impatient.for_what_is_on_its_way(0.1)
    town.peer.will(hangs(after=True), on="sendMessage")
    town.ann_alone.says(town.ann, "hello")
    await town.peer.until(lambda: town.peer.calls("sendMessage"))
    town.ann_alone.says(town.ann, "hello?")
    town.ben_alone.says(town.ben, "hello")
    town.team.says(town.cara, f"{TAG} hello")
    await town.peer.until_sent(town.ben_alone, 1)
    await town.peer.until_sent(town.team, 1)
    assert len([one for one in town.peer.calls("sendMessage") if one.params["chat_id"] == town.ann.id]) == 1
    [hanging, *_] = await town.outbox()
    assert hanging[0] == "sending"
    town.peer.heals()
    await town.peer.until_sent(town.ann_alone, 2)
    assert town.peer.sent(town.ann_alone) == ["re: hello", "re: hello?"]
    assert [state for state, _ in await town.parked(4)] == ["sent"] * 4


async def test_a_send_without_an_answer_times_out(impatient: Impatient, database_url: str) -> None:
    impatient.for_answers(0.3)
    impatient.for_what_is_on_its_way(0.1)
    async with open_town(database_url) as town:
        town.peer.will(hangs(after=True), on="sendMessage")
        await town.hears(town.ann_alone, town.ann, "hello")
        assert [state for state, _ in await town.parked()] == ["sent"]
        assert town.peer.sent(town.ann_alone) == ["re: hello"]


async def test_what_telegram_can_not_read_is_sent_without_formatting(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    def badly(_text: str) -> list[Part]:
        return [Part("<b>Not <i>nested</b></i>", "Not nested")]

    monkeypatch.setattr(channel, "render_parts", badly)
    await town.hears(town.ann_alone, town.ann, "hello")
    [answer] = town.peer.posted(town.ann_alone)
    assert answer.text == "Not nested"
    assert [request.accepted for request in town.peer.calls("sendMessage")] == [False, True]


async def test_a_token_that_is_refused_lets_answers_wait(impatient: Impatient, database_url: str) -> None:
    impatient.for_a_token(0.2)
    with logged() as lines:
        async with open_town(database_url) as town:
            slow = town.world.model.will_wait("I am back.")
            town.ann_alone.says(town.ann, "hello")
            await slow.begun.wait()
            town.peer.revokes_token()
            slow.go_on()

            async def waits() -> bool:
                return [state for state, error in await town.outbox() if error] == ["queued"]

            await until(waits)
            await until(lambda: any(line["event"] == "telegram.token_refused" for line in lines))
            town.peer.is_revoked = False
            await town.peer.until_sent(town.ann_alone, 1)
            await town.hears(town.ann_alone, town.ann, "good")  # and it listens again
            assert town.peer.sent(town.ann_alone) == ["I am back.", "re: good"]
    [remedy, *_] = [line["remedy"] for line in lines if line["event"] == "telegram.token_refused"]
    assert "TELEGRAM_BOT_TOKEN" in remedy


async def test_what_was_answered_is_replied_to_even_if_it_is_gone(town: Town) -> None:
    slow = town.world.model.will_wait("Gone?")
    asked = town.team.says(town.ann, f"{TAG} look")
    await slow.begun.wait()
    town.team.deletes(asked)
    slow.go_on()
    await town.peer.until_sent(town.team, 1)
    assert town.peer.posted(town.team)[0].reply_to is None


# ---- this side stops, or loses its database


async def test_a_send_that_is_under_way_arrives_before_the_server_is_gone(database_url: str) -> None:
    async with telegram_peer() as peer, road_to(peer) as road:
        ann = peer.person("Ann")
        chat = peer.private(ann)
        settings = telegram_settings(peer, (), (ann,), telegram_api_url=road.url)
        async with open_world(database_url, **settings) as world:
            slow = world.model.will_wait("Good bye.")
            chat.says(ann, "hello")
            await slow.begun.wait()
            road.holds()
            slow.go_on()

            async def is_under_way() -> bool:
                return await world.sql("SELECT state FROM outbox") == [("sending",)]

            await until(is_under_way)
            stopping = asyncio.ensure_future(world.worker.stop())
            await asyncio.wait([stopping], timeout=0.2)
            assert not stopping.done()
            road.lets_go()
            await stopping
            assert peer.sent(chat) == ["Good bye."]
            assert await world.sql("SELECT state FROM outbox") == [("sent",)]


async def test_what_has_arrived_is_not_forgotten_when_the_database_is_away(
    world: World, postgres: EmbeddedPostgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away between the sending and the mark of it; when it is back it is marked, and not sent again."""
    sent: list[str] = []
    with logged() as lines, contextlib.ExitStack() as away:

        async def send(outgoing: Outgoing) -> AsyncIterator[str]:
            sent.append(outgoing.text)
            away.enter_context(database_away(postgres.url_for("postgres"), database_url))
            yield f"part-{len(sent)}"

        monkeypatch.setattr(world.channel, "send", send)
        here = await world.conversation(channel="recording")
        (await world.worker.accept(Incoming("local", here, "hello"))).close()
        await until(lambda: any(line["event"] == "deliver.mark_failed" for line in lines))

    async def marked() -> bool:
        try:
            return await world.sql("SELECT state, platform_ids FROM outbox") == [("sent", ["part-1"])]
        except Transient:
            return False

    await until(marked)
    assert sent == ["re: hello"]
