"""Count the outcomes of follow-ups, so that people can see how many are answered (AUTO-12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt

from rapport.domain.follow_up import TRIGGER_TYPES, Gate, TimerState, TriggerType

MIN_COMPARED = 10
"""The number of delivered follow-ups from which on the answer rate of a variant may be compared with another's."""
_Z = 1.959964
"""The quantile of the normal distribution for 95 %."""


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The number of follow-ups of one agent, type and variant that ended in one state, and at one gate if a gate stopped them."""

    agent_id: str
    trigger_type: TriggerType
    variant: str | None
    """The variant of the prompt; None if none was chosen, because a person wrote first or the timer expired."""
    state: TimerState
    gate: Gate | None
    count: int
    regenerated: int
    answered: int
    """Within an hour."""


@dataclass(frozen=True, slots=True)
class AnswerRate:
    """The share of delivered follow-ups that was answered within an hour, and how sure it is."""

    answered: int
    delivered: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the Wilson 95 % interval of the rate; None if none was delivered.

        It is honest about small numbers: 1 of 1 gives 21 to 100 %.
        """
        if not self.delivered:
            return None
        count, rate = self.delivered, self.answered / self.delivered
        center = rate + _Z**2 / (2 * count)
        spread = _Z * sqrt(rate * (1 - rate) / count + (_Z / (2 * count)) ** 2)
        scale = 1 + _Z**2 / count
        return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)

    @property
    def may_be_compared(self) -> bool:
        return self.delivered >= MIN_COMPARED

    def describe(self) -> str:
        """Return the rate as people read it, with a remark if there are too few to compare."""
        if (interval := self.interval) is None:
            return "none delivered"
        low, high = (f"{100 * bound:.0f}" for bound in interval)
        sentence = f"{self.answered:,} of {self.delivered:,} answered, {low}–{high} %"
        return sentence if self.may_be_compared else f"{sentence}; too few to compare"


@dataclass(frozen=True, slots=True)
class VariantOutcomes:
    """The outcomes of one variant of an agent's prompt for a type of trigger."""

    agent_id: str
    trigger_type: TriggerType
    variant: str
    fired: int
    rate: AnswerRate


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


def count_outcomes_by_variant(tallies: Iterable[OutcomeCount]) -> list[VariantOutcomes]:
    """Return the counts for each variant that was chosen at least once, by agent, type and name.

    Follow-ups that no prompt was chosen for are in the counts by type alone.
    """
    groups: dict[tuple[str, TriggerType, str], list[OutcomeCount]] = {}
    for tally in tallies:
        if tally.variant is not None:
            groups.setdefault((tally.agent_id, tally.trigger_type, tally.variant), []).append(tally)
    found: list[VariantOutcomes] = []
    for names in sorted(groups, key=lambda names: (names[0], TRIGGER_TYPES.index(names[1]), names[2])):
        outcomes = count_outcomes(groups[names])
        found.append(VariantOutcomes(*names, outcomes.fired, AnswerRate(outcomes.answered, outcomes.delivered)))
    return found
