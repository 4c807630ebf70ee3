"""Report on Telegram for `rapport doctor`: the bot, its privacy mode in groups, and who may talk with it."""

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
    """Name the bot that the token belongs to and how it gets updates; raise RapportError if it can't."""
    async with _open_api(settings) as api:
        me = await _call(api, "getMe")
        info = await _call(api, "getWebhookInfo")
        # Many programs have their token in the address: it is not for the screen, nor for where that is shown.
        set_to = api.redact(str(info.get("url") or ""))
        wanted = api.redact(make_webhook_url(settings.telegram_webhook_url or ""))
    waiting = info.get("pending_update_count") or 0
    name = f"@{me.get('username')}"
    if settings.telegram_webhook_url is None:
        if set_to:
            return Caution(f"{name}; a webhook is set to {set_to}, and will be deleted when the server starts to poll")
        return f"{name}, by polling; {waiting} updates wait"
    if set_to != wanted:
        now = f"set to {set_to}" if set_to else "not set"
        return Caution(f"{name}, by webhook; it is {now}, and will be set to {wanted} when the server starts")
    if failed := info.get("last_error_message"):
        return Caution(f"{name}, by webhook at {set_to}; Telegram's last call failed: {failed}; {waiting} updates wait")
    return f"{name}, by webhook at {set_to}; {waiting} updates wait"


async def check_privacy_mode(settings: Settings) -> str:
    """Say whether privacy mode hides group messages from the bot, and what turning it off means."""
    async with _open_api(settings) as api:
        me = await _call(api, "getMe")
    if me.get("can_read_all_group_messages") is False:
        return Caution(PRIVACY_REMEDY)
    if me.get("can_join_groups") is False:
        return Caution("the bot can't be added to groups: @BotFather, /setjoingroups, Enable")
    return "privacy mode is off: it is given every message of its groups, and Rapport stores them"


async def report_access(database: Database, settings: Settings) -> str:
    """Count who may talk with the bot, and name who tried without being allowed."""
    admission = read_admission(settings.telegram_allowed_chats, settings.telegram_allowed_users)
    assert settings.telegram_bot_token is not None
    async with database.statement() as connection:
        tried = await TelegramUpdates(connection, BotApi(settings.telegram_bot_token).number).list_rejected_chats()
    left = [one for one in tried if one.chat_id not in admission.chats and one.chat_id not in admission.users]
    told = "; ".join(map(_describe_refused, left[:MAX_SHOWN]))
    if admission.is_empty:
        return Caution(f"nobody may talk with it yet. {told or 'Write to it: then its log and this line say your id.'}")
    allowed = f"{_count_admitted(admission)} may talk with it"
    return f"{allowed}. Not let in: {told}" if told else allowed


def _describe_refused(refused: RejectedChat) -> str:
    name = "".join(character for character in refused.name if character.isprintable())[:60]
    who = f"{name} ({refused.chat_id})" if has_visible_text(name) else str(refused.chat_id)
    times = "once" if refused.times == 1 else f"{refused.times} times"
    return f"{who} tried {times}: {describe_remedy(refused.chat_id, refused.kind)}"


def _count_admitted(admission: Admission) -> str:
    groups = sum(chat < 0 for chat in admission.chats)
    people = len(admission.chats) - groups + len(admission.users)
    parts = [
        f"{number} {one if number == 1 else several}"
        for number, one, several in ((people, "person", "people"), (groups, "group", "groups"))
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
