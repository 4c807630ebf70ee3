"""Keep loops running whatever fails in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rapport.domain.errors import RapportError
from rapport.runtime.tasks import wait_until_set

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


async def run_when_due(
    name: str, do_due: Callable[[], Awaitable[float]], woken: asyncio.Event, *, retry_seconds: float
) -> None:
    """Do what is due, sleep as many seconds as `do_due` returns or until `woken` is set, and begin again, until cancelled."""
    while True:
        try:
            pause = await do_due()
        except RapportError as error:
            log.warning(f"{name}.retrying", reason=str(error))
            pause = retry_seconds
        except Exception as error:  # an unexpected error must not stop the loop
            log.exception("chat.error", conversationId=None, errorType=type(error).__name__, message=str(error))
            pause = retry_seconds
        await wait_until_set(woken, timeout=pause)
        woken.clear()
