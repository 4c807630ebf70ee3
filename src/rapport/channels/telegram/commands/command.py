"""A command as somebody has given it, and what it is carried out with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from rapport.agents.profiles import get_agent
from rapport.core.turn_runner import TurnRunner
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.conversation import Author, Conversation, Message
from rapport.memory.memory_store import MemoryStore
from rapport.storage.database import Database
from rapport.turns.group_context import ContextSelector

FOR_ADMINS = "Only an admin of this group can do that."

IsAdmin: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks the platform; in a direct chat it is always true."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command as somebody has given it."""

    name: str
    argument: str
    conversation: Conversation
    asker: Author
    asker_is_admin: IsAdmin
    replied_to: Message | None
    """The stored message that it replies to."""
    bot_username: str
    """The bot's username."""
    is_reply: bool = False
    """It replies to something, be that stored or not."""
    thread_id: str | None = None
    """The forum topic it was given in."""

    @property
    def agent(self) -> AgentProfile:
        return get_agent(self.conversation.agent_id)

    @property
    def is_group(self) -> bool:
        return self.conversation.traits.has_many_speakers

    async def may_decide_for_all(self) -> bool:
        """Whether the asker may decide for everybody here."""
        return not self.conversation.traits.has_admins or await self.asker_is_admin()


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What commands are carried out with."""

    database: Database
    core: TurnRunner
    chooser: ContextSelector
    memory: MemoryStore
    autonomy: bool
    """Whether anything is ever said unasked on this server."""
