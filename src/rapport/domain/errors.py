"""Errors say what to do.

RapportError
├── InvalidInput      tell the sender; never retry
│   ├── TooLarge
│   └── Conflict      the same key was used for something else
├── NotFound          missing or somebody else's: the same answer
├── Unauthorized      no or no valid key
├── TooMany           tell the sender to slow down; nothing was done
├── Transient         retry, no sooner than `retry_after`
│   └── Busy          this process is leaving or overloaded
└── Permanent         park and alert
"""

from __future__ import annotations


class RapportError(Exception):
    """The root: its text is a sentence for the person who meets it."""


class InvalidInput(RapportError):
    """The sender must change something; repeating the same never helps."""


class TooLarge(InvalidInput):
    """The input is well-formed but over a limit."""


class Conflict(InvalidInput):
    """An idempotency key came back with different content."""


class NotFound(RapportError):
    """Nothing here for this caller: missing and foreign look the same."""


class Unauthorized(RapportError):
    """The caller did not show a key that is valid here."""


class TooMany(RapportError):
    """The sender asks too often: nothing was done, and the same is welcome after `retry_after` whole seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Transient(RapportError):
    """It may work later, no sooner than `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Busy(Transient):
    """This process can't take it now; another one or a later try can."""


class Permanent(RapportError):
    """It will not work by itself: a person has to look."""
