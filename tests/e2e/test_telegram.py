"""Test the real command on Telegram: with an independent Bot API, and through kill -9 with a strict one."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import closing

import aiohttp
import pytest

from rapport.channels.telegram.api import BotApi
from rapport.channels.telegram.webhook import SECRET_HEADER
from tests.channels.telegram.peer import telegram_peer
from tests.support.waiting import LIMIT_SECONDS

from .audit import query
from .crowds import Crowd
from .harness import Home, Server
from .npm_peer import BOT_NAME, TOKEN, Account, NpmPeer, Room, npm_peer
from .scripted import ScriptedModel

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("telegram")]

log = logging.getLogger("rapport.e2e")

ANN, BEN = Account(501, "Ann", "ann"), Account(502, "Ben", "ben")
TEAM = Room(-100_777, "Team", "group")
MENTION = {"type": "mention", "offset": 0, "length": len(f"@{BOT_NAME}")}


@pytest.fixture
async def peer(http: aiohttp.ClientSession, home: Home) -> AsyncGenerator[NpmPeer]:
    async with npm_peer(http) as opened:
        home.env |= {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_API_URL": opened.url,
            "TELEGRAM_ALLOWED_USERS": str(ANN.id),
            "TELEGRAM_ALLOWED_CHATS": str(TEAM.id),
        }
        yield opened


def text_of(message: dict[str, str]) -> str:
    return message["text"]


async def worked_through(home: Home, count: int) -> None:
    """Wait until this many updates were processed and nothing is pending or being sent."""
    wanted = (
        "SELECT count(*), count(done_at),"
        " (SELECT count(*) FROM outbox WHERE state IN ('queued', 'sending', 'unconfirmed')) FROM telegram_updates"
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        while await query(home.database_url, wanted) != [(count, count, 0)]:
            await asyncio.sleep(0.05)


def expect_quiet(*servers: Server) -> None:
    """Check that no ERROR and no token was logged, whatever the peer does not support."""
    for server in servers:
        assert server.errors() == []
        assert TOKEN.partition(":")[2] not in server.log.read_text() + server.out.read_text()


async def test_a_direct_chat_is_answered_as_a_reply(home: Home, peer: NpmPeer) -> None:
    server = await home.serve()
    await peer.says(ANN, "is it raining?")
    [answer] = await peer.until_told(ANN.alone, 1)
    asked = await peer.number_of("is it raining?")
    assert (answer["text"], answer["parse_mode"]) == ("re: is it raining?", "HTML")
    assert f'"message_id": {asked}' in answer["reply_parameters"]
    await worked_through(home, 1)
    assert await query(
        home.database_url, "SELECT author_id, platform_id, content FROM messages ORDER BY created_at"
    ) == [
        ("user501", f"501/{asked}", "is it raining?"),
        ("companion", f"501/{asked + 1}", "re: is it raining?"),
    ]
    expect_quiet(server)


async def test_who_is_not_let_in_is_not_answered_and_the_log_says_how_to(home: Home, peer: NpmPeer) -> None:
    server = await home.serve()
    await peer.says(BEN, "and me?")
    await peer.says(ANN, "hello")
    await peer.until_told(ANN.alone, 1)
    assert await peer.told(BEN.alone) == []
    [refused] = [line for line in server.lines() if line["event"] == "telegram.refused"]
    assert f"TELEGRAM_ALLOWED_USERS={BEN.id}" in refused["remedy"]
    assert await query(home.database_url, "SELECT count(*) FROM messages WHERE content = 'and me?'") == [(0,)]


async def test_in_a_group_whoever_tags_the_bot_is_answered_and_nobody_else(home: Home, peer: NpmPeer) -> None:
    server = await home.serve()
    await peer.says(ANN, "the ferry or the train?", where=TEAM)
    await peer.says(BEN, f"@{BOT_NAME} what do you think?", where=TEAM, entities=[MENTION])
    await peer.says(ANN, f"@{BOT_NAME.upper()} and what does it cost?", where=TEAM)  # an update without entities
    await peer.says(BEN, "me@testnamebot.example is my address", where=TEAM)
    answers = await peer.until_told(TEAM, 2)
    await worked_through(home, 4)
    assert [text_of(one).startswith("re:") for one in answers] == [True, True]
    assert [word in text_of(one) for one, word in zip(answers, ("think", "cost"), strict=True)] == [True, True]
    stored = await query(
        home.database_url,
        "SELECT author_name, 'companion' = ANY(mentions) FROM messages WHERE role = 'user' ORDER BY created_at",
    )
    assert stored == [("Ann", False), ("Ben", True), ("Ann", True), ("Ben", False)]
    assert len(await peer.told(TEAM)) == 2
    expect_quiet(server)


async def test_commands_are_run_and_are_no_messages(home: Home, peer: NpmPeer) -> None:
    server = await home.serve()
    await peer.commands(ANN, "/help")
    await peer.commands(ANN, "/mute 2h")
    told = [text_of(one) for one in await peer.until_told(ANN.alone, 2)]
    assert "/followups" in told[0]
    assert told[1].startswith("Muted until")
    assert await query(home.database_url, "SELECT count(*) FROM messages") == [(0,)]
    assert await query(
        home.database_url,
        "SELECT muted_until > now() + interval '110 minutes' FROM conversations WHERE channel = 'telegram'",
    ) == [(True,)]
    expect_quiet(server)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_what_is_said_while_the_server_is_down_is_answered_when_it_is_back(
    home: Home, peer: NpmPeer, end: signal.Signals
) -> None:
    first = await home.serve()
    await peer.says(ANN, "one")
    await peer.until_told(ANN.alone, 1)
    await worked_through(home, 1)
    first.signal(end)
    await first.exit_code()
    await peer.says(ANN, "two")
    await peer.says(ANN, f"@{BOT_NAME} three", where=TEAM)
    second = await home.serve()
    await peer.until_told(TEAM, 1)
    assert [text_of(one) for one in await peer.until_told(ANN.alone, 2)] == ["re: one", "re: two"]
    await peer.says(ANN, "four")
    assert [text_of(one) for one in await peer.until_told(ANN.alone, 3)] == ["re: one", "re: two", "re: four"]
    assert len(await peer.told(TEAM)) == 1
    expect_quiet(first, second)


async def test_a_send_interrupted_by_a_crash_does_not_block_the_chat_if_its_result_stays_unknown(
    home: Home, peer: NpmPeer
) -> None:
    """This Bot API accepts any edit and does not report pending updates, so unconfirmed messages can't be located."""
    first = await home.serve(RAPPORT_FAILPOINT="deliver.sent")
    await peer.says(ANN, "one")
    await first.exit_code()
    second = await home.serve()
    await peer.says(ANN, "two")
    assert [text_of(one) for one in await peer.until_told(ANN.alone, 2)] == ["re: one", "re: two"]
    await worked_through(home, 2)
    assert await query(home.database_url, "SELECT state FROM outbox ORDER BY seq") == [("unknown",), ("sent",)]
    expect_quiet(first, second)


