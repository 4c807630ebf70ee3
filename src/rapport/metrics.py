"""What Prometheus may know: counts and durations. No label holds an id, a name or a word that anybody said (OBS)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rapport.domain.follow_up import GATES, TRIGGER_TYPES
from rapport.domain.model_problems import MODEL_PROBLEMS, ModelProblem

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of `render`: the form that every Prometheus reads."""

_OUTCOMES = frozenset({"delivered", "suppressed", "superseded", "leaked", "failed", "expired"})
_OTHER = "other"
_PHASE = re.compile(r"[a-z_]{1,32}")
_LATENESS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3_600.0)
_DURATION = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """How often a part of a turn was done, and how long it took; a duration beyond the longest bucket counts as that long."""

    phase: str
    count: int
    p50_ms: float
    p95_ms: float


class Metrics:
    """Counts of this process, since it began. Nothing here waits for anything or fails."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._followups = Counter(
            "rapport_followups",
            "What became of follow-ups that fired; `gate` is what held one back.",
            ("trigger_type", "outcome", "gate"),
            registry=registry,
        )
        self._regenerated = Counter(
            "rapport_followups_regenerated",
            "Follow-ups whose first attempt spoke of the machinery.",
            ("trigger_type",),
            registry=registry,
        )
        self._lateness = Histogram(
            "rapport_timer_lateness_seconds",
            "How long after it was due a timer fired.",
            buckets=_LATENESS,
            registry=registry,
        )
        self._expired = Counter(
            "rapport_timers_expired", "Timers noticed so late that nothing was done.", registry=registry
        )
        self._pending = Gauge(
            "rapport_timers_pending", "Timers that wait, of the whole database; NaN: unknown.", registry=registry
        )
        self._phases = Histogram(
            "rapport_phase_seconds",
            "How long each part of a turn, and of what follows it, took.",
            ("phase",),
            buckets=_DURATION,
            registry=registry,
        )
        self._model_errors = Counter(
            "rapport_model_errors",
            "Calls of the model that failed after their retries, by what was wrong.",
            ("kind",),
            registry=registry,
        )
        self._deleted = Counter(
            "rapport_retention_deleted", "Rows deleted after the retention time.", ("table",), registry=registry
        )
        self._received = Counter("rapport_messages_received", "Messages that people sent.", registry=registry)

    def followed_up(
        self, trigger_type: str | None, outcome: str, gate: str | None = None, regenerated: bool = False
    ) -> None:
        """A follow-up has ended."""
        kind = _one_of(trigger_type, TRIGGER_TYPES)
        self._followups.labels(kind, _one_of(outcome, _OUTCOMES), _one_of(gate, GATES) if gate else "").inc()
        if regenerated:
            self._regenerated.labels(kind).inc()

    def fired(self, lateness: float) -> None:
        """A timer has become an event, so many seconds after it was due."""
        self._lateness.observe(max(0.0, lateness))

    def expired(self) -> None:
        """A timer was dropped because it was due for too long."""
        self._expired.inc()

    def pending(self, count: int | None) -> None:
        """So many timers wait; None when that can't be known now."""
        self._pending.set(float("nan") if count is None else count)

    def phase(self, name: str, ms: float) -> None:
        """A part of a turn has taken so long."""
        self._phases.labels(name if _PHASE.fullmatch(name) else _OTHER).observe(max(0.0, ms) / 1000)

    def phases(self) -> list[PhaseTimes]:
        """The parts of turns so far, by name."""
        buckets: dict[str, list[tuple[float, float]]] = {}
        for sample in next(iter(self._phases.collect())).samples:
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                buckets.setdefault(sample.labels["phase"], []).append((bound, sample.value))
        return [
            PhaseTimes(name, int(found[-1][1]), _quantile(0.5, found) * 1000, _quantile(0.95, found) * 1000)
            for name, found in sorted(buckets.items())
            if found[-1][1]
        ]

    def model_failed(self, problem: ModelProblem) -> None:
        """Count a call of the model that has failed."""
        self._model_errors.labels(_one_of(problem, MODEL_PROBLEMS)).inc()

    def count_deleted(self, table: str, rows: int) -> None:
        """Count rows that were deleted after the retention time."""
        self._deleted.labels(table).inc(rows)

    def received(self) -> None:
        """Somebody said something."""
        self._received.inc()

    def render(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)


def _one_of(value: str | None, known: tuple[str, ...] | frozenset[str]) -> str:
    return value if value is not None and value in known else _OTHER


def _quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    """The value that this share of what was measured stays under, as Prometheus reckons it: evenly spread in a bucket.

    `buckets` are upper bounds with how many are at most so large; the last one is without bound, and not empty.
    """
    rank = share * buckets[-1][1]
    lower = below = 0.0
    for upper, count in buckets:
        if count >= rank:
            if math.isinf(upper):
                break
            return lower + (upper - lower) * (rank - below) / (count - below)
        lower, below = upper, count
    return lower
