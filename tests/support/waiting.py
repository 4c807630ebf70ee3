"""Define the one time limit of every wait: a test waits for a condition, and only a hang makes it fail."""

from __future__ import annotations

LIMIT_SECONDS = 60.0
"""Long enough for a machine that is busy with other work; no test asserts that anything is faster than this."""
