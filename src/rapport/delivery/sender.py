"""Send outbox rows through their channels, in order per conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog

from rapport.domain import failpoints
from rapport.domain.channel import NotYet, OutcomeUnknown, OutgoingChannel, Unreachable
from rapport.domain.errors import Permanent, Transient
from rapport.storage.conversations.conversations import Conversations
from rapport.storage.database import Database
from rapport.storage.work.outbox import Effect, Outbox

log = structlog.get_logger()

SEND_TIMEOUT_SECONDS = 60.0
GIVE_UP_AFTER_SECONDS = 86_400.0
"""A row that can't be sent within this time is given up: the answer is outdated."""
MAX_BACKOFF_SECONDS = 300.0
"""The longest time between two attempts, unless the channel asks for more."""
MARK_RETRY_SECONDS = 0.5
"""Seconds between two attempts to store the outcome of a send while the database is unavailable."""


async def claim_due(
    database: Database, channels: Collection[str], *, worker_id: str, limit: int, sending: Collection[str]
) -> list[Effect]:
    """Claim the next due rows. `sending` are the rows that this worker sends already.

    A crash between send and mark leaves a row in the state `sending`: it is unconfirmed, and checked before it is sent again.
    """
    async with database.transaction() as connection:
        outbox = Outbox(connection)
        await outbox.mark_own_unconfirmed(worker_id=worker_id, except_for=sending)
        if deleted := await outbox.take_back():
            log.info("deliver.withdrawn", messages=deleted)
        return await outbox.claim(worker_id=worker_id, channels=channels, limit=limit, patience=GIVE_UP_AFTER_SECONDS)


async def deliver(database: Database, channels: Mapping[str, OutgoingChannel], effect: Effect) -> None:
    """Send a row, or check an unconfirmed one, and store the outcome."""
    bound = log.bind(conversationId=effect.conversation_id, messageId=effect.outgoing.id, channel=effect.channel)
    process = _check_arrival if effect.is_unconfirmed else _send
    try:
        await process(database, channels[effect.channel], effect)
    except (OutcomeUnknown, TimeoutError) as error:
        reason = str(error) or "no answer in time"
        if effect.is_unconfirmed:
            await _give_up(database, effect, error, unknown=True)
            bound.warning("deliver.unknown", reason=reason)
            return
        delay = error.retry_after if isinstance(error, OutcomeUnknown) else 1.0
        await _mark(database, lambda outbox: outbox.try_again(effect, error=reason, delay=delay, is_unconfirmed=True))
        bound.warning("deliver.unconfirmed", reason=reason)
    except Transient as error:
        if effect.is_overdue:
            await _give_up(database, effect, error, unknown=effect.is_unconfirmed)
            bound.error("deliver.failed", reason=str(error), attempts=effect.attempts)
            return
        pause = 0.0 if isinstance(error, NotYet) else min(2.0 ** min(effect.attempts, 10), MAX_BACKOFF_SECONDS)
        delay = max(error.retry_after, pause)
        reason, is_unconfirmed = str(error), effect.is_unconfirmed
        await _mark(
            database, lambda outbox: outbox.try_again(effect, error=reason, delay=delay, is_unconfirmed=is_unconfirmed)
        )
        bound.info("deliver.delayed", reason=str(error), delay=delay)
    except Unreachable as error:
        await _give_up(database, effect, error, unknown=False)
        await _mark(database, lambda outbox: Conversations(outbox.connection).mark_unreachable(effect.conversation_id))
        bound.warning("deliver.unreachable", reason=str(error))
    except Permanent as error:
        await _give_up(database, effect, error, unknown=False)
        bound.error("deliver.failed", reason=str(error), attempts=effect.attempts)
    except Exception as error:  # noqa: BLE001 - a channel may fail in any way; a message that may have arrived is not repeated
        await _give_up(database, effect, error, unknown=True)
        bound.exception("deliver.unknown", reason=type(error).__name__)
    else:
        bound.info("deliver.checked" if effect.is_unconfirmed else "deliver.sent")


async def _send(database: Database, channel: OutgoingChannel, effect: Effect) -> None:
    """Send a row part by part, and mark each part before the next one is sent."""
    platform_ids = aiter(channel.send(effect.outgoing))
    while True:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                platform_id = await anext(platform_ids)
        except StopAsyncIteration:
            break
        failpoints.reach("deliver.sent")
        await _mark(database, lambda outbox, name=platform_id: outbox.mark_part_arrived(effect, name))
    await _mark(database, lambda outbox: outbox.mark_sent(effect))


async def _check_arrival(database: Database, channel: OutgoingChannel, effect: Effect) -> None:
    """Mark the unconfirmed part if it has arrived, and requeue the row to send the rest."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            platform_id = await channel.find_part(effect.outgoing)
    except TimeoutError as error:  # the check changes nothing and can be repeated
        raise Transient("Not found within a minute.") from error
    if platform_id is not None:
        await _mark(database, lambda outbox: outbox.mark_part_arrived(effect, platform_id))
    await _mark(database, lambda outbox: outbox.try_again(effect, error=None))


async def _give_up(database: Database, effect: Effect, error: Exception, *, unknown: bool) -> None:
    await _mark(database, lambda outbox: outbox.give_up(effect, error=str(error), unknown=unknown))


async def _mark(database: Database, mark: Callable[[Outbox], Awaitable[None]]) -> None:
    """Store the outcome of a send, retrying while the database is unavailable: a lost outcome would send it twice."""
    while True:
        try:
            async with database.transaction() as connection:
                return await mark(Outbox(connection))
        except Transient as error:
            log.warning("deliver.mark_failed", reason=str(error))
            await asyncio.sleep(MARK_RETRY_SECONDS)
