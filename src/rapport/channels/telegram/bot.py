"""Receive updates by polling or webhook, and store them before confirming them to Telegram."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import structlog

from rapport.channels.base import PostNotice
from rapport.channels.telegram.admission import Admission
from rapport.channels.telegram.api import POLL_SECONDS, BotApi, TokenRefused, UpdatesConflict
from rapport.channels.telegram.chat_mapping import rename_bot
from rapport.channels.telegram.commands.run_command import COMMANDS, CommandContext
from rapport.channels.telegram.handle_update import UpdateHandler
from rapport.channels.telegram.inbox import Inbox
from rapport.channels.telegram.update_types import BotIdentity
from rapport.channels.telegram.update_worker import UpdateWorker
from rapport.domain.errors import Permanent, Transient
from rapport.ingest.archive_rows import as_mapping
from rapport.storage.database import Database

log = structlog.get_logger()

UPDATE_KINDS = json.dumps(["message", "edited_message", "callback_query", "my_chat_member"])
"""The kinds of updates to ask for."""
WEBHOOK_PATH = "/telegram/webhook"
BATCH = 100
MIN_POLL_SECONDS = 1.0
"""An empty answer that comes sooner did not wait: pause before the next request."""
MAX_BACKOFF_SECONDS = 60.0
WEBHOOK_CHECK_SECONDS = 300.0
"""Interval of the check that the webhook is still set."""

PRIVACY_REMEDY = (
    "privacy mode is on: in groups the bot is given only commands, messages that tag it and replies to it, so it can't know"
    " what people talked about. To turn it off: @BotFather, /setprivacy, Disable; then remove the bot from the group and add"
    " it again. It is given every message of its groups then, and Rapport stores them"
)


class TelegramBot:
    """Run one bot. One of all processes polls and handles updates; each may receive webhook calls."""

    def __init__(
        self,
        api: BotApi,
        admission: Admission,
        context: CommandContext,
        post: PostNotice,
        *,
        database: Database,
        agent_id: str,
        webhook_url: str | None = None,
    ) -> None:
        self.api = api
        self.admission = admission
        self._context = context
        self._post = post
        self._database = database
        self._agent_id = agent_id
        self._webhook_url = webhook_url
        self._known = asyncio.Event()
        self._me: BotIdentity | None = None
        self._reader: UpdateWorker | None = None
        self.inbox = Inbox(database, admission, bot=api.number, on_stored=self.wake)

    @property
    def name(self) -> str:
        return f"telegram-{self.api.number}"

    @property
    def uses_webhook(self) -> bool:
        """Return True if Telegram calls a webhook instead of being polled."""
        return self._webhook_url is not None

    @property
    def loops(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return (self._keep_webhook if self.uses_webhook else self._poll, self._handle_updates)

    def wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    # ---- updates

    async def _poll(self) -> None:
        """Poll for updates, store them, and only then confirm them to Telegram; forever."""
        await self._identify()
        offset: int | None = None
        pauses = _Backoff()
        while True:
            started_at = time.monotonic()
            try:
                result = await self.api.call(
                    "getUpdates", timeout=POLL_SECONDS, offset=offset, limit=BATCH, allowed_updates=UPDATE_KINDS
                )
                updates = _keep_updates(result)
                await self.inbox.store(updates)
                # Without updates there is no offset: after a quiet week Telegram restarts its numbers at any value, and an
                # old offset could skip updates.
                before, offset = offset, _next_offset(updates)
                pauses.reset()
                if offset in (None, before) and time.monotonic() - started_at < MIN_POLL_SECONDS:
                    await asyncio.sleep(MIN_POLL_SECONDS / 2)
            except UpdatesConflict as error:
                await self._resolve_conflict(error, pauses)
            except (Transient, Permanent) as error:
                await self._back_off(error, pauses)

    async def _resolve_conflict(self, error: UpdatesConflict, pauses: _Backoff) -> None:
        """Delete a webhook that is still set; if another program polls, log it and wait."""
        if "webhook" in str(error).lower():
            log.warning("telegram.webhook_deleted", reason=str(error))
            try:
                await self.api.call("deleteWebhook")
                await pauses.sleep(at_least=0.0)  # another program may set it again: back off
                return
            except (Transient, Permanent) as failure:
                error = UpdatesConflict(str(failure))
        log.error(
            "telegram.conflict",
            reason=str(error),
            remedy="another program asks for this bot's updates: stop it, or give it a token of its own",
        )
        await pauses.sleep(at_least=error.retry_after)

    async def _keep_webhook(self) -> None:
        """Set the webhook, and set it again when it is lost."""
        await self._identify()
        assert self._webhook_url is not None
        url = make_webhook_url(self._webhook_url)
        pauses = _Backoff()
        is_set = False
        while True:
            try:
                info = await self._load_webhook_info() if is_set else dict[str, Any]()
                if info.get("url") != url:
                    await self.api.call(
                        "setWebhook", url=url, secret_token=self.api.webhook_secret, allowed_updates=UPDATE_KINDS
                    )
                    is_set = True
                    log.info("telegram.webhook_set", url=url)
                elif error := info.get("last_error_message"):
                    log.warning("telegram.webhook_failed", reason=str(error), waiting=info.get("pending_update_count"))
                pauses.reset()
                await asyncio.sleep(WEBHOOK_CHECK_SECONDS)
            except (Transient, Permanent) as error:
                await self._back_off(error, pauses)

    async def _load_webhook_info(self) -> Mapping[str, Any]:
        return as_mapping(await self.api.call("getWebhookInfo")) or {}

    async def _back_off(self, error: Transient | Permanent, pauses: _Backoff) -> None:
        if isinstance(error, TokenRefused):
            log.error("telegram.token_refused", remedy="set TELEGRAM_BOT_TOKEN to the token that @BotFather gives now")
            await pauses.sleep(at_least=MAX_BACKOFF_SECONDS / 2)
            return
        log.warning("telegram.unreachable", reason=str(error))
        await pauses.sleep(at_least=error.retry_after if isinstance(error, Transient) else 1.0)

    # ---- identity

    async def _identify(self) -> None:
        """Load the bot's identity, which reading a message needs, and register the commands."""
        pauses = _Backoff()
        while True:
            try:
                account = await self.api.call("getMe")
                self._me = BotIdentity(int(account["id"]), str(account["username"]), self._agent_id)
                await rename_bot(self._database, self._me.username, bot=self.api.number)
                break
            except (KeyError, TypeError, ValueError):
                await self._back_off(Permanent("It does not say who the bot is."), pauses)
            except (Transient, Permanent) as error:
                await self._back_off(error, pauses)
        self._known.set()
        mode = "called" if self.uses_webhook else "asking"
        log.info("telegram.started", bot=self._me.username, way=mode)
        if self.admission.is_empty:
            log.warning(
                "telegram.nobody_allowed",
                remedy="write to the bot; the log then says what to set TELEGRAM_ALLOWED_USERS or TELEGRAM_ALLOWED_CHATS to",
            )
        if account.get("can_read_all_group_messages") is False and any(chat < 0 for chat in self.admission.chats):
            log.warning("telegram.privacy_mode", remedy=PRIVACY_REMEDY)
        commands = json.dumps([{"command": name, "description": description} for name, description in COMMANDS])
        try:
            await self.api.call("setMyCommands", commands=commands)
        except (Transient, Permanent) as error:
            log.warning("telegram.commands_not_registered", reason=str(error))

    async def _handle_updates(self) -> None:
        await self._known.wait()
        assert self._me is not None
        handler = UpdateHandler(self.api, self.admission, self._context, self._post, self._database, self._me)
        self._reader = UpdateWorker(self._database, handler, bot=self.api.number)
        await self._reader.run(self._me)


class _Backoff:
    """Sleep twice as long after each failure, until a request succeeds."""

    def __init__(self) -> None:
        self._next = 1.0

    def reset(self) -> None:
        self._next = 1.0

    async def sleep(self, *, at_least: float) -> None:
        await asyncio.sleep(max(at_least, self._next))
        self._next = min(self._next * 2, MAX_BACKOFF_SECONDS)


def make_webhook_url(url: str) -> str:
    """Return the webhook's URL on a server with this address."""
    base = url.rstrip("/")
    return base if base.endswith(WEBHOOK_PATH) else base + WEBHOOK_PATH


def _keep_updates(result: object) -> list[Mapping[str, Any]]:
    """Return the items that are JSON objects."""
    items = cast("list[object]", result) if isinstance(result, list) else []
    return [update for update in map(as_mapping, items) if update is not None]


def _next_offset(updates: Sequence[Mapping[str, Any]]) -> int | None:
    numbers = [update["update_id"] for update in updates if isinstance(update.get("update_id"), int)]
    return max(numbers) + 1 if numbers else None
