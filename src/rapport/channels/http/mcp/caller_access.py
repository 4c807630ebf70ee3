"""Pass to tools and resources what a request may use: the core, and the caller whose data it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rapport.channels.http.openai.conversation_choice import ConversationChoice
from rapport.core.core import Core
from rapport.domain.caller import Caller


@dataclass(frozen=True, slots=True)
class CallerAccess:
    """The core, for one caller. Every operation gets the caller's owner id, and no other."""

    core: Core
    conversations: ConversationChoice
    caller: Caller
    max_characters: int
    """The longest message."""
    admit: Callable[[str], Awaitable[None]]
    """Counts a message to a conversation before it is stored; raises TooMany over the rate limit."""

    @property
    def owner_id(self) -> str:
        return self.caller.owner_id
