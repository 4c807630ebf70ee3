"""Record whether the model works, as seen by this process, and count its failures."""

from __future__ import annotations

import time
from collections.abc import Callable

from rapport.agents.failures import ModelFailed
from rapport.domain.model_problems import ModelProblem

_OF_ONE_PROMPT = frozenset({"too_long", "empty", "request_refused"})
"""Failures caused by one prompt; they do not mean that the model is broken."""

REST_SECONDS = 20.0
"""After a failure an agent's fallback model is asked first for this long."""


class ModelHealth:
    """Hold the current problem of the model until it answers again, and count every failure."""

    def __init__(self, on_failure: Callable[[ModelProblem], None] = lambda _problem: None) -> None:
        self.problem: ModelProblem | None = None
        self._failed_at = 0.0
        self._on_failure = on_failure

    def record_failure(self, failure: ModelFailed) -> None:
        """Record and count a failure after its last retry."""
        self.count(failure)
        self.record_probe(failure.problem)

    def count(self, failure: ModelFailed) -> None:
        """Count a failure that does not affect other calls."""
        self._on_failure(failure.problem)

    def record_probe(self, problem: ModelProblem | None) -> None:
        """Record the result of a probe; None means that the model works."""
        if problem not in _OF_ONE_PROMPT:
            self.problem = problem
            self._failed_at = time.monotonic()

    def has_just_failed(self) -> bool:
        """Return True for some seconds after a failure that was not caused by one prompt."""
        return self.problem is not None and time.monotonic() - self._failed_at < REST_SECONDS

    def record_success(self) -> None:
        """Clear the problem: the model works."""
        self.problem = None
