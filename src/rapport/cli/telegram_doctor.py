"""Report on Telegram for `rapport doctor`: the bot, its privacy mode in groups, and who may use it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rapport.channels.telegram.admission import Admission, read_admission
from rapport.channels.telegram.api import BotApi, TokenRefused
from rapport.channels.telegram.bot import PRIVACY_REMEDY, make_webhook_url
from rapport.channels.telegram.inbox import describe_remedy
from rapport.cli.doctor import Caution
from rapport.domain.errors import RapportError
from rapport.domain.text_checks import has_visible_text
from rapport.ingest.archive_rows import as_mapping
from rapport.settings import Settings
from rapport.storage.database import Database
from rapport.storage.telegram import RejectedChat, TelegramUpdates

MAX_SHOWN = 5


async def check_bot(settings: Settings) -> str:
    """Return the bot's name and how it gets updates; raise RapportError if it can't get any."""
    async with _open_api(settings) as api:
        bot = await _call(api, "getMe")
        info = await _call(api, "getWebhookInfo")
        # A webhook's address may contain a token: it must not be printed.
        current_url = api.redact(str(info.get("url") or ""))
        expected_url = api.redact(make_webhook_url(settings.telegram_webhook_url or ""))
    pending = info.get("pending_update_count") or 0
    name = f"@{bot.get('username')}"
    if settings.telegram_webhook_url is None:
        if current_url:
            return Caution(
                f"{name}; a webhook is set to {current_url}, and will be deleted when the server starts to poll"
            )
        return f"{name}, by polling; {pending} updates wait"
    if current_url != expected_url:
        now = f"set to {current_url}" if current_url else "not set"
        return Caution(f"{name}, by webhook; it is {now}, and will be set to {expected_url} when the server starts")
    if failed := info.get("last_error_message"):
        return Caution(
            f"{name}, by webhook at {current_url}; Telegram's last call failed: {failed}; {pending} updates wait"
        )
    return f"{name}, by webhook at {current_url}; {pending} updates wait"


async def check_privacy_mode(settings: Settings) -> str:
    """Return whether privacy mode hides group messages from the bot, and how to turn it off."""
    async with _open_api(settings) as api:
        bot = await _call(api, "getMe")
    if bot.get("can_read_all_group_messages") is False:
        return Caution(PRIVACY_REMEDY)
    if bot.get("can_join_groups") is False:
        return Caution("the bot can't be added to groups: @BotFather, /setjoingroups, Enable")
    return "privacy mode is off: it is given every message of its groups, and Rapport stores them"


async def report_access(database: Database, settings: Settings) -> str:
    """Return the number of admitted chats and people, and the rejected ones that wrote to the bot."""
    admission = read_admission(settings.telegram_allowed_chats, settings.telegram_allowed_users)
    assert settings.telegram_bot_token is not None
    async with database.statement() as connection:
        rejected = await TelegramUpdates(connection, BotApi(settings.telegram_bot_token).number).list_rejected_chats()
    still_rejected = [
        chat for chat in rejected if chat.chat_id not in admission.chats and chat.chat_id not in admission.users
    ]
    names = "; ".join(map(_describe_refused, still_rejected[:MAX_SHOWN]))
    if admission.is_empty:
        return Caution(
            f"nobody may talk with it yet. {names or 'Write to it: then its log and this line say your id.'}"
        )
    allowed = f"{_count_admitted(admission)} may talk with it"
    return f"{allowed}. Not let in: {names}" if names else allowed


def _describe_refused(refused: RejectedChat) -> str:
    name = "".join(character for character in refused.name if character.isprintable())[:60]
    label = f"{name} ({refused.chat_id})" if has_visible_text(name) else str(refused.chat_id)
    times = "once" if refused.times == 1 else f"{refused.times} times"
    return f"{label} tried {times}: {describe_remedy(refused.chat_id, refused.kind)}"


def _count_admitted(admission: Admission) -> str:
    groups = sum(chat < 0 for chat in admission.chats)
    people = len(admission.chats) - groups + len(admission.users)
    parts = [
        f"{number} {singular if number == 1 else plural}"
        for number, singular, plural in ((people, "person", "people"), (groups, "group", "groups"))
        if number
    ]
    return " and ".join(parts)


@asynccontextmanager
async def _open_api(settings: Settings) -> AsyncGenerator[BotApi]:
    assert settings.telegram_bot_token is not None
    api = BotApi(settings.telegram_bot_token, url=settings.telegram_api_url)
    await api.open()
    try:
        yield api
    finally:
        await api.close_connections()


async def _call(api: BotApi, method: str) -> Mapping[str, Any]:
    try:
        return as_mapping(await api.call(method)) or {}
    except TokenRefused as error:
        raise RapportError(f"{error} @BotFather shows the right one under /mybots, API Token.") from None
