"""Whether the model works, as far as this process has seen; and how its failures are counted."""

from __future__ import annotations

from collections.abc import Callable

from rapport.agents.failures import ModelFailed
from rapport.domain.model_problems import Problem

_OF_ONE_PROMPT = frozenset({"too_long", "empty", "request_refused"})
"""Failures that say something about what was asked, and nothing about whether the model works."""


class ModelHealth:
    """Remembers what is wrong with the model until it answers again, and counts every failure."""

    def __init__(self, on_failure: Callable[[Problem], None] = lambda _problem: None) -> None:
        self.problem: Problem | None = None
        self._on_failure = on_failure

    def failed(self, failure: ModelFailed) -> None:
        """Remember and count a failure after its last retry."""
        self.count(failure)
        self.found(failure.problem)

    def count(self, failure: ModelFailed) -> None:
        """Count a failure that says nothing about other calls."""
        self._on_failure(failure.problem)

    def found(self, problem: Problem | None) -> None:
        """Remember what a check has found; None: that the model works."""
        if problem not in _OF_ONE_PROMPT:
            self.problem = problem

    def answered(self) -> None:
        """Forget what was wrong: the model works."""
        self.problem = None
