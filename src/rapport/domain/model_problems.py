"""What may be wrong with a model, as fixed words: for metrics, and for whoever can fix it."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Problem: TypeAlias = Literal[
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
    "unknown",
]
PROBLEMS: tuple[Problem, ...] = get_args(Problem)
