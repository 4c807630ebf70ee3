"""Wait for events and end tasks without losing a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Sequence


@contextlib.asynccontextmanager
async def run_beside(job: Coroutine[None, None, None], *, name: str) -> AsyncGenerator[None]:
    """Run a job concurrently with the body, and cancel it at the end of the body."""
    task = asyncio.create_task(job, name=name)
    try:
        yield
    finally:
        await end_all([task])


async def wait_until_set(event: asyncio.Event, *, timeout: float) -> None:
    """Wait until the event is set, or `timeout` seconds. Not `wait_for`: up to Python 3.11 it can lose a cancellation."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()


async def end_all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks repeatedly until they have ended: libraries that use `wait_for` may lose a cancellation."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.5)
