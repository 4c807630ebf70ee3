"""One turn: the values that all of its steps share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from rapport.agents.failures import ModelFailed
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.event import ClaimedEvent
from rapport.domain.follow_up import Autonomy, TriggerType
from rapport.domain.ids import is_ephemeral_id
from rapport.domain.model_problems import ModelSetup
from rapport.domain.usage import UsageMeter
from rapport.metrics import Metrics
from rapport.storage.messages.neighbours import LinkedMessages
from rapport.storage.work.turn_input import TurnInput
from rapport.turns.deps import Agent, TurnDeps
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
    """An event, the agent that answers it, the loaded input and the dependencies. All steps use this one version of the agent."""

    event: ClaimedEvent
    profile: AgentProfile
    input: TurnInput
    deps: TurnDeps
    timer: PhaseTimer
    model: Agent | ModelFailed
    """The agent's model, or why it can't be made."""
    links: LinkedMessages = NOTHING_LINKED
    """The messages that the answered message is linked to by replies."""
    meter: UsageMeter = field(default_factory=UsageMeter)
    """The model calls of the turn so far."""

    def require_model(self) -> Agent:
        """Return the agent's model; raise ModelFailed if it can't be made."""
        if isinstance(self.model, ModelFailed):
            raise self.model
        return self.model

    def describe_model(self, failure: ModelFailed | None = None) -> ModelSetup:
        """Return the model that has failed, or would be asked, and where it is set up."""
        profile, choice = self.profile, self.profile.model
        if failure is not None and failure.is_of_fallback:
            return ModelSetup(profile.fallback_model, profile.id, is_fallback=True, missing=failure.missing)
        has_own = bool(choice.name or choice.base_url)
        return ModelSetup(
            choice.name or self.deps.models.servers.name,
            profile.id if has_own else "",
            has_own_address=bool(choice.base_url),
            key_variable=choice.key_variable if choice.base_url else "",
            missing=failure.missing if failure is not None else "",
        )

    @property
    def is_kept(self) -> bool:
        """Return True if the conversation is stored beyond this turn."""
        return not is_ephemeral_id(self.event.conversation_id)

    @property
    def calls_tools(self) -> bool:
        """Return True if the agent's model may be offered tools."""
        return not isinstance(self.model, ModelFailed) and self.model.calls_tools

    @property
    def decides_by_tools(self) -> bool:
        """Return True if the model decides by tools what to remember and when to follow up; otherwise rules do."""
        return not isinstance(self.model, ModelFailed) and self.model.record.has_called_tools

    @property
    def max_chat_history(self) -> int:
        return self.deps.get_max_chat_history(self.profile)

    @property
    def may_use_memory(self) -> bool:
        return self.profile.remembers and self.event.traits.may_use_memory and self.profile.replaces is None

    @property
    def autonomy(self) -> Autonomy | None:
        """Return the rules for follow-ups in this conversation; None if follow-ups are off."""
        return self.deps.get_autonomy(self.profile, self.event.traits, self.input.autonomy_enabled)

    @property
    def types_to_plan(self) -> Sequence[TriggerType]:
        """Return the types of follow-ups that the model may plan with its answer; none if it may not plan any."""
        decides_now = self.deps.get_reflection(self.profile) == "off"
        if self.autonomy is None or not decides_now or self.input.is_muted or not self.calls_tools:
            return ()
        return self.autonomy.trigger_types


def get_sole_speaker(event: ClaimedEvent) -> str | None:
    """Return the owner of a direct chat, whose messages alone count; None in a group, where everybody's do."""
    return None if event.traits.has_many_speakers else event.owner_id
