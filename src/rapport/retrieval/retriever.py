"""Find passages of notes for a question, in every turn (RAG-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rapport.domain.embedder import Embedder
from rapport.domain.note import NoteCounts, Passage, PassageSearchResult, Vector, describe_listing, describe_opening
from rapport.domain.note_scope import NoteScope
from rapport.retrieval.overviews import Phrasings, asks_for_overview, find_note_name
from rapport.retrieval.relevance import TOP, Measure, Measured, compute_relevance
from rapport.retrieval.standalone_question import keep_content_words, make_standalone, plain

MAX_CLOSE_PASSAGES = 5
MAX_LISTED_NOTES = 30
MAX_LISTED_CHARACTERS = 240
"""The number of notes that the model gets when a person asks which there are, and how much of each."""
NAMED_NOTES, OPENING = 2, 8
"""The number of named notes that the model gets, and the number of their passages in total."""
CLOSE = 0.05
"""If the best passages differ by less than this, the model gets more of them."""


class PassageSearch(Protocol):
    """The passage search of the storage."""

    async def find_passages(
        self,
        scope: NoteScope,
        *,
        embedder: str,
        question: str,
        vector: Vector,
        counts: NoteCounts,
        limit: int,
        telling: str | None = None,
        without: str | None = None,
    ) -> PassageSearchResult: ...


class Contents(Protocol):
    """The list of notes. The first two methods return a total number and a part of the entries."""

    async def list_recent(self, scope: NoteScope, *, limit: int, characters: int) -> tuple[int, Sequence[Passage]]: ...

    async def find_by_name(
        self, scope: NoteScope, name: str, *, notes: int, passages: int
    ) -> tuple[int, Sequence[Passage]]: ...

    async def count_passages(self, scope: NoteScope, embedder: str) -> int: ...


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The passages for one question."""

    passages: Sequence[Passage]
    best: float
    min_similarity: float
    relevance: float
    """The best similarity, corrected by the question's words and by other near notes."""
    about: str = ""
    """A sentence that describes passages which were not found by a search."""

    @property
    def is_relevant(self) -> bool:
        """Return True if a passage answers the question."""
        return bool(self.passages) and self.relevance >= self.min_similarity

    @property
    def refusal(self) -> str:
        """Return why no passage is relevant, for the log."""
        return "low_similarity" if self.best < self.min_similarity else "nothing_stands_out"

    @property
    def audit(self) -> list[dict[str, Any]]:
        """Return ids and scores of all passages, which are stored beside the citations."""
        return [
            {"id": passage.note_id, "position": passage.position, "score": round(passage.similarity, 4)}
            | ({} if passage.shared_by is None else {"shared_by": passage.shared_by})
            for passage in self.passages
        ]


@dataclass(frozen=True, slots=True)
class Retriever:
    """Finds passages for questions."""

    embedder: Embedder
    search: PassageSearch
    contents: Contents
    phrasings: Phrasings

    async def retrieve(
        self, scope: NoteScope, question: str, *, earlier: Sequence[str], note_counts: NoteCounts
    ) -> Retrieval:
        """Return the passages for a question that follows these earlier ones. Raise Transient if the search fails now.

        `note_counts` are those of the scope without its collections: how many passages these have is counted here. A question about the notes themselves gets the list of them, or the beginning of the one that it names.
        """
        if scope.collections and note_counts.total:
            in_collections = await self.contents.count_passages(scope, self.embedder.name)
            note_counts = NoteCounts(in_collections, note_counts.min_similarity)
        plain_question = plain(question)
        if note_counts.total and await self.phrasings.ask_which(plain_question):
            return await self._list_notes(scope, note_counts)
        is_overview = bool(note_counts.total) and asks_for_overview(plain_question)
        if is_overview and (named_note := await self._open_named_note(scope, plain_question, note_counts)):
            return named_note
        found = await self.find(
            scope, make_standalone(question, earlier), note_counts=note_counts, limit=MAX_CLOSE_PASSAGES
        )
        retrieval = Retrieval(
            _as_many_as_needed(found.passages), found.best, self.threshold(note_counts), self.compute_relevance(found)
        )
        # Before a refusal, check for the name of a note: "what does the handbook say?" has no other word.
        if retrieval.is_relevant or is_overview or not found.passages:
            return retrieval
        return await self._open_named_note(scope, plain_question, note_counts) or retrieval

    async def _list_notes(self, scope: NoteScope, note_counts: NoteCounts) -> Retrieval:
        count, passages = await self.contents.list_recent(
            scope, limit=MAX_LISTED_NOTES, characters=MAX_LISTED_CHARACTERS
        )
        return Retrieval(passages, 1.0, self.threshold(note_counts), 1.0, describe_listing(len(passages), count))

    async def _open_named_note(self, scope: NoteScope, question: str, note_counts: NoteCounts) -> Retrieval | None:
        """Return the beginning of the note that a question asks about as a whole; None if it asks for something else."""
        name = find_note_name(question)
        if not name or not await self.phrasings.ask_about_one(question):
            return None
        count, passages = await self.contents.find_by_name(scope, name, notes=NAMED_NOTES, passages=OPENING)
        if not passages:
            return None
        return Retrieval(passages, 1.0, self.threshold(note_counts), 1.0, describe_opening(len(passages), count))

    async def find(
        self, scope: NoteScope, question: str, *, note_counts: NoteCounts, limit: int, without: str | None = None
    ) -> PassageSearchResult:
        """Return the best `limit` passages for a standalone question, without the note with the id `without`."""
        if not note_counts.total or not question:
            return PassageSearchResult(0.0)
        return await self.search.find_passages(
            scope,
            embedder=self.embedder.name,
            question=question,
            vector=await self.embedder.embed_question(question),
            counts=note_counts,
            limit=limit,
            telling=keep_content_words(question),
            without=without,
        )

    def measure(self, scope: NoteScope, note_counts: NoteCounts) -> Measure:
        """Return a function that measures questions against the notes of a scope, as turns do."""

        async def measure_question(question: str, without: str | None) -> Measured:
            retrieval = await self.find(scope, question, note_counts=note_counts, limit=TOP, without=without)
            return Measured(retrieval.best, self.compute_relevance(retrieval))

        return measure_question

    def compute_relevance(self, found: PassageSearchResult) -> float:
        """Return the value to compare with the threshold; `found` must have at least the best `TOP` passages."""
        return compute_relevance(found, min_similarity=self.embedder.min_similarity)

    def threshold(self, note_counts: NoteCounts) -> float:
        """Return the required relevance for an answer."""
        return self.embedder.min_similarity if note_counts.min_similarity is None else note_counts.min_similarity


def _as_many_as_needed(passages: Sequence[Passage]) -> Sequence[Passage]:
    top = [passage.similarity for passage in passages[:TOP]]
    is_close = len(top) == TOP and max(top) - min(top) < CLOSE
    return passages[: MAX_CLOSE_PASSAGES if is_close else TOP]


def make_retriever(embedder: Embedder, search: PassageSearch, contents: Contents) -> Retriever:
    """Return a retriever that compares questions about the notes themselves by the same embedder."""
    return Retriever(embedder, search, contents, Phrasings(embedder))
