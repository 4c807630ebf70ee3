"""One turn: the values that all of its steps share."""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from rapport.domain.agent_profile import AgentProfile
from rapport.domain.event import ClaimedEvent
from rapport.domain.follow_up import Autonomy
from rapport.metrics import Metrics
from rapport.storage.messages.neighbours import LinkedMessages
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.deps import TurnDeps
from rapport.turns.group_context import NOTHING_LINKED

log = structlog.get_logger()

MAX_ATTEMPTS = 10
"""After this many attempts an event gets the fallback reply, so that a message can't crash processes again and again."""


class PhaseTimer:
    """Measures how long each phase of a turn takes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._at = time.perf_counter()

    def record(self, phase: str) -> None:
        """Log and count the time since the previous phase ended."""
        now = time.perf_counter()
        ms = round((now - self._at) * 1000, 2)
        log.info("chat.metrics", phase=phase, ms=ms)
        self._metrics.record_phase(phase, ms)
        self._at = now


@dataclass(frozen=True, slots=True)
class Turn:
    """An event, the agent that answers it, the loaded input and the dependencies."""

    event: ClaimedEvent
    profile: AgentProfile
    input: TurnInput
    deps: TurnDeps
    timer: PhaseTimer
    links: LinkedMessages = NOTHING_LINKED
    """The messages that the answered message is linked to by replies."""

    @property
    def may_use_memory(self) -> bool:
        return self.profile.remembers and self.event.traits.may_use_memory

    @property
    def autonomy(self) -> Autonomy | None:
        """Return the rules for follow-ups in this conversation; None if follow-ups are off."""
        return self.deps.get_autonomy(self.profile, self.event.traits, self.input.autonomy_enabled)

    @property
    def may_model_plan(self) -> bool:
        """Return True if the model may plan a follow-up with its answer."""
        decides_now = self.deps.get_reflection(self.profile) == "off"
        return decides_now and self.autonomy is not None and not self.input.is_muted and self.deps.agent.calls_tools


def get_sole_speaker(event: ClaimedEvent) -> str | None:
    """Return the owner of a direct chat, whose messages alone count; None in a group, where everybody's do."""
    return None if event.traits.has_many_speakers else event.owner_id
