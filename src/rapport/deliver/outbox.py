"""Sends what the outbox holds, each through its channel, in order per conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from rapport.domain import failpoints
from rapport.domain.conversation import Message
from rapport.domain.errors import Permanent, Transient
from rapport.storage.database import Database
from rapport.storage.outbox import Effect, Outbox

log = structlog.get_logger()

MAX_ATTEMPTS = 8
SEND_SECONDS = 60.0


class OutcomeUnknown(Transient):
    """The send may or may not have arrived: repeating it could show the message twice."""


class Channel(Protocol):
    """A way to reach people outside."""

    async def send(self, message: Message) -> Sequence[str]:
        """Deliver; returns the platform's own ids. Raises Transient (not delivered), OutcomeUnknown or Permanent."""
        ...


async def deliver_waiting(database: Database, channels: Mapping[str, Channel], *, worker_id: str) -> bool:
    """Send the next message that is due; False when there is none. Called by one task of a worker only.

    A crash between send and mark leaves the row `sending`; it counts as unknown then and is not sent again.
    """
    async with database.transaction() as connection:
        outbox = Outbox(connection)
        await outbox.give_up_own(worker_id=worker_id)
        if taken_back := await outbox.take_back():
            log.info("deliver.taken_back", messages=taken_back)
        effect = await outbox.claim(worker_id=worker_id)
    if effect is None:
        return False
    await _deliver(database, channels.get(effect.channel), effect)
    return True


async def _deliver(database: Database, channel: Channel | None, effect: Effect) -> None:
    bound = log.bind(conversationId=effect.message.conversation_id, messageId=effect.message.id, channel=effect.channel)
    try:
        if channel is None:
            raise Permanent(f"This process has no channel {effect.channel!r}.")
        async with asyncio.timeout(SEND_SECONDS):
            platform_ids = await channel.send(effect.message)
    except (OutcomeUnknown, TimeoutError) as error:
        await _park(database, effect, error, unknown=True)
        bound.warning("deliver.unknown", reason=str(error) or "no answer in time")
    except Transient as error:
        if effect.attempts >= MAX_ATTEMPTS:
            await _park(database, effect, error, unknown=False)
            bound.error("deliver.failed", reason=str(error), attempts=effect.attempts)
            return
        delay = max(error.retry_after, float(2**effect.attempts))
        async with database.statement() as connection:
            await Outbox(connection).try_again(effect, error=str(error), delay=delay)
        bound.info("deliver.delayed", reason=str(error), delay=delay)
    except Permanent as error:
        await _park(database, effect, error, unknown=False)
        bound.error("deliver.failed", reason=str(error), attempts=effect.attempts)
    except Exception as error:  # noqa: BLE001 - a channel may fail in any way; what may have arrived is not repeated
        await _park(database, effect, error, unknown=True)
        bound.exception("deliver.unknown", reason=type(error).__name__)
    else:
        failpoints.reach("deliver.sent")
        async with database.transaction() as connection:
            await Outbox(connection).sent(effect, platform_ids=platform_ids)
        bound.info("deliver.sent")


async def _park(database: Database, effect: Effect, error: Exception, *, unknown: bool) -> None:
    async with database.statement() as connection:
        await Outbox(connection).give_up(effect, error=str(error), unknown=unknown)
