"""Open the Telegram channel: one bot that polls or is called by a webhook, and sends replies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from rapport.channels.base import Channel, ChannelServices
from rapport.domain.agent_profile import EVERYONE
from rapport.domain.errors import InvalidInput
from rapport.domain.extras import TELEGRAM, require_extra

if TYPE_CHECKING:
    from fastapi import APIRouter


class TelegramSettings(Protocol):
    """The settings that this channel reads."""

    @property
    def telegram_bot_token(self) -> str | None: ...

    @property
    def telegram_allowed_chats(self) -> str: ...

    @property
    def telegram_allowed_users(self) -> str: ...

    @property
    def telegram_agent(self) -> str | None: ...

    @property
    def telegram_webhook_url(self) -> str | None: ...

    @property
    def telegram_api_url(self) -> str: ...


@asynccontextmanager
async def open_channel(settings: TelegramSettings, services: ChannelServices) -> AsyncGenerator[Channel | None]:
    """Yield the channel of the bot whose token is set; None without a token."""
    if settings.telegram_bot_token is None:
        yield None
        return
    require_extra(TELEGRAM, "TELEGRAM_BOT_TOKEN is set")
    # Imported here: python-telegram-bot is an extra, and slow to import.
    from rapport.agents.profiles import DEFAULT_AGENT_ID
    from rapport.channels.telegram.admission import read_admission
    from rapport.channels.telegram.api import BotApi
    from rapport.channels.telegram.bot import TelegramBot
    from rapport.channels.telegram.chat_mapping import CHANNEL
    from rapport.channels.telegram.commands.run_command import CommandContext
    from rapport.channels.telegram.writing.channel import TelegramChannel

    agent_id = settings.telegram_agent or DEFAULT_AGENT_ID
    known_ids = [each.id for each in await services.core.agents.list_usable(EVERYONE)]
    if agent_id not in known_ids:
        ids = ", ".join(known_ids)
        raise InvalidInput(
            f"TELEGRAM_AGENT: there is no agent {agent_id[:64]!r} that everyone may use; there are {ids}."
        )
    api = BotApi(settings.telegram_bot_token, url=settings.telegram_api_url)
    bot = TelegramBot(
        api,
        read_admission(settings.telegram_allowed_chats, settings.telegram_allowed_users),
        CommandContext(services.core, services.autonomy),
        services.post_notice,
        database=services.database,
        agent_id=agent_id,
        webhook_url=settings.telegram_webhook_url,
    )
    routers: tuple[APIRouter, ...] = ()
    if bot.uses_webhook:
        from rapport.channels.telegram.webhook import make_webhook_routes

        routers = (make_webhook_routes(bot.inbox, secret=api.webhook_secret),)
    await api.open()
    try:
        yield Channel(CHANNEL, TelegramChannel(api, services.database, services.core.history), bot, routers)
    finally:
        await api.close_connections()
