"""Name the problems a model can have, and say when it is no longer called (RES-3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

ModelProblem: TypeAlias = Literal[
    "key_refused",
    "no_credit",
    "rate_limited",
    "unknown_model",
    "too_long",
    "unreachable",
    "timeout",
    "server_error",
    "request_refused",
    "malformed",
    "empty",
    "not_set_up",
    "unknown",
]
MODEL_PROBLEMS: tuple[ModelProblem, ...] = get_args(ModelProblem)
"""Fixed words, for metrics and for the operator who can fix the problem."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """A model, and where its name, address and key are set: in an agent's fields, or in the server's settings."""

    model: str = ""
    agent_id: str = ""
    """The agent whose field names the model; empty: the server's settings name it."""
    is_fallback: bool = False
    """True if it is the agent's fallback model."""
    has_own_address: bool = False
    """True if the agent names the address of the model's server; its key is then in `key_variable`, if it needs one."""
    key_variable: str = ""
    missing: str = ""
    """The sentence that says why the model can't be made; empty if it can."""

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> ModelSetup:
        """Return the setup in the metadata of a reply; those of old replies name only the model."""
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})

    def describe(self) -> dict[str, Any]:
        """Return the fields that are set, for the metadata of a reply."""
        return {name: value for name, value in asdict(self).items() if value}


BREAKER_FAILURES = 5
"""Consecutive failed turns within BREAKER_WINDOW_SECONDS that open a conversation's breaker."""
BREAKER_WINDOW_SECONDS = 120
"""An open breaker also stays open for this time. Then one turn calls the model; its success closes the breaker."""
