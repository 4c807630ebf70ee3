"""Measure whether timers keep their promises: many due at once, through kill -9, among a million others, and in races.

`python -m bench.timers` starts `rapport serve` with its embedded Postgres and a model on loopback, inserts timers directly into
the table, lets them become due, kills processes, sends messages at the moment of firing, and afterwards checks the tables. It
exits with 0 when all targets are met. All traffic stays on this machine, and every process that it starts is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from tests.e2e.harness import Home, make_home
from tests.e2e.kills import Kills
from tests.e2e.races import WITHIN, Races
from tests.e2e.scripted import ScriptedModel, scripted_model
from tests.e2e.silences import UNASKED, became, fell_silent, lateness, percentile, run, set_timers, troubles

from bench.pending import FEW, measure
from rapport.domain.follow_up import PROMPTS

PARTS = ("crowd", "kills", "pending", "races")
LATENESS_GOAL, RATIO_GOAL = 1.0, 1.5
AHEAD = 5.0
"""Seconds from inserting many timers until they are due, so that all writes have finished by then."""
PATIENCE = 20.0
BATCH = 250


@dataclass
class Report:
    """Collect the measured lines and which targets were met."""

    goals: list[tuple[str, bool, str]] = field(default_factory=list[tuple[str, bool, str]])

    def goal(self, label: str, met: bool, shown: str) -> None:
        self.goals.append((label, met, shown))

    def nothing_wrong(self, label: str, found: dict[str, int]) -> None:
        self.goal(f"{label}: nothing lost, doubled or left", not found, str(found) if found else "0")


@contextlib.asynccontextmanager
async def a_home() -> AsyncGenerator[tuple[Home, ScriptedModel]]:
    """Provide a data directory and a model; kill all processes that still use them at the end."""
    async with scripted_model() as model:
        home = make_home(model)
        try:
            model.replies = dict.fromkeys(PROMPTS.values(), UNASKED)
            yield home, model
        finally:
            await asyncio.to_thread(home.clean)


def spread(values: Sequence[float]) -> str:
    """Return the percentiles of sorted seconds, as text."""
    shown = ", ".join(f"p{share} {percentile(values, share):.3f}" for share in (50, 90, 99))
    return f"{shown}, max {values[-1]:.3f} s" if values else "nothing fired"


# ---- on time


async def crowd(report: Report, *, timers: int, servers: int) -> None:
    """Fire many timers at the same moment, each in a conversation that allows follow-ups, so that all turns start at once."""
    async with a_home() as (home, _):
        await asyncio.gather(*(home.serve() for _ in range(servers)))
        url = home.database_url
        talks = await fell_silent(url, timers)
        await run(url, "ANALYZE")
        due = await set_timers(url, dict.fromkeys(talks, AHEAD)) + AHEAD
        await asyncio.sleep(due - time.time())
        seen = await _until_all_are_events(url, timers) - due
        late = await lateness(url)
        counted = (
            "SELECT (SELECT count(*) FROM events WHERE trigger_type IS NOT NULL),"
            " (SELECT count(DISTINCT (conversation_id, id)) FROM events WHERE trigger_type IS NOT NULL),"
            " (SELECT count(*) FROM timers WHERE state <> 'pending')"
        )
        events, distinct, fired = (await run(url, counted))[0]
        said = await run(url, "SELECT count(*) FROM messages WHERE metadata @> '{\"autonomous\": true}'")
        label = f"{timers:,} timers due at once, {servers} process{'es' if servers > 1 else ''}"
        print(f"\n{label}: {spread(late)}; all events seen from outside after {seen:.2f} s")
        print(f"  {fired:,} fired, {events:,} events, {said[0][0]:,} follow-ups said by then")
        report.goal(f"{label}: p99 at most {LATENESS_GOAL:g} s", percentile(late, 99) <= LATENESS_GOAL, spread(late))
        report.goal(f"{label}: all events within {LATENESS_GOAL:g} s", seen <= LATENESS_GOAL, f"{seen:.2f} s")
        report.goal(
            f"{label}: 0 lost, 0 doubled",
            fired == events == distinct == timers,
            f"{timers - fired} lost, {events - distinct} doubled",
        )


async def _until_all_are_events(url: str, timers: int) -> float:
    """Return when another connection saw the last event, or when the time limit was reached."""
    end = time.time() + PATIENCE
    while time.time() < end:
        found = await run(url, "SELECT count(*) FROM events WHERE trigger_type IS NOT NULL")
        if found[0][0] >= timers:
            break
        await asyncio.sleep(0.05)
    return time.time()


# ---- through kill -9


async def kills(report: Report, *, rounds: int, timers: int, chance: random.Random) -> None:
    async with a_home() as (home, model):
        under_fire = Kills(home, model, chance)
        await under_fire.run(rounds=rounds, timers=timers, seconds=300)
        url = home.database_url
        late, ended, found = await lateness(url), await became(url), await troubles(url)
        down = sorted(under_fire.downtimes)
    label = f"{rounds} kill -9"
    print(f"\n{label} ({under_fire.power_cuts} with Postgres) over {under_fire.timers:,} timers: {spread(late)}")
    print(f"  down for p50 {percentile(down, 50):.1f} s, max {down[-1]:.1f} s each; became {ended}")
    report.nothing_wrong(label, found)
    expected = under_fire.timers - under_fire.overdue
    report.goal(
        f"{label}: every timer fired once, or expired", len(late) == expected, f"{len(late):,} of {expected:,} fired"
    )
    overdue = ended.get("expired", 0)
    report.goal(
        f"{label}: those long overdue expired", overdue == under_fire.overdue, f"{overdue} of {under_fire.overdue}"
    )
    most = LATENESS_GOAL + down[-1]
    report.goal(
        f"{label}: nobody later than the longest downtime and {LATENESS_GOAL:g} s",
        late[-1] <= most,
        f"{late[-1]:.1f} s",
    )
    report.goal(f"{label}: no ERROR", not under_fire.errors, f"{under_fire.errors[:1]}" if under_fire.errors else "0")


# ---- among many


async def pending(report: Report, folder: Path, *, size: int, rounds: int, chance: random.Random) -> None:
    found = await measure(folder, pending=size, rounds=rounds, chance=chance)
    print(
        f"\n{'':<12}{f'{FEW:,} wait':>16}{f'{size:,} wait':>20}{'ratio':>8}{f'{FEW:,} wait, in {FEW:,} conversations':>38}"
    )
    for name, each in found.items():
        print(f"  {name:<10}{each.few:>13.2f} ms{each.many:>17.2f} ms{each.ratio:>8.2f}{each.small:>35.2f} ms")
        label = f"{name} among {size:,} to among {FEW:,}, at most x{RATIO_GOAL}"
        report.goal(label, each.ratio <= RATIO_GOAL, f"x{each.ratio:.2f}")


# ---- races


async def races(report: Report, *, wanted: int, chance: random.Random) -> None:
    timeout = aiohttp.ClientTimeout(total=90)
    async with (
        a_home() as (home, model),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
    ):
        servers = await asyncio.gather(home.serve(), home.serve())
        racing = Races(http, [server.url for server in servers], home.database_url, chance)
        racing.think(model)
        await racing.run(races=wanted, batch=min(BATCH, wanted))
        ended, found = await became(home.database_url), await troubles(home.database_url)
        errors = [error for server in servers for error in server.errors()]
    close = sum(post.is_close for post in racing.posts)
    print(f"\nraces, two processes: {racing.summary()}\n  timers: {racing.fates(ended)}")
    label = f"{close:,} messages within {WITHIN * 1e3:g} ms of a due timer"
    after = found.pop("follow-ups after somebody spoke", 0)
    report.goal(f"{label}: 0 follow-ups after them", after == 0, str(after))
    report.nothing_wrong(label, found)
    report.goal(f"{label}: no ERROR", not errors, f"{errors[:1]}" if errors else "0")


# ---- the command


async def run_parts(given: argparse.Namespace, folder: Path, report: Report, chance: random.Random) -> None:
    if "races" in given.parts:
        await races(report, wanted=given.races, chance=chance)
    if "crowd" in given.parts:
        for servers in (1, 2):
            await crowd(report, timers=given.crowd, servers=servers)
    if "kills" in given.parts:
        await kills(report, rounds=given.kills, timers=given.crowd // 5, chance=chance)
    if "pending" in given.parts:
        await pending(report, folder, size=given.pending, rounds=given.rounds, chance=chance)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.timers", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"what to measure, of {', '.join(PARTS)}; all of it if none is named")
    parser.add_argument("--crowd", type=int, default=10_000, help="timers due at once")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pending", type=int, default=1_000_000, help="timers that wait")
    parser.add_argument("--rounds", type=int, default=300, help="of each kind of work among those that wait")
    parser.add_argument("--races", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    given.parts = given.parts or PARTS
    print(f"seed {given.seed}")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run under another account
        asyncio.run(run_parts(given, Path(folder) / "data", report, random.Random(given.seed)))
    print("\ntargets")
    for label, met, shown in report.goals:
        print(f"  {'pass' if met else 'FAIL':<6}{label:<76}{shown}")
    return 0 if all(met for _, met, _ in report.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
