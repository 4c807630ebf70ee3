"""Measure the targets in alternation. Each function adds its figures to the results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from bench.load import Drive, drive, percentile
from bench.targets import PAGE, Target, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.load import Client
    from bench.processes import Server
    from bench.report import Results

CLIENTS = (1, 32)
MANY = max(CLIENTS)
HISTORY = 100_000  # messages of the conversation whose pages are fetched
MARKS = (10, 1_000, 10_000)  # lengths of the conversations whose turns are compared
BLOCK = 10  # consecutive turns in conversations of one length
MODEL_MS = 200  # latency of the slow model
WAITING_S = 6.0  # duration of the load: some 30 turns a client, three conversations
SETTLE_S = 0.2  # pause for the work that a server does after its answer: it belongs to the turns before


@dataclass(frozen=True)
class Scale:
    """The size of a run. Every measurement is bounded in count and in time."""

    rounds: int
    seconds: float  # of each stretch of load
    starts: int
    pages: int
    blocks: int

    def __post_init__(self) -> None:
        assert self.blocks * BLOCK >= 50, "fewer turns say nothing about bytes"


FULL = Scale(rounds=5, seconds=3.0, starts=3, pages=100, blocks=8)
QUICK = Scale(rounds=2, seconds=1.5, starts=1, pages=50, blocks=5)


def process(target: Target) -> Server:
    assert target.server is not None, f"{target.name} was not started"
    return target.server


def alternating(targets: Sequence[Target], rounds: int) -> Iterator[Target]:
    """Yield each target once a round, in alternating order, so that drift of the machine affects all targets alike."""
    for n in range(rounds):
        yield from targets if n % 2 == 0 else reversed(targets)


def checked(seen: Drive, target: Target) -> Drive:
    """Return the result; raise if it has errors, because its figures would be meaningless."""
    if seen.errors:
        raise RuntimeError(f"{target.name}: {len(seen.errors)} failed turns, the first: {seen.errors[0]}")
    return seen


async def cold_starts(targets: Sequence[Target], results: Results, scale: Scale) -> None:
    """Measure the time from exec to the first healthy answer: with an empty folder, then with the same folder again."""
    for target in alternating(targets, scale.starts):
        shutil.rmtree(target.folder)
        target.folder.mkdir(mode=0o755)
        for key in ("start_first", "start_again"):
            try:
                results.add(key, target.name, await target.start())
                await target.turn(await target.create())
            finally:
                target.stop()


async def turns(targets: Sequence[Target], results: Results, scale: Scale, others: Server) -> None:
    """Measure turn times, turns a second, CPU and memory with one client and with many. The model answers at once."""
    for target in targets:
        results.add("memory_idle", target.name, process(target).memory_mb())
        await load(target, MANY, seconds=20, most_turns=4 * MANY)
        process(target).pin()
        results.add("cpu_idle", target.name, await cpu_per_second(process(target)))
    for target in alternating(targets, scale.rounds):
        for clients in CLIENTS:
            await stretch(target, clients, results, scale, others)
    for target in targets:
        results.add("memory_loaded", target.name, process(target).memory_mb())


async def stretch(target: Target, clients: int, results: Results, scale: Scale, others: Server) -> None:
    server = process(target)
    await load(target, clients, seconds=1, most_turns=clients * 4)
    await asyncio.sleep(SETTLE_S)
    cpu, ours, all_of_it = server.cpu_seconds(), own_cpu(others), machine_cpu()
    database, begun = server.cpu_seconds(of_database=True), time.perf_counter()
    seen = await load(target, clients, seconds=scale.seconds)
    await asyncio.sleep(SETTLE_S)
    wall = time.perf_counter() - begun
    cpu, ours, all_of_it = server.cpu_seconds() - cpu, own_cpu(others) - ours, machine_cpu() - all_of_it
    results.add(f"p50_{clients}", target.name, seen.ms(50))
    results.add(f"p95_{clients}", target.name, seen.ms(95))
    results.add(f"rate_{clients}", target.name, seen.turns / seen.wall_s)
    results.add(f"cpu_{clients}", target.name, cpu / seen.turns * 1000)
    if database > 0:
        spent = server.cpu_seconds(of_database=True) - database
        results.add(f"cpu_database_{clients}", target.name, spent / seen.turns * 1000)
    results.add("other_work", target.name, max(0.0, all_of_it - cpu - ours) / wall)


async def waiting(targets: Sequence[Target], results: Results, scale: Scale, model: Client) -> None:
    """Measure turn times with a model that takes MODEL_MS, including the effect of background work."""
    await model.json("POST", "/_mock/config", {"latency_ms": MODEL_MS})
    for target in alternating(targets, scale.rounds):
        seen = await load(target, MANY, seconds=WAITING_S)
        for share in (50, 95, 99):
            results.add(f"p{share}_waiting", target.name, seen.ms(share))
        results.add("rate_waiting", target.name, seen.turns / seen.wall_s)
        await asyncio.sleep(SETTLE_S + MODEL_MS / 1000)
    await model.json("POST", "/_mock/config", {"latency_ms": 0})


async def load(target: Target, clients: int, *, seconds: float, most_turns: int = 10**6) -> Drive:
    target.client.close()  # servers close connections that were idle since the last load
    seen = await drive(target.create, target.turn, clients=clients, seconds=seconds, most_turns=most_turns)
    return checked(seen, target)


async def history(targets: Sequence[Target], results: Results, scale: Scale) -> None:
    """Measure fetching a page of 100 in a conversation of 100,000 messages: the newest page, and pages throughout."""
    threads: dict[str, tuple[str, list[str]]] = {}
    for target in targets:
        conversation = await target.create()
        target.seed(conversation, [words(n) for n in range(HISTORY)])
        cursors = await cursors_of(target, conversation)
        threads[target.name] = conversation, cursors[1 :: len(cursors) // scale.pages]
    for target in alternating(targets, scale.rounds):
        conversation, cursors = threads[target.name]
        target.client.close()
        await target.page(conversation)
        for key, befores in (("page_newest", [None] * len(cursors)), ("page_deep", cursors)):
            seconds: list[float] = []
            for before in befores:
                at = time.perf_counter()
                await target.page(conversation, before)
                seconds.append(time.perf_counter() - at)
            results.add(f"{key}_p50", target.name, percentile(seconds, 50) * 1000)
            results.add(f"{key}_p95", target.name, percentile(seconds, 95) * 1000)


async def cursors_of(target: Target, conversation: str) -> list[str]:
    """Return the cursors of all full pages but the newest, by fetching every page once as a client does."""
    cursors: list[str] = []
    cursor = await target.page(conversation)
    while cursor is not None and len(cursors) < HISTORY // PAGE - 1:
        cursors.append(cursor)
        cursor = await target.page(conversation, cursor)
    if len(cursors) != HISTORY // PAGE - 1:
        raise RuntimeError(f"{target.name}: {len(cursors) + 1} pages in a conversation of {HISTORY} messages")
    return cursors


async def growth(targets: Sequence[Target], results: Results, scale: Scale) -> None:
    """Measure time and bytes written of a turn at message 10, 1,000 and 10,000 of a conversation, in short alternating blocks."""
    for target in targets:
        with contextlib.ExitStack() as stack:
            log = target.log()
            if log is not None:
                stack.callback(log.close)
            threads = await prepare(target, scale, log.checkpoint if log else None)
            spent: dict[int, list[float]] = {mark: [] for mark in MARKS}
            wrote = dict.fromkeys(MARKS, 0)
            for _ in range(scale.blocks):
                for mark in MARKS:
                    before = log.bytes_so_far() if log else 0
                    for conversation in (next(threads[mark]) for _ in range(BLOCK)):
                        at = time.perf_counter()
                        await target.turn(conversation)
                        spent[mark].append(time.perf_counter() - at)
                    await asyncio.sleep(SETTLE_S)
                    wrote[mark] += (log.bytes_so_far() if log else 0) - before
            for mark in MARKS:
                results.add(f"turn_at_{mark}", target.name, percentile(spent[mark], 50) * 1000)
                if log is not None:
                    results.add(f"bytes_at_{mark}", target.name, wrote[mark] / len(spent[mark]))


async def prepare(target: Target, scale: Scale, checkpoint: Callable[[], None] | None) -> dict[int, Iterator[str]]:
    """Return, for each mark, the conversations of the turns to measure.

    Each turn at message 10 uses another conversation, because a conversation has only one message 10. The conversation of
    1,000 messages is made by turns, the one of 10,000 is seeded. The measured turns are centred on their mark. All
    conversations have turns after the checkpoint, so that its whole-page writes happen before the measurement starts.
    """
    few, many, most = MARKS
    stretch = scale.blocks * BLOCK
    target.client.close()
    seeded = await target.create()
    target.seed(seeded, [words(n) for n in range(most - stretch - 2 * BLOCK)])
    if checkpoint is not None:
        checkpoint()
    walked = await target.create()
    fresh = [await target.create() for _ in range(stretch)]
    for _ in range(few // 2 - 1):
        for conversation in fresh:
            await target.turn(conversation)
    for _ in range((many - stretch) // 2):
        await target.turn(walked)
    for _ in range(BLOCK):
        await target.turn(seeded)
    return {few: iter(fresh), many: iter([walked] * stretch), most: iter([seeded] * stretch)}


async def cpu_per_second(server: Server, seconds: float = 2.0) -> float:
    """Return the CPU milliseconds per second of an idle server."""
    await asyncio.sleep(SETTLE_S)
    before = server.cpu_seconds()
    await asyncio.sleep(seconds)
    return (server.cpu_seconds() - before) / seconds * 1000


def own_cpu(others: Server) -> float:
    return sum(os.times()[:2]) + others.cpu_seconds()


def machine_cpu() -> float:
    times = psutil.cpu_times()
    return times.user + times.system + getattr(times, "nice", 0.0) + getattr(times, "steal", 0.0)
