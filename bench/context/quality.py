"""Measure the quality of context selection: send the scoring program's tasks about real group chats to `rapport context select`.

`python -m bench.context.quality` runs the command as a user would and prints Markdown tables: the settings that have targets,
the harder ones, and the other strategies. It exits with 0 when all targets are met. Chats and scoring program are not part of
the repository (`inputs.py`). All traffic stays on this machine.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from bench.context.inputs import (
    BENCH_FILES,
    OTHER_CHATS,
    OWN_CHAT,
    PILOT_CHAT,
    SCORER_FOLDER,
    chat_path,
    require_files,
)

OWN = OWN_CHAT
OTHERS = OTHER_CHATS
REPORTED = (OWN, *OTHERS, PILOT_CHAT)
HEADLINE = [(setting, variant) for setting in ("generic", "reply") for variant in ("orig", "slow")]
HARDER = [
    *((setting, variant) for setting in ("generic_lag", "reply_far", "content") for variant in ("orig", "slow")),
    *((setting, variant) for setting in ("generic", "reply") for variant in ("links30", "slow_links30")),
]
CALLED = [
    (setting, variant)
    for setting in ("generic", "reply", "generic_lag", "reply_far", "content")
    for variant in ("orig", "bots", "slow", "slow_bots")
]
"""Variants with earlier calls and the agent's answers among the messages, with the variant to compare each with."""
SIMPLER = ("recent", "time_gap", "thread")
F1_GOAL, SLOW_GOAL, PARENT_GOAL = 0.78, 0.03, 0.92

Task: TypeAlias = "tuple[dict[str, Any], dict[str, Any]]"
"""A request and its expected answer."""


class Command(Protocol):
    """The selector as a program that reads one request per line."""

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Scoring(Protocol):
    """The part of the scoring program that is used here (`score.py`)."""

    def Program(self, command: str) -> Command: ...  # noqa: N802 - its name there

    def run(self, selector: Command, pairs: Iterable[Task]) -> list[dict[str, Any]]: ...

    def metrics(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]: ...


class Tasks(Protocol):
    """The module that makes tasks from a chat (`tasks.py`)."""

    def make(self, path: str, setting: str, variant: str, n: int) -> Iterable[Task]: ...


@dataclass(frozen=True, slots=True)
class Score:
    chat: str
    setting: str
    variant: str
    tasks: int
    f1: float
    """Macro F1."""
    precision: float
    recall: float
    parent_recall: float
    chosen: float
    """Selected messages per call, on average; and the relevant ones."""
    belong: float
    ms50: float
    ms95: float


def the_scorer() -> tuple[Scoring, Tasks]:
    """Import the two modules of the scoring program from their folder."""
    folder = str(SCORER_FOLDER)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return cast("Scoring", importlib.import_module("score")), cast("Tasks", importlib.import_module("tasks"))


@contextmanager
def the_command(strategy: str) -> Generator[Command]:
    """Return `rapport context select` of the current environment."""
    rapport = Path(sys.executable).with_name("rapport")
    program = the_scorer()[0].Program(f"'{rapport}' context select --strategy {strategy}")
    try:
        yield program
    finally:
        program.close()


def scored(
    command: Command, chats: Sequence[str], rows: Sequence[tuple[str, str]], count: int
) -> Generator[Score, None, None]:
    scoring, tasks = the_scorer()
    for chat in chats:
        path = str(chat_path(chat))
        for setting, variant in rows:
            found = scoring.metrics(scoring.run(command, tasks.make(path, setting, variant, count)))
            if found["unknown_ids"]:
                sys.exit(
                    f"{found['unknown_ids']} chosen ids were none of the given ones ({chat}, {setting}, {variant})"
                )
            yield Score(
                chat,
                setting,
                variant,
                *(found[name] for name in ("n", "macro_F1", "P", "R", "parent_R", "selected", "gold")),
                *(found[name] for name in ("ms_p50", "ms_p95")),
            )


def mean_f1(scores: Sequence[Score], *, chats: Sequence[str] = REPORTED, variant: str | None = None) -> float:
    """Return the mean F1 with the same weight for each chat, however many rows it has."""
    means = [[one.f1 for one in scores if one.chat == chat and variant in (None, one.variant)] for chat in chats]
    return statistics.mean(statistics.mean(some) for some in means if some)


