"""Measure the overhead of Rapport over a model call, compared with a minimal proxy, in one run on one machine.

`python -m bench.overhead` prints a table for each section, then the targets; it exits with 0 when all are met. All traffic
stays on loopback, everything is bounded in count and time, and every process that it starts is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import uvloop

from bench import measure, report
from bench.load import Client, drive
from bench.processes import Server, cores, free_port, pin
from bench.targets import ROOT, Floor, Ours, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

SECTIONS = tuple(report.TABLES)
BUSY = 0.2  # with this many cores of other work, ratios and verdicts are unreliable


@dataclass(frozen=True)
class Options:
    scale: measure.Scale
    sections: frozenset[str]
    noise: bool
    json: Path | None


def options(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds: an indication only")
    parser.add_argument("--only", help=f"sections to run, of: {','.join(SECTIONS)}")
    parser.add_argument(
        "--noise", action="store_true", help="compare the floor with itself: shows how much ratios vary"
    )
    parser.add_argument("--json", type=Path, help="also write every round's figures to this file")
    given = parser.parse_args(arguments)
    sections = frozenset(given.only.split(",") if given.only else SECTIONS)
    if unknown := sections.difference(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    scale = measure.QUICK if given.quick else measure.FULL
    return Options(scale, sections, given.noise, given.json)


async def run(chosen: Options, folder: Path, results: report.Results) -> None:
    """Start the processes, measure each section, and stop the processes."""
    server_cpus, load_cpus = cores()
    with contextlib.ExitStack() as stack:
        pin(0, load_cpus)
        model_url, model = await start_model(stack, folder, load_cpus)
        ours = Floor if chosen.noise else Ours
        targets: list[Target] = [
            ours(report.OURS, folder / "ours", f"{model_url}/v1", server_cpus),
            Floor(report.FLOOR, folder / "floor", f"{model_url}/v1", server_cpus),
        ]
        for target in targets:
            stack.callback(target.stop)
        print(headline(chosen, server_cpus, load_cpus), flush=True)
        await ceiling(model_url)
        if "start" in chosen.sections:
            await measure.cold_starts(targets, results, chosen.scale)
            print_section("start", results)
        if chosen.sections - {"start"}:
            await running(targets, chosen, results, model, model_url)


async def running(
    targets: Sequence[Target], chosen: Options, results: report.Results, model: Server, model_url: str
) -> None:
    """Measure the sections that need both servers running."""
    for target in targets:
        await target.start()
        if moved := measure.process(target).pin():
            print(f"  note: {moved} processes of {target.name} had left its core and were moved back")
    if "turns" in chosen.sections:
        await measure.turns(targets, results, chosen.scale, model)
        print_section("turns", results)
        print(f"  other work on this machine meanwhile: {other_work(results):.2f} cores", flush=True)
    if "waiting" in chosen.sections:
        client = Client(model_url)
        await measure.waiting(targets, results, chosen.scale, client)
        client.close()
        print_section("waiting", results)
    if "history" in chosen.sections:
        await measure.history(targets, results, chosen.scale)
        print_section("history", results)
    if "growth" in chosen.sections:
        await measure.growth(targets, results, chosen.scale)
        print_section("growth", results)


async def start_model(stack: contextlib.ExitStack, folder: Path, cpus: set[int]) -> tuple[str, Server]:
    port = free_port()
    argv = [sys.executable, "-m", "bench.model", "--port", str(port)]
    home = folder / "model"
    home.mkdir()
    model = Server(argv, env={"PYTHONPATH": str(ROOT), "HOME": str(home)}, cwd=home, cpus=cpus)
    stack.callback(model.stop)
    url = f"http://127.0.0.1:{port}"
    await model.until_healthy(url, "/healthz")
    return url, model


async def ceiling(model_url: str) -> None:
    """Print the limit of the load generator and the model alone. A server figure near it does not describe the server."""
    client = Client(model_url)
    prompt = {"model": "mock", "messages": [{"role": "user", "content": "hello"}]}

    async def create() -> str:
        return ""

    async def turn(_: str) -> object:
        return await client.json("POST", "/v1/chat/completions", prompt)

    alone = await drive(create, turn, clients=1, seconds=0.5)
    crowd = await drive(create, turn, clients=measure.MANY, seconds=1)
    client.close()
    if errors := alone.errors + crowd.errors:
        raise RuntimeError(f"the mock model failed: {errors[0]}")
    rate = crowd.turns / crowd.wall_s
    print(f"  load generator and model alone: p50 {alone.ms(50):.2f} ms, {rate:,.0f} turns a second")


def headline(chosen: Options, server_cpus: set[int], load_cpus: set[int]) -> str:
    pinned = "servers on core {}, model and load on core {}".format(*(min(c) for c in (server_cpus, load_cpus)))
    where = pinned if server_cpus else "nothing pinned: one core"
    what = "the floor compared with itself" if chosen.noise else "Rapport compared with the floor"
    return f"{what}; Python {platform.python_version()}, {os.cpu_count()} cores, {where}"


def other_work(results: report.Results) -> float:
    """Return the cores used by other processes; NaN if the section that measures it was not run."""
    return max(results.value("other_work", target) for target in (report.OURS, report.FLOOR))


def print_section(section: str, results: report.Results) -> None:
    print(f"\n{section}\n{report.table(section, results)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen, results, begun = options(arguments), report.Results(), time.perf_counter()

    async def until_done(folder: Path) -> None:
        task = asyncio.ensure_future(run(chosen, folder, results))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await task

    try:
        with (
            tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            os.chmod(folder, 0o755)
            runner.run(until_done(Path(folder)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nstopped; all started processes have ended", file=sys.stderr)
        return 130
    print(f"\ntargets ({time.perf_counter() - begun:.0f} s)\n{report.verdicts(results)}")
    if other_work(results) >= BUSY:
        print(f"  No verdict: {other_work(results):.2f} cores of other work. Repeat it on an idle machine.")
    if chosen.json:
        chosen.json.write_bytes(orjson.dumps(report.as_json(results), option=orjson.OPT_INDENT_2))
    return 1 if report.missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
