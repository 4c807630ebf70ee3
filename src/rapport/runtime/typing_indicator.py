"""Show a typing indicator while a turn runs, in channels that have one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

import structlog

from rapport.domain.channel import OutgoingChannel
from rapport.domain.errors import Transient
from rapport.domain.event import ClaimedEvent
from rapport.runtime.tasks import end_all

log = structlog.get_logger()

FIRST_AFTER_SECONDS = 0.3
"""A fast answer needs no indicator, and an indicator that arrives after the answer would stay on the screen."""
REPEAT_SECONDS = 4.0


@contextlib.asynccontextmanager
async def show_typing(channels: Mapping[str, OutgoingChannel], event: ClaimedEvent) -> AsyncGenerator[None]:
    """Show that the agent types until the block ends. It delays nothing, and a failure is ignored."""
    channel = channels.get(event.channel)
    if channel is None or event.trigger_type is not None:  # nobody waits for a follow-up
        yield
        return
    task = asyncio.create_task(_repeat_typing(channel, event), name=f"typing {event.id}")
    try:
        yield
    finally:
        await end_all([task])


async def _repeat_typing(channel: OutgoingChannel, event: ClaimedEvent) -> None:
    await asyncio.sleep(FIRST_AFTER_SECONDS)
    while True:
        pause = REPEAT_SECONDS
        try:
            await channel.show_typing(event.conversation_id, event.message_id)
        except Exception as error:  # noqa: BLE001 - the answer itself is what counts
            log.debug("typing.failed", reason=type(error).__name__)
            if isinstance(error, Transient):  # the platform asks to wait
                pause = max(pause, error.retry_after)
        await asyncio.sleep(pause)