def print_table(scores: Iterable[Score]) -> list[Score]:
    """Print each row as soon as it is measured."""
    print("\n| chat | setting | variant | calls | macro F1 | P | R | parent recall | chosen | belong | ms50 | ms95 |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    shown: list[Score] = []
    for one in scores:
        print(
            f"| {one.chat} | {one.setting} | {one.variant} | {one.tasks} | {one.f1:.3f} | {one.precision:.3f}"
            f" | {one.recall:.3f} | {one.parent_recall:.3f} | {one.chosen:.1f} | {one.belong:.1f} | {one.ms50:.1f}"
            f" | {one.ms95:.1f} |",
            flush=True,
        )
        shown.append(one)
    return shown


def print_matrix(scores: Iterable[Score], rows: Sequence[tuple[str, str]]) -> list[Score]:
    """Print the macro F1, one row per chat."""
    print("\n| macro F1 | " + " | ".join(f"{setting}, {variant}" for setting, variant in rows) + " | mean |")
    print("|---" * (len(rows) + 2) + "|")
    found = list(scores)
    for chat in dict.fromkeys(one.chat for one in found):
        cells = " | ".join(f"{one.f1:.3f}" for one in found if one.chat == chat)
        print(f"| {chat} | {cells} | {mean_f1(found, chats=[chat]):.3f} |", flush=True)
    return found


def headline(scores: Sequence[Score]) -> list[tuple[str, bool, str]]:
    """Return each target, whether it is met, and the measured value."""
    print("\n| | mean macro F1 | `slow` minus `orig` | parent recall |\n|---|---|---|---|")
    goals: list[tuple[str, bool, str]] = []
    rows = {OWN: [OWN], "the four others": OTHERS} | {chat: [chat] for chat in REPORTED if chat != OWN}
    for name, chats in rows.items():
        f1, orig, slow = (mean_f1(scores, chats=chats, variant=variant) for variant in (None, "orig", "slow"))
        parents = statistics.mean(one.parent_recall for one in scores if one.chat in chats)
        print(f"| {name} | {f1:.3f} | {slow - orig:+.3f} | {parents:.3f} |")
        if name in (OWN, "the four others"):
            goals += [
                (f"{name}: mean macro F1 at least {F1_GOAL}", f1 >= F1_GOAL, f"{f1:.3f}"),
                (f"{name}: `slow` within {SLOW_GOAL} of `orig`", abs(slow - orig) <= SLOW_GOAL, f"{slow - orig:+.3f}"),
                (f"{name}: parent recall at least {PARENT_GOAL}", parents >= PARENT_GOAL, f"{parents:.3f}"),
            ]
    return goals


def print_goals(goals: Sequence[tuple[str, bool, str]]) -> None:
    print("\n| target | measured | |\n|---|---|---|")
    for label, met, shown in goals:
        print(f"| {label} | {shown} | {'met' if met else '**missed**'} |")


def simpler(count: int) -> None:
    """Measure the other strategies on the same calls."""
    print(
        f"\n| strategy, {OWN} | " + " | ".join(f"{setting}, {variant}" for setting, variant in HEADLINE) + " | mean |"
    )
    print("|---" * (len(HEADLINE) + 2) + "|")
    for strategy in SIMPLER:
        with the_command(strategy) as command:
            scores = list(scored(command, [OWN], HEADLINE, count))
        cells = " | ".join(f"{one.f1:.3f}" for one in scores)
        print(f"| `{strategy}` | {cells} | {mean_f1(scores):.3f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.context.quality", description=__doc__)
    parser.add_argument("-n", type=int, default=400, help="calls for each chat, setting and variant")
    parser.add_argument("--quick", action="store_true", help="60 of them: a look, not a verdict")
    parser.add_argument("--headline", action="store_true", help="only the settings that the targets are about")
    given = parser.parse_args(arguments)
    require_files(*BENCH_FILES)
    count, begun = (60 if given.quick else given.n), time.perf_counter()
    with the_command("relevant") as command:
        goals = headline(print_table(scored(command, REPORTED, HEADLINE, count)))
        print_goals(goals)
        if not given.headline:
            harder = print_matrix(scored(command, REPORTED, HARDER, count), HARDER)
            print_matrix(scored(command, REPORTED, CALLED, count), CALLED)
            print(f"\nparent recall of these: {statistics.mean(one.parent_recall for one in harder):.3f}")
    if not given.headline:
        simpler(count)
    print(f"\n{time.perf_counter() - begun:,.0f} s")
    return 0 if all(met for _, met, _ in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
