"""Errors say what to do.

RapportError
├── InvalidInput      tell the sender; never retry
│   ├── InvalidFields fields with a wrong type, form or size
│   ├── TooLarge
│   ├── Forbidden     somebody else may do this
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
    """The base class. Its text is a sentence for the person who gets it."""


class InvalidInput(RapportError):
    """The sender must change the request; a retry never helps."""


class InvalidFields(InvalidInput):
    """Fields of the input have a wrong type, form or size."""


class TooLarge(InvalidInput):
    """The input is well-formed but over a limit."""


class Forbidden(InvalidInput):
    """The sender sees the object and may not do this with it; somebody else may."""


class Conflict(InvalidInput):
    """An idempotency key was used again with different content."""


class NotFound(RapportError):
    """The object is missing or somebody else's: both look the same to the caller."""


class Unauthorized(RapportError):
    """The caller sent no valid key."""


class TooMany(RapportError):
    """The sender sends too many requests: nothing was done. Retry after `retry_after` whole seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Transient(RapportError):
    """A retry may succeed, no sooner than after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Busy(Transient):
    """This process can't accept it now; another process or a later attempt can."""


class Permanent(RapportError):
    """A retry does not help: a person has to fix the cause."""
