"""Recall memories and retrieve notes for a turn: the step that answers and follow-ups share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

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


@dataclass(slots=True)
class Search:
    """The searches for one turn: each runs once, however often it is called."""

    turn: Turn
    lookup: Lookup
    retrieval: Retrieval | None = None
    memories: Sequence[RecalledMemory] = ()
    looked_up: list[Passage] = field(default_factory=list[Passage])
    """The passages that the model has found by a tool."""
    failure: str = ""
    """Why the notes could not be searched; empty if they could."""
    _passages: Sequence[Passage] = ()
    _is_recalled: bool = False
    _is_retrieved: bool = False

    @property
    def entry(self) -> Literal["recall", "retrieve", "model"]:
        """Return the first search that is not done; `model` if there is none."""
        if self._recalls and not self._is_recalled:
            return "recall"
        return "retrieve" if self._retrieves and not self._is_retrieved else "model"

    @property
    def findings(self) -> Findings:
        return Findings(self.retrieval, [*self._passages, *self.looked_up], self.memories)

    async def run(self) -> Findings:
        """Run the searches that are not done, and return what all have found."""
        await self.recall()
        await self.retrieve()
        return self.findings

    async def recall(self) -> Sequence[str]:
        """Recall memories and return their ids."""
        query = self.lookup.memory_query
        if query is not None and self._recalls and not self._is_recalled:
            event = self.turn.event
            recall = self.turn.deps.recall.recall
            self.memories = await recall(event.owner_id, event.agent_id, query, tokens=estimate_tokens)
        self._is_recalled = True
        return [memory.id for memory in self.memories]

    async def retrieve(self) -> Sequence[str]:
        """Retrieve passages and return the ids of their notes."""
        if self._retrieves and not self._is_retrieved:
            try:
                self.retrieval = await _retrieve_notes(self.turn, self.lookup)
            except (Transient, Permanent) as error:
                log.warning("chat.error", errorType="retrieval", message=str(error))
                self.failure = str(error)
            if self.retrieval is not None and self.retrieval.is_relevant:
                self._passages = quote_passages(self.retrieval.passages)
        self._is_retrieved = True
        return [passage.note_id for passage in self._passages]

    @property
    def _recalls(self) -> bool:
        turn = self.turn
        return self.lookup.memory_query is not None and turn.may_use_memory and turn.input.has_memories

    @property
    def _retrieves(self) -> bool:
        return self.lookup.question is not None and bool(self.turn.input.note_counts.total)


async def _retrieve_notes(turn: Turn, lookup: Lookup) -> Retrieval | None:
    """Return the passages for the question; None without a question or notes."""
    if lookup.question is None:
        return None
    return await search_notes(turn, lookup.question, earlier=lookup.earlier_questions)


async def search_notes(turn: Turn, question: str, *, earlier: Sequence[str] = ()) -> Retrieval | None:
    """Return the passages for a question among the notes that the turn may use; None without notes."""
    note_counts = turn.input.note_counts
    if turn.profile.min_similarity is not None:
        note_counts = replace(note_counts, min_similarity=turn.profile.min_similarity)
    if not note_counts.total:
        return None
    scope = NoteScope(turn.event.owner_id, turn.event.conversation_id, turn.profile.collections)
    retrieval = await turn.deps.retriever.retrieve(scope, question, earlier=earlier, note_counts=note_counts)
    audit = retrieval.audit
    log.info("chat.retrieval", ids=[hit["id"] for hit in audit], scores=[hit["score"] for hit in audit])
    return retrieval
