"""Distinguish linear from quadratic work, on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TRIES = 5


def least_cpu_seconds(work: Callable[[], Any]) -> float:
    """Return the least CPU time of some runs, because other work on the machine only adds to it."""
    return min(_cpu_seconds(work) for _ in range(TRIES))


def takes_at_most(seconds: float, work: Callable[[], Any]) -> bool:
    """Return whether any of some runs ends within this CPU time."""
    return any(_cpu_seconds(work) <= seconds for _ in range(TRIES))


def assert_in_proportion(work: Callable[[Any], Any], small: Any, large: Any, *, times: int) -> None:
    """Fail if `large`, which is `times` as long as `small`, takes nearly the square of that.

    The least time of each counts. A slow run is repeated; only work that is slow each time fails.
    """
    bound = times**1.75
    least_small = least_large = float("inf")
    for _ in range(TRIES):
        least_small = min(least_small, _cpu_seconds(lambda: work(small)))
        least_large = min(least_large, _cpu_seconds(lambda: work(large)))
        if least_large < max(bound * least_small, 1.0):
            return
    raise AssertionError(f"{times} times the input took {least_large / least_small:.0f} times as long")


def _cpu_seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
