"""Choose the conversation of a `/v1` request: a lasting one, or an ephemeral one for a single reply."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import structlog
from ulid import ULID

from rapport.channels.http.openai.requests import ParsedMessage
from rapport.core.core import Core
from rapport.domain.agent_profile import AgentProfile
from rapport.domain.chat_archive import ArchivedMessage
from rapport.domain.errors import NotFound, Permanent, Transient

log = structlog.get_logger()

ORPHANED_AFTER = timedelta(hours=1)
"""No reply takes this long: the process that should have erased the conversation has died."""
CLEAN_UP_INTERVAL_SECONDS = 600.0
"""The time between two searches for orphaned ephemeral conversations."""
_CLEAN_UP_BATCH = 20


def derive_conversation_id(owner_id: str, agent_id: str, name: str, *, protocol: str = "openai") -> str:
    """Return the id of the named conversation. The same owner, agent, protocol and name always give the same id."""
    # The 48 bits of the time stay 0, as in imported conversations.
    seed = "\x00".join((owner_id, protocol, agent_id, name)).encode()
    return str(ULID.from_bytes(bytes(6) + hashlib.sha256(seed).digest()[:10]))


class ConversationChoice:
    """Find, create and erase conversations for clients that only send messages."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._look_at = time.monotonic()

    async def find_or_create(self, owner_id: str, agent: AgentProfile, name: str) -> str:
        """Return the id of the named conversation; create it if it is missing."""
        conversation_id = derive_conversation_id(owner_id, agent.id, name)
        try:
            await self._core.conversations.get(owner_id, conversation_id)
        except NotFound:
            await self._core.conversations.create_seeded(
                owner_id, conversation_id, agent_id=agent.id, title=name, at=datetime.now(UTC)
            )
        return conversation_id

    async def begin_for_message(self, owner_id: str, agent: AgentProfile, client_message_id: str) -> str:
        """Return the id of the conversation that begins with this message of an MCP client; create it if it is missing."""
        conversation_id = derive_conversation_id(owner_id, agent.id, client_message_id, protocol="mcp")
        await self._core.conversations.create_seeded(
            owner_id, conversation_id, agent_id=agent.id, title=None, at=datetime.now(UTC), follows_up=True
        )
        return conversation_id

    async def begin_ephemeral(
        self, owner_id: str, conversation_id: str, agent: AgentProfile, before: Sequence[ParsedMessage]
    ) -> None:
        """Create a conversation for one reply, with these earlier messages."""
        started_at = datetime.now(UTC) - timedelta(seconds=len(before))
        history = [
            ArchivedMessage(
                str(number),
                message.role,
                message.content,
                started_at + timedelta(seconds=number),
                author=message.author,
                is_bot=message.is_bot,
            )
            for number, message in enumerate(before)
        ]
        await self._core.conversations.create_seeded(
            owner_id, conversation_id, agent_id=agent.id, title=None, at=started_at, messages=history, prefix="openai:"
        )

    async def end_ephemeral(self, owner_id: str, conversation_id: str) -> None:
        """Erase an ephemeral conversation. If that fails, `clean_up` finds it later."""
        try:
            await self._core.runner.erase(owner_id, conversation_id)
        except NotFound:
            return  # its owner has erased it meanwhile
        except (Transient, Permanent) as error:
            log.warning("openai.erase_failed", conversationId=conversation_id, reason=str(error))

    async def clean_up(self) -> None:
        """Erase orphaned ephemeral conversations of processes that died, at most once an interval."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + CLEAN_UP_INTERVAL_SECONDS
        try:
            leftover = await self._core.conversations.list_ephemeral(
                before=datetime.now(UTC) - ORPHANED_AFTER, limit=_CLEAN_UP_BATCH
            )
        except (Transient, Permanent) as error:
            log.warning("openai.clean_up_failed", conversationId=None, reason=str(error))
            return
        for owner_id, conversation_id in leftover:
            await self.end_ephemeral(owner_id, conversation_id)
        if leftover:
            log.info("openai.cleaned_up", conversations=len(leftover))
        if len(leftover) == _CLEAN_UP_BATCH:
            self._look_at = time.monotonic()  # there may be more
