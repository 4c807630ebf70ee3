"""Measure whether reminders keep their promises: a crowd within a minute through kill -9, and turns among a million that wait.

`python -m bench.reminders` starts two processes of `rapport serve` with one embedded Postgres, inserts reminders directly into the
table, lets them become due, kills processes, and checks the tables afterwards. It exits with 0 when all targets are met. All
traffic stays on this machine, and every process that it starts is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from collections.abc import Sequence

import aiohttp
from tests.e2e.harness import Home, Server
from tests.e2e.silences import run

from bench.timers import Report, a_home

PARTS = ("crowd", "waiting")
MINUTE = 60.0
AHEAD = 30.0
"""Seconds from inserting the reminders until the first is due, so that all writes have finished by then."""
RATIO_GOAL = 1.2
CONVERSATIONS = 1_000
WARMING = 20

_CONVERSATIONS = """
INSERT INTO conversations (id, owner_id, agent_id, kind, channel)
SELECT '01' || lpad(n::text, 24, '0'), 'local', 'companion', 'direct', 'http' FROM generate_series(1, %(conversations)s) AS n
"""
_REMINDERS = """
INSERT INTO reminders (conversation_id, id, owner_id, text, local_at, moment, due_at)
SELECT '01' || lpad((1 + n %% %(conversations)s)::text, 24, '0'), '02' || lpad(n::text, 24, '0'), 'local', 'number ' || n, due, due, due
FROM generate_series(1, %(reminders)s) AS n,
     LATERAL (SELECT clock_timestamp() + (%(ahead)s + random() * %(within)s) * interval '1 second' AS due) AS times
"""
_OUTCOME = """
SELECT (SELECT count(*) FROM reminders WHERE state = 'done'), (SELECT count(*) FROM messages),
       (SELECT count(DISTINCT metadata -> 'reminder' ->> 'id') FROM messages),
       (SELECT coalesce(max(extract(epoch FROM sent_at - due_at)), 0)::float8 FROM reminders),
       (SELECT coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM sent_at - due_at)), 0)::float8 FROM reminders)
"""


async def crowd(report: Report, *, reminders: int, kills: int, chance: random.Random) -> None:
    """Let many reminders become due within a minute, and kill one of two processes again and again meanwhile."""
    async with a_home() as (home, _):
        servers = list(await asyncio.gather(home.serve(), home.serve()))
        url = home.database_url
        counts = {"conversations": CONVERSATIONS, "reminders": reminders, "ahead": AHEAD, "within": MINUTE}
        await run(url, _CONVERSATIONS, counts)
        began = time.monotonic()
        await run(url, _REMINDERS, counts)
        await run(url, "ANALYZE")
        first = began + AHEAD
        await asyncio.sleep(max(0.0, first - time.monotonic()))
        moments = sorted(first + chance.uniform(0, MINUTE) for _ in range(kills))
        for moment in moments:
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            await _kill_and_restart(home, servers, chance)
        last = await _until_done(url, reminders, seconds=4 * MINUTE)
        done, messages, distinct, latest, p99 = (await run(url, _OUTCOME))[0]
        errors = [error for server in servers for error in server.errors()]
    label = f"{reminders:,} reminders due within a minute, two processes, {kills} kill -9"
    print(
        f"\n{label}: all sent {last - first - MINUTE:+.1f} s after the minute; p99 {p99:.2f} s late, at most {latest:.2f} s"
    )
    report.goal(f"{label}: 0 lost", done == reminders, f"{reminders - done} lost")
    report.goal(f"{label}: 0 doubled", messages == distinct == reminders, f"{messages - distinct} doubled")
    report.goal(f"{label}: within the minute and 2 s", last - first <= MINUTE + 2, f"{last - first:.1f} s")
    report.goal(f"{label}: no ERROR", not errors, f"{errors[:1]}" if errors else "0")


async def _kill_and_restart(home: Home, servers: list[Server], chance: random.Random) -> None:
    number = chance.randrange(len(servers))
    servers[number].signal(signal.SIGKILL)
    await servers[number].exit_code()
    servers[number] = await home.serve()


async def _until_done(url: str, reminders: int, *, seconds: float) -> float:
    """Return when another connection saw the last one done, or when the time limit was reached."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = await run(url, "SELECT count(*) FROM reminders WHERE state <> 'done'")
        if found[0][0] == 0:
            break
        await asyncio.sleep(0.1)
    return time.monotonic()


async def waiting(report: Report, *, size: int, rounds: int) -> None:
    """Measure turns with no reminders and with many that wait, alternately: two servers with a database each."""
    async with a_home() as (few, _), a_home() as (many, _), aiohttp.ClientSession() as http:
        sites = [(home, await home.serve()) for home in (few, many)]
        counts = {"conversations": CONVERSATIONS, "reminders": size, "ahead": 86_400.0, "within": 30 * 86_400.0}
        for home, _ in sites:
            await run(home.database_url, _CONVERSATIONS, counts)
        await run(many.database_url, _REMINDERS, counts)
        for home, _ in sites:
            await run(home.database_url, "ANALYZE")
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds + WARMING):
            for taken, (_, server) in zip(times, sites, strict=True):
                conversation = f"01{1 + number % CONVERSATIONS:024}"
                began = time.perf_counter()
                path = f"{server.url}/chat/conversations/{conversation}/messages"
                async with http.post(path, json={"content": f"number {number}"}) as response:
                    assert response.status == 200, await response.text()
                    await response.read()
                if number >= WARMING:
                    taken.append((time.perf_counter() - began) * 1_000)
    without, among = (statistics.median(taken) for taken in times)
    ratio = among / without
    print(f"\na turn: {without:.2f} ms without reminders, {among:.2f} ms with {size:,} that wait: x{ratio:.2f}")
    report.goal(f"a turn with {size:,} waiting reminders, at most x{RATIO_GOAL}", ratio <= RATIO_GOAL, f"x{ratio:.2f}")


async def run_parts(given: argparse.Namespace, report: Report, chance: random.Random) -> None:
    if "crowd" in given.parts:
        await crowd(report, reminders=given.crowd, kills=given.kills, chance=chance)
    if "waiting" in given.parts:
        await waiting(report, size=given.waiting, rounds=given.rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reminders", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"what to measure, of {', '.join(PARTS)}; all of it if none is named")
    parser.add_argument("--crowd", type=int, default=100_000, help="reminders due within a minute")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="reminders that wait")
    parser.add_argument("--rounds", type=int, default=300, help="turns among those that wait")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    given.parts = given.parts or PARTS
    print(f"seed {given.seed}")
    report = Report()
    asyncio.run(run_parts(given, report, random.Random(given.seed)))
    print("\ntargets")
    for label, met, shown in report.goals:
        print(f"  {'pass' if met else 'FAIL':<6}{label:<86}{shown}")
    return 0 if all(met for _, met, _ in report.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
