"""Report the figures of a run as tables, as a list of targets, and as JSON."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

OURS, FLOOR = "ours", "floor"


@dataclass(frozen=True)
class Figure:
    key: str
    label: str
    digits: int = 2


TABLES: dict[str, list[Figure]] = {
    "start": [
        Figure("start_first", "first start, empty folder (s)"),
        Figure("start_again", "second start (s)"),
    ],
    "turns": [
        Figure("p50_1", "turn, 1 client: p50 (ms)"),
        Figure("p95_1", "turn, 1 client: p95 (ms)"),
        Figure("rate_1", "turns a second, 1 client", 0),
        Figure("cpu_1", "CPU a turn, 1 client (ms)"),
        Figure("cpu_database_1", "  of it Postgres (ms)"),
        Figure("p50_32", "turn, 32 clients: p50 (ms)"),
        Figure("p95_32", "turn, 32 clients: p95 (ms)"),
        Figure("rate_32", "turns a second, 32 clients", 0),
        Figure("cpu_32", "CPU a turn, 32 clients (ms)"),
        Figure("cpu_database_32", "  of it Postgres (ms)"),
        Figure("cpu_idle", "CPU while idle (ms a second)", 1),
        Figure("memory_idle", "memory after start (MB)", 0),
        Figure("memory_loaded", "memory after load (MB)", 0),
    ],
    "waiting": [
        Figure("p50_waiting", "turn, 32 clients, model of 200 ms: p50 (ms)", 0),
        Figure("p95_waiting", "turn, 32 clients, model of 200 ms: p95 (ms)", 0),
        Figure("p99_waiting", "turn, 32 clients, model of 200 ms: p99 (ms)", 0),
        Figure("rate_waiting", "turns a second, 160 are ideal", 0),
    ],
    "history": [
        Figure("page_newest_p50", "newest page of 100 in 100,000: p50 (ms)"),
        Figure("page_newest_p95", "newest page of 100 in 100,000: p95 (ms)"),
        Figure("page_deep_p50", "page deep inside: p50 (ms)"),
        Figure("page_deep_p95", "page deep inside: p95 (ms)"),
    ],
    "growth": [
        Figure("turn_at_10", "turn at message 10: p50 (ms)"),
        Figure("turn_at_1000", "turn at message 1,000: p50 (ms)"),
        Figure("turn_at_10000", "turn at message 10,000: p50 (ms)"),
        Figure("bytes_at_10", "written a turn at message 10 (bytes)", 0),
        Figure("bytes_at_1000", "written a turn at message 1,000 (bytes)", 0),
        Figure("bytes_at_10000", "written a turn at message 10,000 (bytes)", 0),
    ],
}


class Results:
    """Hold the values of every figure by round; the value of a figure is the median of its rounds."""

    def __init__(self) -> None:
        self._rounds: dict[str, dict[str, list[float]]] = {}

    def add(self, key: str, target: str, value: float) -> None:
        self._rounds.setdefault(key, {}).setdefault(target, []).append(value)

    def value(self, key: str, target: str) -> float:
        """Return the median; NaN if the figure was not measured."""
        rounds = self._rounds.get(key, {}).get(target)
        return statistics.median(rounds) if rounds else math.nan

    def ratio(self, key: str) -> float:
        """Return Rapport's value divided by the floor's, of the same run."""
        floor = self.value(key, FLOOR)
        return self.value(key, OURS) / floor if floor else math.nan

    def rounds(self) -> dict[str, dict[str, list[float]]]:
        return self._rounds


@dataclass(frozen=True)
class Goal:
    """A target: the highest value that a run may have."""

    label: str
    limit: float
    unit: str
    measure: Callable[[Results], float]

    def line(self, results: Results) -> str:
        value = self.measure(results)
        verdict = "not measured" if math.isnan(value) else "pass" if value <= self.limit else "FAIL"
        shown = "" if math.isnan(value) else f"{value:.2f}{self.unit}"
        return f"  {verdict:<13}{self.label:<60}{shown:>10}  (at most {self.limit:g}{self.unit})"

    def missed(self, results: Results) -> bool:
        return self.measure(results) > self.limit  # False for NaN: a target that was not measured is not missed


def ratio_of(key: str) -> Callable[[Results], float]:
    return lambda results: results.ratio(key)


def value_of(key: str) -> Callable[[Results], float]:
    return lambda results: results.value(key, OURS)


def growth_of(key: str) -> Callable[[Results], float]:
    return lambda results: results.value(f"{key}_at_10000", OURS) / results.value(f"{key}_at_10", OURS)


GOALS = [
    Goal("turn p50, 1 client, to the floor's", 3.0, " x", ratio_of("p50_1")),
    Goal("CPU a turn, 32 clients, to the floor's", 2.5, " x", ratio_of("cpu_32")),
    Goal("turn p95, 32 clients, model of 200 ms, to the floor's", 2.5, " x", ratio_of("p95_waiting")),
    Goal("time of a turn at message 10,000 to one at message 10", 1.1, " x", growth_of("turn")),
    Goal("bytes of a turn at message 10,000 to one at message 10", 1.1, " x", growth_of("bytes")),
    Goal("newest history page of 100 in 100,000, p95", 10.0, " ms", value_of("page_newest_p95")),
    Goal("history page of 100 deep in 100,000, p95", 10.0, " ms", value_of("page_deep_p95")),
    Goal("second start", 3.0, " s", value_of("start_again")),
]


def shown(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def table(section: str, results: Results) -> str:
    """Return the measured figures of a section, with the floor's and the ratio."""
    lines = [f"  {'':<44}{OURS:>10}{FLOOR:>10}{'ratio':>8}"]
    for figure in TABLES[section]:
        ours, floor = (results.value(figure.key, target) for target in (OURS, FLOOR))
        if not (math.isnan(ours) and math.isnan(floor)):
            cells = f"{shown(ours, figure.digits):>10}{shown(floor, figure.digits):>10}"
            lines.append(f"  {figure.label:<44}{cells}{shown(results.ratio(figure.key), 2):>8}")
    return "\n".join(lines)


def verdicts(results: Results) -> str:
    return "\n".join(goal.line(results) for goal in GOALS)


def missed(results: Results) -> bool:
    return any(goal.missed(results) for goal in GOALS)


def as_json(results: Results) -> dict[str, Any]:
    """Return medians, rounds and verdicts; a figure that was not measured is null."""

    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    figures = {
        key: {name: {"median": statistics.median(values), "rounds": values} for name, values in by.items()}
        for key, by in results.rounds().items()
    }
    goals = [{"goal": goal.label, "limit": goal.limit, "value": number(goal.measure(results))} for goal in GOALS]
    return {"figures": figures, "goals": goals, "met": not missed(results)}
