"""Name the problems a model can have, and say when it is no longer called (RES-3)."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

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

BREAKER_FAILURES = 5
"""Consecutive failed turns within BREAKER_WINDOW_SECONDS that open a conversation's breaker."""
BREAKER_WINDOW_SECONDS = 120
"""An open breaker also stays open for this time. Then one turn calls the model; its success closes the breaker."""