async def test_a_webhook_is_set_and_whoever_does_not_show_the_secret_is_refused(
    home: Home, peer: NpmPeer, http: aiohttp.ClientSession
) -> None:
    port = free_port()
    server = await home.serve(PORT=str(port), TELEGRAM_WEBHOOK_URL=f"http://127.0.0.1:{port}")
    async with asyncio.timeout(LIMIT_SECONDS):
        while not any(line["event"] == "telegram.webhook_set" for line in server.lines()):
            await asyncio.sleep(0.05)
        await peer.says(ANN, "from a peer that forgets the secret")
        while not peer.failed_calls:
            await asyncio.sleep(0.05)
    assert peer.failed_calls == [401]
    update = {"update_id": 77, "message": {**peer.message(ANN, "with the secret"), "message_id": 900}}
    headers = {SECRET_HEADER: BotApi(TOKEN).webhook_secret}
    for _ in range(3):
        async with http.post(f"{server.url}/telegram/webhook", json=update, headers=headers) as response:
            assert response.status == 200
    assert [text_of(one) for one in await peer.until_told(ANN.alone, 1)] == ["re: with the secret"]
    await worked_through(home, 1)
    assert await query(home.database_url, "SELECT content FROM messages WHERE role = 'user'") == [("with the secret",)]
    expect_quiet(server)


@pytest.mark.timeout(180)
async def test_updates_delivered_three_times_through_kill_9_are_stored_and_answered_once(
    home: Home, model: ScriptedModel
) -> None:
    seed = int(os.environ.get("RAPPORT_CRASH_SEED", "0")) or time.time_ns() % 1_000_000
    log.info("seed %d", seed)
    chance = random.Random(seed)
    model.delay = lambda _text: chance.uniform(0.0, 0.05)
    async with telegram_peer() as peer:
        crowd = Crowd(home, peer, chance)
        await crowd.run(updates=400, kills=4, seconds=60)
        figures = await crowd.audit()
    log.info("%s", figures)
    assert figures.troubles == {}, f"seed {seed}: {figures}"
    assert figures.updates == 400
    assert figures.shown == figures.calls - figures.cut_off_unseen
    assert crowd.errors == [], f"seed {seed}"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
