"""Define a received command, and the context that it runs in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from rapport.core.core import Core
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Author, Conversation, Message

FOR_ADMINS = "Only an admin of this group can do that."

IsAdmin: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks the platform whether a person is an admin; in a direct chat it is always true."""


@dataclass(frozen=True, slots=True)
class Command:
    """A received command."""

    name: str
    argument: str
    conversation: Conversation
    asker: Author
    asker_is_admin: IsAdmin
    replied_to: Message | None
    """The stored message that it replies to."""
    bot_username: str
    """The bot's username."""
    agent: AgentProfile
    is_reply: bool = False
    """True if it replies to a message, stored or not."""
    thread_id: str | None = None
    """The forum topic that it was sent in."""

    @property
    def is_group(self) -> bool:
        return self.conversation.traits.has_many_speakers

    async def may_decide_for_all(self) -> bool:
        """Return True if the asker may decide for everybody in the chat."""
        return not self.conversation.traits.has_admins or await self.asker_is_admin()


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The parts of the application that commands use."""

    core: Core
    autonomy: bool
    """True if follow-ups are on for this server."""
