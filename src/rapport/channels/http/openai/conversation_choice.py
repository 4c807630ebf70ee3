"""Where what comes in by `/v1` is said: in a conversation that goes on, or in one that is there for a single answer."""

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
"""No answer takes so long: whoever should have erased the conversation is gone."""
CLEAN_UP_INTERVAL_SECONDS = 600.0
"""How often a process looks for what was left behind."""
_CLEAN_UP_BATCH = 20


def derive_conversation_id(owner_id: str, agent_id: str, name: str) -> str:
    """The id of the conversation of that name: the same for the same owner, agent and name, at any time and anywhere."""
    # Without a time in it, like the conversations of archives: the first 48 bits stay 0.
    told = "\x00".join((owner_id, "openai", agent_id, name)).encode()
    return str(ULID.from_bytes(bytes(6) + hashlib.sha256(told).digest()[:10]))


class ConversationChoice:
    """Finds, makes and erases conversations for clients that only know messages."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._look_at = time.monotonic()

    async def find_or_create(self, owner_id: str, agent: AgentProfile, name: str) -> str:
        """The id of the conversation of that name, which is made if it isn't there."""
        conversation_id = derive_conversation_id(owner_id, agent.id, name)
        try:
            await self._core.conversations.get(owner_id, conversation_id)
        except NotFound:
            await self._core.conversations.create_seeded(
                owner_id, conversation_id, agent_id=agent.id, title=name, at=datetime.now(UTC)
            )
        return conversation_id

    async def begin_ephemeral(
        self, owner_id: str, conversation_id: str, agent: AgentProfile, before: Sequence[ParsedMessage]
    ) -> None:
        """Make a conversation for one answer, in which this was said before."""
        began = datetime.now(UTC) - timedelta(seconds=len(before))
        history = [
            ArchivedMessage(
                str(number),
                said.role,
                said.content,
                began + timedelta(seconds=number),
                author=said.author,
                is_bot=said.is_bot,
            )
            for number, said in enumerate(before)
        ]
        await self._core.conversations.create_seeded(
            owner_id, conversation_id, agent_id=agent.id, title=None, at=began, messages=history, prefix="openai:"
        )

    async def end_ephemeral(self, owner_id: str, conversation_id: str) -> None:
        """Erase it. What can't be erased now is found again as left behind."""
        try:
            await self._core.runner.erase(owner_id, conversation_id)
        except NotFound:
            return  # by its owner, meanwhile
        except (Transient, Permanent) as error:
            log.warning("openai.left_behind", conversationId=conversation_id, reason=str(error))

    async def clean_up(self) -> None:
        """Now and then, erase what processes that died have left behind."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + CLEAN_UP_INTERVAL_SECONDS
        try:
            left = await self._core.conversations.list_ephemeral(
                before=datetime.now(UTC) - ORPHANED_AFTER, limit=_CLEAN_UP_BATCH
            )
        except (Transient, Permanent) as error:
            log.warning("openai.left_behind", conversationId=None, reason=str(error))
            return
        for owner_id, conversation_id in left:
            await self.end_ephemeral(owner_id, conversation_id)
        if left:
            log.info("openai.cleaned_up", conversations=len(left))
        if len(left) == _CLEAN_UP_BATCH:
            self._look_at = time.monotonic()  # there may be more
