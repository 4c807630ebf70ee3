"""Test that the bot token, which Telegram's URLs contain and errors quote, is in no output."""

from __future__ import annotations

import io
import logging
from collections.abc import Generator

import pytest
import structlog

from rapport.logs import configure_logging
from tests.channels.telegram.peer import babbles, fails, flood, hangs, resets, telegram_peer
from tests.channels.telegram.town import Impatient, road, road_to, telegram_settings
from tests.support.world import open_world, until


@pytest.fixture
def lines() -> Generator[io.StringIO]:
    """Everything that is logged at DEBUG, as the server writes it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    yield stream
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_the_token_is_in_no_output_log_or_table(
    lines: io.StringIO, impatient: Impatient, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    impatient.for_answers(0.3)
    impatient.for_news(1)
    impatient.for_a_token(0.1)
    impatient.for_rivals(0.1)
    async with telegram_peer() as peer, road_to(peer) as way:
        people = [peer.person(f"P{number}") for number in range(8)]
        chats = [peer.private(person) for person in people]
        settings = telegram_settings(peer, (), tuple(people), telegram_api_url=way.url)
        faults = [fails(500), fails(504), resets(), resets(after=True), hangs(), babbles(), flood(1)]
        async with open_world(database_url, **settings) as world:
            for fault, person, chat in zip(faults, people, chats, strict=False):
                before = len(peer.calls("sendMessage"))
                peer.will(fault, on="sendMessage")
                chat.says(person, "hello")
                await peer.until(lambda before=before: len(peer.calls("sendMessage")) > before)
            for fault in (fails(500), resets(), hangs()):
                before = len(peer.calls("getUpdates"))
                peer.will(fault, on="getUpdates")
                await peer.until(lambda before=before: len(peer.calls("getUpdates")) > before + 1)
            chats[-1].says(people[-1], "/forget")
            peer.will(resets(), on="sendMessage")
            peer.revokes_token()
            await until(lambda: "telegram.token_refused" in lines.getvalue())
            peer.is_revoked = False
            await way.closes()
            await until(lambda: "can't be reached" in lines.getvalue())
            peer.updates.add("message", {"message_id": "unreadable", "chat": chats[0].raw})
            await way.opens()
            kept = str(await world.sql("SELECT o::text FROM outbox o"))
            kept += str(await world.sql("SELECT u::text FROM telegram_updates u"))
            kept += str(await world.sql("SELECT c::text FROM conversations c"))
            shown = (await world.http.get("/metrics")).text + (await world.http.get("/healthz")).text
            shown += repr(world.settings) + str(world.settings)
    written = lines.getvalue()
    for secret in (peer.token, peer.token.partition(":")[2]):
        assert secret not in written
        assert secret not in kept
        assert secret not in shown
        assert secret not in caplog.text
    # The redactor had nothing to remove either: no line contained it.
    assert "[redacted]" not in written
    assert "deliver.unconfirmed" in written
    assert kept.count("telegram:") >= len(people)


async def test_a_refused_webhook_call_reveals_nothing(lines: io.StringIO, database_url: str) -> None:
    async with telegram_peer() as peer, road() as here:
        settings = telegram_settings(peer, (), (), telegram_webhook_url=here.url)
        async with open_world(database_url, **settings) as world:
            here.leads_to(str(world.http.base_url))
            await peer.until(lambda: peer.updates.webhook)
            assert peer.updates.webhook is not None
            secret = str(peer.updates.webhook.secret)
            header = "X-Telegram-Bot-Api-Secret-Token"
            told = ""
            for shown, body in (("", b"{}"), ("wrong", b"{}"), (secret, b"{}"), (secret, b"x"), (secret, b"x" * 10**6)):
                response = await world.http.post("/telegram/webhook", content=body, headers={header: shown})
                told += response.text + str(response.headers)
    for hidden in (secret, peer.token, peer.token.partition(":")[2]):
        assert hidden not in told
        assert hidden not in lines.getvalue()
