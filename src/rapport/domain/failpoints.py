"""Kill the process at named places, so that tests can prove that nothing acknowledged is lost.

Nothing is armed unless `RAPPORT_FAILPOINT=name` or `name:count` was set at start.
"""

from __future__ import annotations

import os
import signal

NAMES = frozenset(
    {
        "ingest.stored",
        "turn.loaded",
        "turn.answered",
        "turn.committed",
        "deliver.sent",
        "tool.before_intent",
        "tool.after_intent",
        "tool.after_call",
        "tool.after_result",
        "approval.decided",
    }
)

_armed: dict[str, int] = {}


def arm(spec: str) -> None:
    """Arm a place: the process dies by SIGKILL the `count`-th time it is reached (first by default)."""
    name, _, count = spec.partition(":")
    if name not in NAMES:
        raise ValueError(f"unknown failpoint {name!r}; there are {', '.join(sorted(NAMES))}")
    _armed[name] = int(count or 1)


def reach(name: str) -> None:
    """Kill the process if this place is armed and its count is reached; otherwise do nothing."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
