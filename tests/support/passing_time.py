"""Let time pass in a world without waiting: every stored time moves into the past."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests.support.world import World, until

_MOMENTS = {
    "timers": ("due_at", "created_at", "fired_at", "ended_at"),
    "conversations": (
        "created_at",
        "last_at",
        "last_followup_at",
        "reflected_until",
        "replied_at",
        "last_platform_time",
        "last_platform_created_at",
    ),
    "messages": ("created_at",),
}


@dataclass(frozen=True, slots=True)
class Unasked:
    """A follow-up that was delivered."""

    after: float
    """Seconds since the start of the period."""
    text: str
    trigger_type: str


async def pass_time(world: World, seconds: float) -> None:
    """Make everything that is stored older by this many seconds."""
    async with world.database.transaction() as connection:
        for table, columns in _MOMENTS.items():
            moved = ", ".join(f"{column} = {column} - %(by)s * interval '1 second'" for column in columns)
            await connection.execute(f"UPDATE {table} SET {moved}".encode(), {"by": seconds})


async def settle(world: World) -> None:
    """Wait until nothing is in progress: no event, nothing to send, no pending or running reflection."""
    await world.drain()
    await until(lambda: not any(task.get_name().startswith(("turn ", "reflection ")) for task in asyncio.all_tasks()))


async def keep_silent(world: World, conversation: str, *, hours: float) -> list[Unasked]:
    """Let this many hours pass without a message; return the follow-ups that were delivered."""
    passed, heard = 0.0, len(await _unasked(world, conversation))
    told: list[Unasked] = []
    await settle(world)
    while True:
        [(due,)] = await world.sql(
            "SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 FROM timers"
            " WHERE conversation_id = %s AND state = 'pending'",
            conversation,
        )
        if due is None or passed + due > hours * 3_600:
            await pass_time(world, hours * 3_600 - passed)
            return told
        await pass_time(world, max(due, 0.0) + 0.001)
        passed += max(due, 0.0)
        world.worker.timer_loop.wake()

        async def fired() -> bool:
            return not await world.sql(
                "SELECT id FROM timers WHERE conversation_id = %s AND (state = 'fired' OR state = 'pending'"
                " AND due_at < clock_timestamp())",
                conversation,
            )

        await until(fired)
        await settle(world)
        said = (await _unasked(world, conversation))[heard:]
        told += [Unasked(passed, text, kind) for text, kind in said]
        heard += len(said)


async def _unasked(world: World, conversation: str) -> list[tuple[str, str]]:
    return [(one["content"], one["trigger_type"]) for one in await world.history(conversation) if one.get("autonomous")]
