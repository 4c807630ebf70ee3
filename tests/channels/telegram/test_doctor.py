"""Test what `rapport doctor` reports about Telegram: the bot, the updates it gets, and the admitted chats."""

from __future__ import annotations

from rapport.cli.doctor import Caution
from rapport.cli.telegram_doctor import check_bot, check_privacy_mode, report_access
from rapport.settings import Settings
from tests.channels.telegram.peer import telegram_peer
from tests.channels.telegram.peer_updates import Webhook
from tests.channels.telegram.town import Town, open_town, telegram_settings


def settings_for(url: str, token: str, **changes: str) -> Settings:
    return Settings.model_validate({"telegram_bot_token": token, "telegram_api_url": url, **changes})


async def test_it_names_the_bot_and_how_it_gets_its_updates(town: Town) -> None:
    assert (await check_bot(town.world.settings)).startswith("@rapport_bot, by polling; 0 updates wait")
    assert (await check_privacy_mode(town.world.settings)).startswith("privacy mode is off")


async def test_a_token_in_somebody_elses_webhook_is_not_shown() -> None:
    """Many programs have themselves called at an address that has the token in it."""
    async with telegram_peer() as peer:
        for written in (peer.token, peer.token.replace(":", "%3A")):
            peer.updates.set_webhook(Webhook(f"https://old.example/{written}", None))
            for changes in ({}, {"telegram_webhook_url": "https://new.example"}):
                told = await check_bot(settings_for(peer.url, peer.token, **changes))
                assert isinstance(told, Caution)
                assert "https://old.example/" in told
                assert peer.token.partition(":")[2] not in told


async def test_it_says_how_to_let_in_who_has_tried(database_url: str) -> None:
    async with open_town(database_url, telegram_allowed_users="", telegram_allowed_chats="") as town:
        town.ann_alone.says(town.ann, "hello?")
        await town.settled()
        told = await report_access(town.world.database, town.world.settings)
        assert isinstance(told, Caution)
        assert (
            f"Ann ({town.ann.id}) tried once: to let this person in, set TELEGRAM_ALLOWED_USERS={town.ann.id}" in told
        )
        allowed = telegram_settings(town.peer, (town.team,), (town.ann,))
        assert await report_access(town.world.database, Settings.model_validate(allowed)) == (
            "1 person and 1 group may talk with it"
        )
