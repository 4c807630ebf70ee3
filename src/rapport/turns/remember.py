"""Remember facts from a turn: decide what may be saved, embed it, and store it with the reply."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog

from rapport.agents.tools.recorded import MaySave
from rapport.domain.errors import InvalidInput, Permanent, Transient
from rapport.domain.event import Reply
from rapport.domain.memory import MemoryCandidate
from rapport.followups.own_words import find_own_messages, is_founded, keep_own_text
from rapport.memory.extraction import extract_facts
from rapport.memory.memory_store import ApplyResult, PreparedMemory
from rapport.storage.database import Connection, run_savepoint
from rapport.turns.turn import Turn, get_sole_speaker

log = structlog.get_logger()

EMBEDDING_TIMEOUT_SECONDS = 5.0
"""A reply that is ready waits this long for the vectors of its memories."""
MEMORY_LOCK_TIMEOUT_SECONDS = 1.0
"""A commit, which blocks its conversation, waits this long for other writers of the same memories."""


def make_save_check(turn: Turn) -> MaySave | None:
    """Return a function that accepts facts in the person's own words; None if nothing may be saved."""
    if not turn.may_use_memory:
        return None
    texts = list_own_texts(turn)
    return lambda content: is_founded(content, texts)


async def prepare_memories(turn: Turn, reply: Reply) -> Sequence[PreparedMemory]:
    """Return the embedded memories of this turn: those that the model saved; before those, if it calls no tools, what rules find.

    A call that such a model writes as text tells less than rules do: "Marta lives in Graz" of "I'm Marta and I live in Graz".
    A failure is logged, and the reply is sent without the memories.
    """
    if not turn.may_use_memory:
        return ()
    candidates = reply.memory_candidates
    if not turn.decides_by_tools:
        candidates = _extract_by_rules(turn) or candidates
    if not candidates:
        return ()
    origin = {"conversation_id": turn.event.conversation_id, "message_id": turn.event.message_id}
    try:
        async with asyncio.timeout(EMBEDDING_TIMEOUT_SECONDS):
            return await turn.deps.memory_store.prepare([replace(candidate, **origin) for candidate in candidates])
    except (InvalidInput, Transient, Permanent, TimeoutError) as error:
        log.warning("memory.not_saved", reason=str(error) or "no vectors in time")
        return ()


async def store_memories(connection: Connection, turn: Turn, memories: Sequence[PreparedMemory]) -> ApplyResult:
    """Store the memories inside the caller's transaction; if they can't be stored, leave them out and log it."""
    try:
        async with run_savepoint(connection, patience=MEMORY_LOCK_TIMEOUT_SECONDS):
            return await turn.deps.memory_store.apply(connection, turn.event.owner_id, turn.event.agent_id, memories)
    except (Transient, Permanent) as error:
        log.warning("memory.not_saved", reason=str(error))
        return ApplyResult()


def _extract_by_rules(turn: Turn) -> list[MemoryCandidate]:
    """Return the facts that rules find in the message, if its author is the owner."""
    if not list_own_texts(turn):
        return []
    message = turn.input.message
    return extract_facts(replace(message, content=keep_own_text(message.text)))


def list_own_texts(turn: Turn) -> list[str]:
    """Return the texts that the author of the message wrote; in a direct chat an empty list if the author is not the owner."""
    messages = [*turn.input.earlier, turn.input.message]
    own_messages = find_own_messages(messages, of=turn.input.message, owner_id=get_sole_speaker(turn.event))
    return [message.text for message in own_messages]
