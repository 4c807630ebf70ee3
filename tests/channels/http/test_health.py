"""Test `/healthz`: it fails when the database was away for a while, and recovers with it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from rapport.storage.postgres.embedded import EmbeddedPostgres
from tests.agents.mcp.connecting import HOSTILE
from tests.e2e.harness import kill_postgres
from tests.support.world import World, open_world, until


async def _health(world: World) -> tuple[int, int]:
    healthy, ready = await world.http.get("/healthz"), await world.http.get("/readyz")
    return healthy.status_code, ready.status_code


async def test_a_process_without_a_database_becomes_unhealthy_and_recovers(tmp_path: Path) -> None:
    """An external database (DATABASE_URL), which the server does not restart."""
    theirs = await asyncio.to_thread(EmbeddedPostgres.start, tmp_path)
    try:
        async with open_world(theirs.url, unhealthy_seconds=2.0) as world:
            assert await _health(world) == (200, 200)
            await asyncio.to_thread(kill_postgres, tmp_path / "postgres")

            async def is_not_ready() -> bool:
                return (await _health(world))[1] == 503

            async def is_unhealthy() -> bool:
                return (await _health(world)) == (503, 503)

            async def is_well() -> bool:
                return (await _health(world)) == (200, 200)

            await until(is_not_ready)
            await until(is_unhealthy)
            said = (await world.http.get("/healthz")).json()
            assert said["status"] == 503
            assert "database" in said["detail"]

            again = await asyncio.to_thread(EmbeddedPostgres.start, tmp_path)
            await until(is_well)
            assert (await world.says(await world.conversation(), "are you back?"))["content"]
            again.stop()
    finally:
        await asyncio.to_thread(theirs.stop)


async def test_a_database_that_is_away_for_a_moment_does_not_make_the_process_unhealthy(tmp_path: Path) -> None:
    theirs = await asyncio.to_thread(EmbeddedPostgres.start, tmp_path)
    try:
        async with open_world(theirs.url, unhealthy_seconds=60.0) as world:
            await asyncio.to_thread(kill_postgres, tmp_path / "postgres")
            for _ in range(20):
                assert (await world.http.get("/healthz")).status_code == 200
                await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(theirs.stop)


async def test_mcp_servers_that_fail_or_hang_make_nobody_unready(tmp_path: Path, database_url: str) -> None:
    config = tmp_path / "mcp.json"
    hanging = {"command": sys.executable, "args": ["-I", "-S", str(HOSTILE), "hangs_at_start"]}
    servers = {"hangs": hanging, "missing": {"command": "no-such-program"}, "away": {"url": "http://127.0.0.1:9/mcp"}}
    config.write_text(json.dumps({"mcpServers": servers}))
    async with open_world(database_url, mcp_config=config) as world:
        assert await _health(world) == (200, 200)
        connections = world.app.tool_source.connections
        await until(lambda: connections["missing"].problem and connections["away"].problem)
        assert not connections["hangs"].tried.is_set()
        assert await _health(world) == (200, 200)
