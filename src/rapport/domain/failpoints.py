"""Named places where a test can kill the process, to prove that nothing acknowledged is lost there.

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
    }
)

_armed: dict[str, int] = {}


def arm(spec: str) -> None:
    """Die by SIGKILL at the given place, the `count`-th time it is reached (first by default)."""
    name, _, count = spec.partition(":")
    if name not in NAMES:
        raise ValueError(f"unknown failpoint {name!r}; there are {', '.join(sorted(NAMES))}")
    _armed[name] = int(count or 1)


def reach(name: str) -> None:
    """Pass by a named place; free unless it is armed."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
