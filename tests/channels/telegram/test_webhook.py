"""Test the webhook: it needs the secret, and an update is stored before it is acknowledged."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from rapport.channels.telegram.inbox import MAX_UPDATE_CHARACTERS
from rapport.storage.postgres.embedded import EmbeddedPostgres
from tests.channels.telegram.town import Impatient, Town, another_world, database_away, logged, open_town, road
from tests.support.cases import every_case
from tests.support.world import World, until

TAG = "@rapport_bot"
HEADER = "X-Telegram-Bot-Api-Secret-Token"


@pytest.fixture
async def called(database_url: str) -> AsyncGenerator[Town]:
    """A town whose server is called by Telegram."""
    async with road() as here, open_town(database_url, telegram_webhook_url=f"{here.url}/") as town:
        here.leads_to(str(town.world.http.base_url))
        yield town


async def call(town: Town, body: Any, *, world: World | None = None, **headers: str) -> httpx.Response:
    """Post an update with the secret, as Telegram does."""
    assert town.peer.updates.webhook is not None
    shown = {HEADER: str(town.peer.updates.webhook.secret), **headers}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await (world or town.world).http.post(
        "/telegram/webhook", content=content, headers={"Content-Type": "application/json", **shown}
    )


def update_of(town: Town, text: str) -> dict[str, Any]:
    """An update that Telegram does not deliver by itself."""
    return {"update_id": 600_000_000, "message": town.ann_alone.already_said(town.ann, text).raw}


async def test_with_a_webhook_telegram_is_not_polled(called: Town) -> None:
    asked = await called.hears(called.team, called.ann, f"{TAG} hello")
    assert [answer.reply_to for answer in called.peer.posted(called.team)] == [asked.message_id]
    assert called.peer.calls("getUpdates") == []
    [request] = called.peer.calls("setWebhook")
    assert request.params["url"].endswith("/telegram/webhook")
    assert len(request.params["secret_token"]) >= 32
    assert called.peer.token.partition(":")[2] not in request.params["secret_token"]
    assert set(request.params["allowed_updates"]) == {"message", "edited_message", "callback_query", "my_chat_member"}
    assert [one.status for one in called.peer.updates.deliveries] == [200]


@every_case("shown", ["", "wrong", "wröng", "0" * 64])
async def test_who_does_not_show_the_secret_is_not_telegram(called: Town, shown: str) -> None:
    update = update_of(called, "let me in")
    headers = {HEADER.encode(): shown.encode("latin-1")} if shown else {}
    response = await called.world.http.post("/telegram/webhook", json=update, headers=headers)
    assert response.status_code == 401
    assert await called.world.sql("SELECT count(*) FROM telegram_updates") == [(0,)]


@every_case(
    ("body", "status"),
    [
        (b"not JSON", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"update_id": "7"}', 400),
        (b'{"update_id": -7}', 400),
        (b'{"update_id": true}', 400),
        (b'{"update_id": 7, "x": "' + b"x" * MAX_UPDATE_CHARACTERS + b'"}', 413),
    ],
)
async def test_what_is_no_update_is_refused(called: Town, body: bytes, status: int) -> None:
    response = await call(called, body)
    assert response.status_code == status
    assert await called.world.sql("SELECT count(*) FROM telegram_updates") == [(0,)]


async def test_an_update_is_stored_before_it_is_acknowledged(called: Town) -> None:
    update = update_of(called, "hello")
    # Whatever is stored now is not worked through any more.
    await called.world.worker.stop()
    assert (await call(called, update)).status_code == 200
    assert (await call(called, update)).status_code == 200
    [row] = await called.world.sql("SELECT update_id, payload::jsonb -> 'message' ->> 'text' FROM telegram_updates")
    assert row == (update["update_id"], "hello")


async def test_an_update_delivered_twice_counts_once(called: Town) -> None:
    called.peer.repeats_updates(3)
    called.ann_alone.says(called.ann, "hello")
    called.ann_alone.says(called.ann, "are you there?")
    await called.settled()
    assert called.peer.sent(called.ann_alone) == ["re: hello", "re: are you there?"]
    assert [one.status for one in called.peer.updates.deliveries] == [200] * 6


async def test_while_the_database_is_away_telegram_is_to_come_again(
    called: Town, postgres: EmbeddedPostgres, database_url: str
) -> None:
    with database_away(postgres.url_for("postgres"), database_url):
        called.ann_alone.says(called.ann, "hello")
        await called.peer.until(lambda: called.peer.updates.deliveries)
        assert called.peer.updates.deliveries[0].status == 503
    await called.peer.until_sent(called.ann_alone, 1)
    await called.settled()
    assert called.peer.sent(called.ann_alone) == ["re: hello"]
    assert called.peer.updates.deliveries[-1].status == 200


async def test_each_process_may_be_called_and_one_reads(called: Town) -> None:
    with logged() as lines:
        async with another_world(called) as second:
            assert (await call(called, update_of(called, "hello"), world=second)).status_code == 200
            await called.peer.until_sent(called.ann_alone, 1)
            await called.settled()
    assert called.peer.sent(called.ann_alone) == ["re: hello"]
    assert "leader.elected" not in [line["event"] for line in lines]  # the second one only took it
    assert len(called.peer.calls("setWebhook")) == 1


async def test_a_webhook_that_somebody_takes_away_is_set_again(impatient: Impatient, database_url: str) -> None:
    impatient.for_the_webhook(0.1)
    async with road() as here, open_town(database_url, telegram_webhook_url=f"{here.url}/telegram/webhook") as town:
        here.leads_to(str(town.world.http.base_url))
        async with httpx.AsyncClient() as somebody:
            await somebody.get(f"{town.peer.url}/bot{town.peer.token}/deleteWebhook")
        await town.peer.until(lambda: len(town.peer.calls("setWebhook")) == 2)
        await town.hears(town.ann_alone, town.ann, "hello")
        assert town.peer.sent(town.ann_alone) == ["re: hello"]


async def test_a_webhook_that_telegram_cannot_reach_is_reported(impatient: Impatient, database_url: str) -> None:
    impatient.for_the_webhook(0.1)
    with logged() as lines:
        async with open_town(database_url, telegram_webhook_url="http://127.0.0.1:9") as town:
            town.ann_alone.says(town.ann, "hello")
            await until(lambda: any(line["event"] == "telegram.webhook_failed" for line in lines))
    [line, *_] = [line for line in lines if line["event"] == "telegram.webhook_failed"]
    assert "Connection failed" in line["reason"]
    assert line["waiting"] == 1


async def test_with_polling_no_webhook_is_served(town: Town) -> None:
    response = await town.world.http.post("/telegram/webhook", json={"update_id": 1}, headers={HEADER: "x"})
    assert response.status_code == 404
