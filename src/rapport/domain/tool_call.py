"""Define the stored calls of tools that may change something outside Rapport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

CallState: TypeAlias = Literal["asked", "allowed", "denied", "running", "done", "failed", "unknown"]
"""`asked`: a person must decide. `running`: it was sent, or was about to be. `unknown`: it was sent and gave no answer."""
Decision: TypeAlias = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call, identified by its turn and its place in it."""

    conversation_id: str
    message_id: str
    """The id of the message whose answer needs it."""
    key: str
    owner_id: str
    tool: str
    server: str
    arguments: Mapping[str, Any]
    state: CallState
    result: str | None = None
    approval_id: str | None = None
    """The id of the question to a person; None for a call that needs none."""
    asker_id: str | None = None
    """The author of the message: the person who may decide in a group, beside an admin."""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    is_expired: bool = False
    """True if nobody has decided in time."""

    @property
    def place(self) -> tuple[int, int]:
        """Return the number of the model's message in its turn, and of the call in that message."""
        message, _, position = self.key.partition(".")
        return int(message), int(position)

    @property
    def is_undecided(self) -> bool:
        return self.state == "asked" and not self.is_expired

    def is_same(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        return self.tool == tool and self.arguments == arguments
