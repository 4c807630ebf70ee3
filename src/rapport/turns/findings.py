"""Recall memories and retrieve notes for a turn: the step that answers and follow-ups share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from rapport.domain.errors import Permanent, Transient
from rapport.domain.note import Passage
from rapport.domain.note_scope import NoteScope
from rapport.domain.token_estimate import estimate_tokens
from rapport.memory.query import Query
from rapport.memory.recall import RecalledMemory
from rapport.replies.quoting import quote_passages
from rapport.retrieval.retriever import Retrieval
from rapport.turns.turn import Turn

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Lookup:
    """The texts of the searches for memories and notes."""

    memory_query: Query | None
    """None: nothing is recalled."""
    question: str | None
    """The question for the search in notes. None: nothing is retrieved."""
    earlier_questions: Sequence[str] = ()
    """Earlier questions of the same person, which the question may refer to."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Memories and notes for a turn."""

    retrieval: Retrieval | None = None
    passages: Sequence[Passage] = ()
    """The relevant passages, without citations of their own: the sources that the reply may cite."""
    memories: Sequence[RecalledMemory] = ()

    @property
    def description(self) -> str:
        """Return a sentence that describes passages which were not found by a search."""
        return self.retrieval.about if self.retrieval is not None and self.passages else ""

    @property
    def audit(self) -> dict[str, object]:
        """Ids and scores, as they are stored in the reply's metadata."""
        audit: dict[str, object] = {}
        if self.retrieval is not None:
            audit["retrieved"] = self.retrieval.audit
            audit["notes_given"] = bool(self.passages)
        if self.memories:
            audit["memories"] = [{"id": memory.id, "score": round(memory.similarity, 4)} for memory in self.memories]
        return audit


async def recall_and_retrieve(turn: Turn, lookup: Lookup, *, must_retrieve: bool = False) -> Findings:
    """Return the relevant memories and passages.

    A search that fails gives no passages; with `must_retrieve` it raises Transient or Permanent.
    """
    memories = await _recall_memories(turn, lookup.memory_query)
    try:
        retrieval = await _retrieve_notes(turn, lookup)
    except (Transient, Permanent) as error:
        if must_retrieve:
            raise
        log.warning("chat.error", errorType="retrieval", message=str(error))
        retrieval = None
    is_relevant = retrieval is not None and retrieval.is_relevant
    return Findings(retrieval, quote_passages(retrieval.passages) if retrieval and is_relevant else (), memories)


async def _recall_memories(turn: Turn, query: Query | None) -> Sequence[RecalledMemory]:
    if query is None or not turn.may_use_memory or not turn.input.has_memories:
        return ()
    return await turn.deps.recall.recall(turn.event.owner_id, turn.event.agent_id, query, tokens=estimate_tokens)


async def _retrieve_notes(turn: Turn, lookup: Lookup) -> Retrieval | None:
    """Return the passages for the question; None without a question or notes."""
    note_counts = turn.input.note_counts
    if turn.profile.min_similarity is not None:
        note_counts = replace(note_counts, min_similarity=turn.profile.min_similarity)
    if lookup.question is None or not note_counts.total:
        return None
    scope = NoteScope(turn.event.owner_id, turn.event.conversation_id, turn.profile.collections)
    retrieval = await turn.deps.retriever.retrieve(
        scope, lookup.question, earlier=lookup.earlier_questions, note_counts=note_counts
    )
    audit = retrieval.audit
    log.info("chat.retrieval", ids=[hit["id"] for hit in audit], scores=[hit["score"] for hit in audit])
    return retrieval
