"""Simulate the updates of a bot: queued, fetched by long polling or pushed to a webhook, and kept until confirmed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.channels.telegram.peer_faults import Refusal

Json = dict[str, Any]

ON_REQUEST_ONLY = {"chat_member", "message_reaction", "message_reaction_count"}
FIRST_UPDATE = 700_000_001
_LONGEST_POLL = 50.0
_TERMINATED = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
_WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)


@dataclass(slots=True, eq=False)
class _Pending:
    update: Json
    owed: int = 0
    """The number of deliveries after its confirmation."""
    given: int = 0

    @property
    def id(self) -> int:
        return self.update["update_id"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try to push an update to the webhook; without a status, nobody answered."""

    update_id: int
    status: int | None
    at: float


@dataclass(slots=True)
class Webhook:
    url: str
    secret: str | None = None
    last_error: str | None = None
    last_error_at: int = 0


@dataclass(slots=True)
class Updates:
    """Every update is given out until it is confirmed, and forgotten then."""

    copies: int = 1
    """The number of deliveries of each update, confirmed or not."""
    shuffle: random.Random | None = None
    """Set: what is waiting is delivered out of order."""
    pause: float = 0.05
    """The pause of the webhook after a failure, in seconds."""
    made: dict[int, Json] = field(default_factory=dict[int, Json])
    """Every update there ever was, by its id."""
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    webhook: Webhook | None = None
    allowed: Sequence[str] = ()
    _pending: list[_Pending] = field(default_factory=list[_Pending])
    _next: int = FIRST_UPDATE
    _poll: asyncio.Future[Refusal] | None = None
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _pushing: asyncio.Task[None] | None = None

    @property
    def pending(self) -> list[int]:
        """The ids of what hasn't been confirmed."""
        return [one.id for one in self._pending]

    def add(self, kind: str, body: Json) -> int | None:
        """A new update; None if the bot didn't ask for this kind."""
        if (kind not in self.allowed) if self.allowed else (kind in ON_REQUEST_ONLY):
            return None
        number, self._next = self._next, self._next + 1
        update: Json = {"update_id": number, kind: body}
        self.made[number] = update
        self._pending.append(_Pending(update, owed=self.copies if self.copies > 1 else 0))
        self._arrived.set()
        return number

    def again(self, update_id: int) -> None:
        """Deliver an update once more, whatever has been confirmed."""
        self._pending.append(_Pending(self.made[update_id], owed=1))
        self._arrived.set()

    def drop(self) -> None:
        self._pending.clear()

    async def get(self, offset: int, limit: int, timeout: float) -> list[Json]:
        """getUpdates: confirm, and wait for what comes after. The newer of two polls wins."""
        if self.webhook is not None:
            raise Refusal(409, _WEBHOOK_ACTIVE)
        self.end_poll(Refusal(409, _TERMINATED))
        mine = self._poll = asyncio.get_running_loop().create_future()
        try:
            self._confirm(offset)
            deadline = time.monotonic() + min(max(timeout, 0.0), _LONGEST_POLL)
            while not self._pending and (left := deadline - time.monotonic()) > 0:
                await self._until_news(mine, left)
            return self._given(min(max(limit, 1), 100))
        finally:
            if self._poll is mine:
                self._poll = None
            mine.cancel()

    def end_poll(self, refusal: Refusal) -> None:
        """Refuse the poll that is waiting now."""
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(refusal)

    async def _until_news(self, mine: asyncio.Future[Refusal], seconds: float) -> None:
        self._arrived.clear()
        arrived = asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait({mine, arrived}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()
        if mine.done():
            raise mine.result()

    def _confirm(self, offset: int) -> None:
        if offset < 0:
            self._pending = self._pending[offset:]
        else:
            self._pending = [one for one in self._pending if one.id >= offset or one.given < one.owed]

    def _given(self, limit: int) -> list[Json]:
        chosen = self._pending[:limit]
        if self.shuffle is not None:
            self.shuffle.shuffle(chosen)
        for one in chosen:
            one.given += 1
        return [one.update for one in chosen]

    def set_webhook(self, webhook: Webhook) -> None:
        self.end_poll(Refusal(409, "Conflict: terminated by setWebhook request"))
        self.stop()
        self.webhook = webhook
        self._pushing = asyncio.create_task(self._push(webhook))

    def delete_webhook(self) -> None:
        self.stop()
        self.webhook = None

    def stop(self) -> None:
        """Push nothing any more."""
        if self._pushing is not None:
            self._pushing.cancel()
            self._pushing = None

    async def close(self) -> None:
        pushing = self._pushing
        self.stop()
        if pushing is not None:
            with suppress(asyncio.CancelledError):
                await pushing

    async def _push(self, webhook: Webhook) -> None:
        """Hand over one update after the other, each until it is taken."""
        headers = {"X-Telegram-Bot-Api-Secret-Token": webhook.secret} if webhook.secret else {}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(60)) as session:
            while True:
                self._arrived.clear()
                if not self._pending:
                    await self._arrived.wait()
                one = self.shuffle.choice(self._pending) if self.shuffle else self._pending[0]
                if await self._taken(session, webhook, one.update):
                    one.given += 1
                    if one.given >= one.owed and one in self._pending:
                        self._pending.remove(one)
                else:
                    await asyncio.sleep(self.pause)

    async def _taken(self, session: aiohttp.ClientSession, webhook: Webhook, update: Json) -> bool:
        status = None
        try:
            async with session.post(webhook.url, json=update, allow_redirects=False) as response:
                await response.read()
                status = response.status
            trouble = f"Wrong response from the webhook: {status} {response.reason}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            trouble = f"Connection failed: {error}"
        self.deliveries.append(Delivery(update["update_id"], status, time.time()))
        if status is not None and 200 <= status < 300:
            return True
        webhook.last_error, webhook.last_error_at = trouble, int(time.time())
        return False
