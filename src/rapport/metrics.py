"""Counts and durations for Prometheus. No label contains an id, a name or message text (OBS)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rapport.domain.follow_up import GATES, TRIGGER_TYPES
from rapport.domain.model_problems import MODEL_PROBLEMS, ModelProblem
from rapport.domain.usage import PURPOSES, Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of `render`, which every Prometheus version reads."""

_OUTCOMES = frozenset({"delivered", "suppressed", "superseded", "leaked", "failed", "expired"})
_OTHER = "other"
_PHASE = re.compile(r"[a-z_]{1,32}")
_LATENESS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3_600.0)
_DURATION = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """The count and duration of one part of turns; a duration beyond the longest bucket counts as that long."""

    phase: str
    count: int
    p50_ms: float
    p95_ms: float


class Metrics:
    """Counts of this process since its start. No method waits or fails."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._followups = Counter(
            "rapport_followups",
            "Follow-ups by outcome; `gate` names the check that suppressed one.",
            ("trigger_type", "outcome", "gate"),
            registry=registry,
        )
        self._regenerated = Counter(
            "rapport_followups_regenerated",
            "Follow-ups that were generated again because the first attempt mentioned internals.",
            ("trigger_type",),
            registry=registry,
        )
        self._lateness = Histogram(
            "rapport_timer_lateness_seconds",
            "Seconds between the due time of a timer and its firing.",
            buckets=_LATENESS,
            registry=registry,
        )
        self._expired = Counter(
            "rapport_timers_expired", "Timers dropped because they were due for too long.", registry=registry
        )
        self._reminder_lateness = Histogram(
            "rapport_reminder_lateness_seconds",
            "Seconds between the due time of a reminder and its message.",
            buckets=_LATENESS,
            registry=registry,
        )
        self._pending = Gauge(
            "rapport_timers_pending", "Waiting timers of the whole database; NaN if unknown.", registry=registry
        )
        self._phases = Histogram(
            "rapport_phase_seconds",
            "Duration of each part of a turn and of its post-turn jobs.",
            ("phase",),
            buckets=_DURATION,
            registry=registry,
        )
        self._model_errors = Counter(
            "rapport_model_errors",
            "Model calls that failed after their retries, by kind of problem.",
            ("kind",),
            registry=registry,
        )
        self._model_calls = Counter(
            "rapport_model_calls",
            "Model calls that reached the model's server, retries and failed ones included.",
            ("purpose",),
            registry=registry,
        )
        self._model_tokens = Counter(
            "rapport_model_tokens",
            "Tokens of model calls, as the provider counts them; estimated where it does not.",
            ("direction", "purpose"),
            registry=registry,
        )
        self._deleted = Counter(
            "rapport_retention_deleted", "Rows deleted after the retention time.", ("table",), registry=registry
        )
        self._received = Counter("rapport_messages_received", "Messages that people sent.", registry=registry)

    def count_follow_up(
        self, trigger_type: str | None, outcome: str, gate: str | None = None, regenerated: bool = False
    ) -> None:
        """Count a follow-up that has ended."""
        kind = _limit_label(trigger_type, TRIGGER_TYPES)
        self._followups.labels(kind, _limit_label(outcome, _OUTCOMES), _limit_label(gate, GATES) if gate else "").inc()
        if regenerated:
            self._regenerated.labels(kind).inc()

    def count_fired(self, lateness: float) -> None:
        """Record how many seconds after its due time a timer fired."""
        self._lateness.observe(max(0.0, lateness))

    def count_expired(self) -> None:
        """Count a timer that was dropped because it was overdue."""
        self._expired.inc()

    def count_reminder(self, lateness: float) -> None:
        """Record how many seconds after its due time a reminder was sent."""
        self._reminder_lateness.observe(max(0.0, lateness))

    def set_pending(self, count: int | None) -> None:
        """Set the number of waiting timers; None if it is unknown."""
        self._pending.set(float("nan") if count is None else count)

    def record_phase(self, name: str, ms: float) -> None:
        """Record the duration of a part of a turn."""
        self._phases.labels(name if _PHASE.fullmatch(name) else _OTHER).observe(max(0.0, ms) / 1000)

    def summarize_phases(self) -> list[PhaseTimes]:
        """Return the durations of the parts of turns so far, by name."""
        buckets: dict[str, list[tuple[float, float]]] = {}
        for sample in next(iter(self._phases.collect())).samples:
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                buckets.setdefault(sample.labels["phase"], []).append((bound, sample.value))
        return [
            PhaseTimes(
                name,
                int(phase_buckets[-1][1]),
                _quantile(0.5, phase_buckets) * 1000,
                _quantile(0.95, phase_buckets) * 1000,
            )
            for name, phase_buckets in sorted(buckets.items())
            if phase_buckets[-1][1]
        ]

    def count_model_failure(self, problem: ModelProblem) -> None:
        """Count a call of the model that has failed."""
        self._model_errors.labels(_limit_label(problem, MODEL_PROBLEMS)).inc()

    def count_model_calls(self, usage: Usage) -> None:
        """Count the calls of a purpose and their tokens."""
        purpose = _limit_label(usage.purpose, PURPOSES)
        self._model_calls.labels(purpose).inc(usage.calls)
        self._model_tokens.labels("in", purpose).inc(usage.tokens_in)
        self._model_tokens.labels("out", purpose).inc(usage.tokens_out)

    def count_deleted(self, table: str, rows: int) -> None:
        """Count rows that were deleted after the retention time."""
        self._deleted.labels(table).inc(rows)

    def count_received(self) -> None:
        """Count a message from a person."""
        self._received.inc()

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


def _limit_label(value: str | None, allowed: tuple[str, ...] | frozenset[str]) -> str:
    return value if value is not None and value in allowed else _OTHER


def _quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Return the quantile as Prometheus estimates it: values are evenly spread in a bucket.

    `buckets` are (upper bound, cumulative count); the last one is unbounded and not empty.
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
