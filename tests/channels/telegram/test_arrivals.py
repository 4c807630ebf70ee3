"""Test incoming updates under failures: none is lost, none is processed twice, and none blocks the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from aiohttp import web

from rapport.channels.telegram.api import BotApi, NoAnswer
from rapport.channels.telegram.update_worker import MAX_ATTEMPTS
from rapport.domain.conversation import Incoming
from rapport.domain.errors import Transient
from rapport.runtime.ticket import Ticket
from rapport.storage.postgres.embedded import EmbeddedPostgres
from tests.channels.telegram.peer import Fault, babbles, fails, hangs, resets, telegram_peer
from tests.channels.telegram.town import (
    Impatient,
    Town,
    another_world,
    database_away,
    logged,
    open_town,
    restarted,
    telegram_settings,
)
from tests.support.cases import every_case
from tests.support.world import open_world, until

TAG = "@rapport_bot"


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


# ---- the same again


async def test_updates_delivered_three_times_in_any_order_count_once(town: Town) -> None:
    town.peer.repeats_updates(3)
    town.peer.shuffles_updates(7)
    chats = [(town.team, town.ann), (town.club, town.ben), (town.ann_alone, town.ann)]
    for number in range(12):
        for chat, person in chats:
            chat.says(person, f"{TAG} {number}" if number % 4 == 0 else f"just talk {number}")
    await town.settled()
    for chat, _ in chats:
        said = [text for name, text in await town.told(chat) if name != "Companion"]
        assert said == [f"{TAG} {number}" if number % 4 == 0 else f"just talk {number}" for number in range(12)]
    asked = {
        chat.id: [one.message_id for one in chat.messages if TAG in one.text and not one.by_bot] for chat, _ in chats
    }
    for chat in (town.team, town.club):
        assert [answer.reply_to for answer in town.peer.posted(chat)] == asked[chat.id]
    assert len(town.peer.posted(town.ann_alone)) == 12
    assert await town.world.sql("SELECT count(*) FROM telegram_updates WHERE payload IS NOT NULL") == [(0,)]


async def test_an_update_that_comes_again_after_a_restart_is_known(town: Town) -> None:
    asked = await town.hears(town.ann_alone, town.ann, "hello")
    async with restarted(town, meanwhile=lambda: town.peer.redeliver(asked)) as town:
        await town.hears(town.ann_alone, town.ann, "hello again")
        assert town.peer.sent(town.ann_alone) == ["re: hello", "re: hello again"]


async def test_stored_updates_are_processed_after_a_restart(town: Town) -> None:
    """The process was killed after the update was stored and before it was processed."""
    await town.world.worker.stop()
    asked = town.ann_alone.says(town.ann, "hello")
    town.peer.updates.drop()
    assert await town.inbox.store([town.peer.updates.made[asked.update_id]]) == 1
    async with restarted(town) as town:
        await town.peer.until_sent(town.ann_alone, 1)
        await town.settled()
        assert town.peer.sent(town.ann_alone) == ["re: hello"]


async def test_an_album_that_is_processed_again_is_answered(
    town: Town, impatient: Impatient, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient.for_chats_that_fail(0.05)
    failing(town, monkeypatch, Transient("Not now."), times=1)
    photo = [{"file_id": "x", "file_unique_id": "y", "width": 1, "height": 1}]
    first = town.ann_alone.says(town.ann, photo=photo, media_group_id="1")
    town.ann_alone.says(town.ann, photo=photo, media_group_id="1")
    await town.settled()
    assert [answer.reply_to for answer in town.peer.posted(town.ann_alone)] == [first.message_id]


def failing(town: Town, monkeypatch: pytest.MonkeyPatch, error: Exception, *, times: int, word: str = "") -> None:
    """Let the core fail this many times to accept a message with this word."""
    accept = town.world.worker.accept
    left = times

    async def accepting(incoming: Incoming, *, listen: bool = False) -> Ticket:
        nonlocal left
        if word in str(incoming.content) and left > 0:
            left -= 1
            raise error
        return await accept(incoming, listen=listen)

    monkeypatch.setattr(town.world.worker, "accept", accepting)


# ---- somebody else has the updates


async def test_a_conflict_with_another_poller_is_reported(impatient: Impatient, database_url: str) -> None:
    impatient.for_rivals(0.3)
    with logged() as lines:
        async with open_town(database_url) as town, httpx.AsyncClient() as rival:
            await rival.get(f"{town.peer.url}/bot{town.peer.token}/getUpdates", params={"timeout": 0})
            await until(lambda: "telegram.conflict" in events(lines))
            await town.hears(town.ann_alone, town.ann, "hello")
            assert town.peer.sent(town.ann_alone) == ["re: hello"]
    [line] = [line for line in lines if line["event"] == "telegram.conflict"]
    assert "stop it, or give it a token of its own" in line["remedy"]


async def test_a_webhook_that_is_still_set_is_taken_away(town: Town) -> None:
    with logged() as lines:
        async with httpx.AsyncClient() as earlier:
            await earlier.post(
                f"{town.peer.url}/bot{town.peer.token}/setWebhook", json={"url": "https://old.example/telegram/webhook"}
            )
        await until(lambda: "telegram.webhook_deleted" in events(lines))
        await town.hears(town.ann_alone, town.ann, "hello")
    assert town.peer.sent(town.ann_alone) == ["re: hello"]
    assert town.peer.updates.webhook is None
    [deleted] = town.peer.calls("deleteWebhook")
    assert not deleted.params.get("drop_pending_updates")


async def test_of_two_processes_one_polls_and_the_other_takes_over(town: Town) -> None:
    with logged() as lines:
        async with another_world(town) as second:
            await town.hears(town.ann_alone, town.ann, "hello")
            assert events(lines).count("leader.elected") == 0
            await town.world.worker.stop()
            town.ann_alone.says(town.ann, "are you still there?")
            await town.peer.until_sent(town.ann_alone, 2)
            assert events(lines).count("leader.elected") == 1
            assert await second.sql("SELECT count(*) FROM messages") == [(4,)]
    assert not [request for request in town.peer.calls("getUpdates") if request.status == 409]
    assert "telegram.conflict" not in events(lines)


# ---- Telegram is in trouble


@pytest.mark.parametrize(
    "fault",
    [fails(500), fails(502, is_json=False), babbles(), resets(), resets(after=True), hangs()],
    ids=["500", "502 of a proxy", "no JSON", "reset", "reset with the answer", "hangs"],
)
async def test_when_telegram_fails_it_is_asked_again(impatient: Impatient, database_url: str, fault: Fault) -> None:
    impatient.for_answers(0.3)
    impatient.for_news(1)
    async with open_town(database_url) as town:
        town.peer.will(fault, on="getUpdates")
        town.ann_alone.says(town.ann, "hello")
        await town.peer.until_sent(town.ann_alone, 1)
        await town.settled()
        assert [one.fault for one in town.peer.calls("getUpdates") if one.fault] == [fault]
        assert await town.told(town.ann_alone) == [("Ann", "hello"), ("Companion", "re: hello")]


async def test_the_bot_learns_its_name_when_it_can(database_url: str) -> None:
    """Telegram fails while the server starts: that takes nothing from the server, and the bot comes later."""
    async with telegram_peer() as peer:
        ann = peer.person("Ann")
        chat = peer.private(ann)
        peer.will(fails(500), on="getMe")
        peer.will(fails(500), on="setMyCommands", times=None)
        async with open_world(database_url, **telegram_settings(peer, (), (ann,))) as world:
            assert (await world.http.get("/healthz")).status_code == 200
            chat.says(ann, "hello")
            await peer.until_sent(chat, 1)
            assert len(peer.calls("getMe")) == 2


@every_case(
    ("status", "body"),
    [(200, "{}"), (200, "[]"), (200, "null"), (200, '{"ok": false}'), (200, "\xff"), (500, "[]"), (400, '"no"')],
)
async def test_a_malformed_answer_counts_as_a_failure(status: int, body: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=body.encode("latin-1"), content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = BotApi("123456789:AAtoken", url=f"http://127.0.0.1:{runner.addresses[0][1]}")
    await api.open()
    try:
        with pytest.raises(NoAnswer):
            await api.call("sendMessage", chat_id=1, text="hello")
    finally:
        await api.close_connections()
        await runner.cleanup()


# ---- one update is not like the others


async def test_an_update_that_can_not_be_read_holds_up_nothing(town: Town) -> None:
    with logged() as lines:
        poison = [
            town.peer.updates.add(
                "message", {"message_id": 1, "chat": town.team.raw, "date": "yesterday", "text": "x"}
            ),
            town.peer.updates.add("message", {"message_id": 2, "chat": town.team.raw, "date": 2**40, "text": "x"}),
            town.peer.updates.add("message", {"chat": town.team.raw}),
        ]
        town.peer.updates.add("message", {"message_id": 3, "text": "from nowhere"})
        await town.hears(town.team, town.ann, f"{TAG} hello")
    assert len(town.peer.sent(town.team)) == 1
    rows = await town.world.sql("SELECT update_id, error FROM telegram_updates WHERE error IS NOT NULL ORDER BY 1")
    assert [row[0] for row in rows] == poison
    assert events(lines).count("telegram.unreadable") == 3


async def test_an_update_that_always_fails_is_left_alone_in_the_end(
    town: Town, impatient: Impatient, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient.for_chats_that_fail(0.02)
    failing(town, monkeypatch, RuntimeError("a mistake of ours"), times=1_000, word="giraffe")
    with logged() as lines:
        town.ann_alone.says(town.ann, "giraffe")
        town.ann_alone.says(town.ann, "elephant")
        town.ben_alone.says(town.ben, "zebra")
        await town.settled()
    assert events(lines).count("chat.error") == MAX_ATTEMPTS
    assert town.peer.sent(town.ann_alone) == ["re: elephant"]
    assert town.peer.sent(town.ben_alone) == ["re: zebra"]
    rows = await town.world.sql("SELECT error, attempts, payload FROM telegram_updates WHERE error IS NOT NULL")
    [(error, attempts, payload)] = rows
    assert (error, attempts) == ("RuntimeError", MAX_ATTEMPTS - 1)
    assert "giraffe" in payload  # it is not lost: whoever mends the mistake finds it
    assert await town.world.sql("SELECT count(*) FROM telegram_updates WHERE payload IS NOT NULL") == [(1,)]


async def test_a_chat_that_waits_for_telegram_holds_up_no_other(town: Town) -> None:
    """A request for a person's admin status gets no answer, and other chats go on."""
    town.peer.will(hangs(), on="getChatMember")
    town.team.says(town.ann, "/followups@rapport_bot on")
    await town.peer.until(lambda: town.peer.calls("getChatMember"))
    town.team.says(town.ann, f"{TAG} hello")
    town.ben_alone.says(town.ben, "hello")
    await town.peer.until_sent(town.ben_alone, 1)
    assert town.peer.calls("getChatMember")[0].status is None
    assert town.peer.sent(town.team) == []
    town.peer.heals()
    await town.peer.until_sent(town.team, 2)
    first, second = town.peer.sent(town.team)  # in order, all the same
    assert "Follow-ups are on here" in first
    assert second.endswith("hello")


