"""What became of follow-ups, counted: for whoever wants to know whether they are welcome (AUTO-12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rapport.domain.follow_up import TRIGGER_TYPES, Gate, TimerState, TriggerType


class Counted(Protocol):
    """How many follow-ups of a type ended in a state, held back by a gate or not."""

    @property
    def trigger_type(self) -> str: ...

    @property
    def state(self) -> TimerState: ...

    @property
    def gate(self) -> Gate | None: ...

    @property
    def count(self) -> int: ...

    @property
    def regenerated(self) -> int: ...

    @property
    def answered(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Each that fired is in exactly one of `delivered`, `suppressed`, `superseded`, `leaked`, `failed` and `under_way`."""

    fired: int
    """All whose time came and was noticed, whatever became of them. Those that expired are not among them."""
    delivered: int
    suppressed: Mapping[str, int]
    """By the gate that held them back."""
    superseded: int
    """Somebody spoke first."""
    leaked: int
    """Spoke of the machinery twice, and were dropped."""
    failed: int
    under_way: int
    expired: int
    """Noticed so late that nothing was done."""
    regenerated: int
    """Of those that fired: took a second attempt because the first spoke of the machinery."""
    answered: int
    """Of those delivered: somebody spoke within an hour."""

    @property
    def response_rate(self) -> float | None:
        """The share of those delivered that was answered within an hour; None when none was delivered."""
        return self.answered / self.delivered if self.delivered else None


def count_outcomes(tallies: Iterable[Counted]) -> Outcomes:
    """All of these together."""
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


def count_outcomes_by_type(tallies: Iterable[Counted]) -> dict[TriggerType, Outcomes]:
    """The same for each trigger type, those that never fired included."""
    every = list(tallies)
    return {kind: count_outcomes(tally for tally in every if tally.trigger_type == kind) for kind in TRIGGER_TYPES}
