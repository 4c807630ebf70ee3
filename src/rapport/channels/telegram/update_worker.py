"""Handle stored updates: in order within a chat, several chats at once, each update once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import structlog

from rapport.channels.telegram.albums import AlbumIncomplete
from rapport.channels.telegram.reading.extract import read_update
from rapport.channels.telegram.update_types import BotIdentity, ChatEvent
from rapport.domain.errors import InvalidInput, NotFound, Permanent, Transient
from rapport.storage.database import Database
from rapport.storage.telegram import TelegramUpdates, WaitingUpdate

log = structlog.get_logger()

BATCH = 100
MAX_CONCURRENT_CHATS = 8
"""The number of chats that are handled at once, so that one that hangs does not block the others."""
POLL_SECONDS = 1.0
PAUSE_SECONDS = 1.0
"""Pause of a chat whose next update cannot be handled now, unless Telegram asks for more."""
MAX_ATTEMPTS = 8
"""An update that failed this often (some two minutes) is given up, so that those after it are handled."""
CLEANUP_SECONDS = 3_600.0
"""Interval at which the numbers of old updates are deleted."""


class Handler(Protocol):
    """Handles an event. Safe to repeat."""

    async def handle(self, happened: ChatEvent, *, update_id: int, payload: Mapping[str, Any]) -> None: ...


class UpdateWorker:
    """Handles one bot's updates, in one process at a time. After a crash the next process repeats unfinished updates."""

    def __init__(self, database: Database, handler: Handler, *, bot: int) -> None:
        self._database = database
        self._handler = handler
        self._bot = bot
        self._woken = asyncio.Event()
        self._poll_lock = asyncio.Lock()
        self._busy_chats: set[int] = set()
        self._paused_until: dict[int, float] = {}
        self._cleanup_at = 0.0

    def wake(self) -> None:
        """Signal that an update was stored."""
        self._woken.set()

    async def run(self, bot_identity: BotIdentity) -> None:
        """Handle updates until cancelled."""
        await asyncio.gather(*(self._work_chats(bot_identity) for _ in range(MAX_CONCURRENT_CHATS)))

    async def _work_chats(self, bot: BotIdentity) -> None:
        """Handle one chat after the other, each until nothing waits or an update must be retried later."""
        while True:
            updates = await self._take_chat()
            chat_id = updates[0].chat_id
            rest = 0.0
            try:
                rest = await self._handle_in_order(updates, bot)
            except Exception as error:  # noqa: BLE001 - other chats must go on, and this one is retried
                log.warning("telegram.waiting", chat=chat_id, reason=str(error), errorType=type(error).__name__)
                rest = PAUSE_SECONDS
            if rest:
                self._paused_until[chat_id] = time.monotonic() + rest
            self._busy_chats.discard(chat_id)
            self._woken.set()  # updates of this chat may have arrived meanwhile

    async def _take_chat(self) -> Sequence[WaitingUpdate]:
        """Return the waiting updates of the chat that waits longest and is not being handled."""
        async with self._poll_lock:
            while True:
                try:
                    if updates := await self._poll_updates():
                        self._busy_chats.add(updates[0].chat_id)
                        return updates
                except (Transient, Permanent) as error:
                    log.warning("telegram.waiting", reason=str(error))
                    await asyncio.sleep(PAUSE_SECONDS)
                pauses = [until - time.monotonic() for until in self._paused_until.values()]
                try:
                    async with asyncio.timeout(max(0.0, min([POLL_SECONDS, *pauses]))):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                self._woken.clear()

    async def _poll_updates(self) -> Sequence[WaitingUpdate]:
        now = time.monotonic()
        self._paused_until = {chat_id: until for chat_id, until in self._paused_until.items() if until > now}
        async with self._database.statement() as connection:
            updates = TelegramUpdates(connection, self._bot)
            if now >= self._cleanup_at:
                await updates.delete_old()
                self._cleanup_at = now + CLEANUP_SECONDS
            return await updates.list_waiting(BATCH, except_for=[*self._busy_chats, *self._paused_until])

    async def _handle_in_order(self, updates: Sequence[WaitingUpdate], bot: BotIdentity) -> float:
        """Handle a chat's updates until one fails; return the seconds to pause the chat."""
        for update in updates:
            if rest := await self._handle_update(update, bot):
                return rest
        return 0.0

    async def _handle_update(self, update: WaitingUpdate, bot: BotIdentity) -> float:
        """Handle one update; return the seconds after which to retry it, 0 if it is done."""
        error: str | None = None
        bound = log.bind(updateId=update.update_id, chat=update.chat_id)
        try:
            payload = json.loads(update.payload)
            await self._handler.handle(read_update(payload, bot), update_id=update.update_id, payload=payload)
        except (InvalidInput, NotFound) as refused:
            error = str(refused)
            bound.warning("telegram.unreadable", reason=error)
        except AlbumIncomplete as more:
            return more.retry_after
        except Transient as later:
            bound.warning("telegram.postponed", reason=str(later))
            return max(later.retry_after, PAUSE_SECONDS)
        except Exception as failure:  # noqa: BLE001 - one broken update must not stop the others
            bound.exception("chat.error", conversationId=None, errorType=type(failure).__name__, message=str(failure))
            if update.attempts + 1 < MAX_ATTEMPTS:
                async with self._database.statement() as connection:
                    await TelegramUpdates(connection, self._bot).mark_failed(
                        update.update_id, error=type(failure).__name__
                    )
                return PAUSE_SECONDS * 2**update.attempts
            error = type(failure).__name__
        async with self._database.statement() as connection:
            await TelegramUpdates(connection, self._bot).mark_done(update.update_id, error=error)
        return 0.0