# ---- the database is away


async def test_what_comes_while_the_database_is_away_is_not_lost(
    town: Town, postgres: EmbeddedPostgres, database_url: str
) -> None:
    await town.hears(town.ann_alone, town.ann, "hello")
    with database_away(postgres.url_for("postgres"), database_url):
        asked = town.ann_alone.says(town.ann, "are you there?")
        town.team.says(town.ben, f"{TAG} and here?")
        with pytest.raises(Transient):
            await town.inbox.store([town.peer.updates.made[asked.update_id]])
        assert asked.update_id in town.peer.updates.pending
    await town.peer.until_sent(town.ann_alone, 2)
    await town.peer.until_sent(town.team, 1)
    await town.settled()
    assert town.peer.sent(town.ann_alone) == ["re: hello", "re: are you there?"]
    assert len(town.peer.sent(town.team)) == 1
    assert not town.peer.updates.pending


async def test_an_update_that_could_not_be_stored_is_not_acknowledged(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telegram deletes an update when a poll asks for later ones."""
    inbox = town.inbox
    take, failed = inbox.store, asyncio.Event()

    async def taking(updates: Sequence[Mapping[str, Any]]) -> int:
        if not failed.is_set():
            failed.set()
            raise Transient("The database can't be reached right now.")
        return await take(updates)

    monkeypatch.setattr(inbox, "store", taking)
    asked = town.ann_alone.says(town.ann, "hello")
    await failed.wait()
    before = len(town.peer.calls("getUpdates"))
    await town.peer.until(lambda: len(town.peer.calls("getUpdates")) > before)
    assert town.peer.calls("getUpdates")[before].params.get("offset", 0) <= asked.update_id
    await town.peer.until_sent(town.ann_alone, 1)
    await town.settled()
    assert await town.told(town.ann_alone) == [("Ann", "hello"), ("Companion", "re: hello")]
