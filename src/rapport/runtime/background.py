"""Keep a loop running that some other part of the server defines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rapport.domain.errors import RapportError

log = structlog.get_logger()

PAUSE_SECONDS = 5.0


async def keep_running(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run the loop, and start it again after an error, until cancelled."""
    while True:
        try:
            await loop()
        except RapportError as error:
            log.warning("loop.restarting", loop=name, reason=str(error))
        except Exception as error:  # an unexpected error must not end the loop for ever
            log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
        await asyncio.sleep(PAUSE_SECONDS)
