"""Count the outcomes of follow-ups, so that people can see how many are answered (AUTO-12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rapport.domain.follow_up import TRIGGER_TYPES, Gate, TimerState, TriggerType


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The number of follow-ups of one type that ended in one state, and at one gate if a gate stopped them."""

    trigger_type: str
    state: TimerState
    gate: Gate | None
    count: int
    regenerated: int
    answered: int
    """Within an hour."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Counts of follow-ups. Each that fired is in exactly one of `delivered`, `suppressed`, `superseded`, `leaked`, `failed` and `under_way`."""

    fired: int
    """All whose timer fired, with any outcome. Expired ones are not included."""
    delivered: int
    suppressed: Mapping[str, int]
    """By the gate that stopped them."""
    superseded: int
    """A person wrote first."""
    leaked: int
    """Mentioned the system's internals twice and were dropped."""
    failed: int
    under_way: int
    expired: int
    """Overdue for too long: nothing was done."""
    regenerated: int
    """Of those that fired: needed a second attempt because the first mentioned the system's internals."""
    answered: int
    """Of those delivered: a person wrote within an hour."""

    @property
    def response_rate(self) -> float | None:
        """Return the share of delivered follow-ups that were answered within an hour; None if none was delivered."""
        return self.answered / self.delivered if self.delivered else None


def count_outcomes(tallies: Iterable[OutcomeCount]) -> Outcomes:
    """Return the counts of all tallies together."""
    states: dict[TimerState, int] = {}
    suppressed: dict[str, int] = {}
    regenerated = answered = 0
    for tally in tallies:
        states[tally.state] = states.get(tally.state, 0) + tally.count
        if tally.state == "suppressed":
            gate = tally.gate or "unknown"
            suppressed[gate] = suppressed.get(gate, 0) + tally.count
        regenerated += tally.regenerated
        answered += tally.answered
    return Outcomes(
        fired=sum(count for state, count in states.items() if state not in ("pending", "expired")),
        delivered=states.get("delivered", 0),
        suppressed=suppressed,
        superseded=states.get("superseded", 0),
        leaked=states.get("leaked", 0),
        failed=states.get("failed", 0),
        under_way=states.get("fired", 0),
        expired=states.get("expired", 0),
        regenerated=regenerated,
        answered=answered,
    )


def count_outcomes_by_type(tallies: Iterable[OutcomeCount]) -> dict[TriggerType, Outcomes]:
    """Return the counts for each trigger type, also for types that never fired."""
    counts = list(tallies)
    return {kind: count_outcomes(tally for tally in counts if tally.trigger_type == kind) for kind in TRIGGER_TYPES}
