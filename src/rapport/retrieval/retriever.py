"""Find what the notes say to a question: looked up anew in every turn (RAG-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rapport.domain.embedder import Embedder
from rapport.domain.note import NoteCounts, Passage, PassageSearchResult, Vector, describe_listing, describe_opening
from rapport.retrieval.overviews import Phrasings, asks_for_overview, find_note_name
from rapport.retrieval.relevance import TOP, Measure, Measured, relevance
from rapport.retrieval.standalone_question import keep_content_words, plain, standalone

TOP_WHEN_CLOSE = 5
LISTED = 30
LISTED_CHARACTERS = 240
"""The number of notes a model is told of when somebody asks which there are, and how much of each."""
NAMED_NOTES, OPENING = 2, 8
"""The number of notes that somebody names are given, and how many passages of them in all."""
CLOSE = 0.05
"""If the best few differ by less than this, more of them are given, because none stands out."""


class PassageSearch(Protocol):
    """The search of the storage room."""

    async def find_passages(
        self,
        owner_id: str,
        *,
        embedder: str,
        question: str,
        vector: Vector,
        chunks: int,
        limit: int,
        telling: str | None = None,
        without: str | None = None,
    ) -> PassageSearchResult: ...


class Contents(Protocol):
    """The notes as a whole. Both return how much there is, and the part of it that is given."""

    async def list_recent(self, owner_id: str, *, limit: int, characters: int) -> tuple[int, Sequence[Passage]]: ...

    async def find_by_name(
        self, owner_id: str, name: str, *, notes: int, passages: int
    ) -> tuple[int, Sequence[Passage]]: ...


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Hold what was found for one question."""

    passages: Sequence[Passage]
    best: float
    min_similarity: float
    relevance: float
    """The best similarity, corrected by the question's words and by what else is near."""
    about: str = ""
    """Says what the passages are, where they are not what a search found."""

    @property
    def is_relevant(self) -> bool:
        """Return whether anything found answers what was asked."""
        return bool(self.passages) and self.relevance >= self.min_similarity

    @property
    def refusal(self) -> str:
        """Return why nothing found is relevant, for the log."""
        return "low_similarity" if self.best < self.min_similarity else "nothing_stands_out"

    @property
    def audit(self) -> list[dict[str, Any]]:
        """Return what is kept beside what was cited of it."""
        return [
            {"id": passage.note_id, "position": passage.position, "score": round(passage.similarity, 4)}
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
        self, owner_id: str, question: str, *, earlier: Sequence[str], note_counts: NoteCounts
    ) -> Retrieval:
        """Return the passages for a question that follows these earlier ones. Raises Transient when it can't be done now.

        A question about the notes themselves gets the list of them, or the beginning of the one that it names.
        """
        asked = plain(question)
        if note_counts.chunks and await self.phrasings.ask_which(asked):
            return await self._list_notes(owner_id, note_counts)
        is_overview = bool(note_counts.chunks) and asks_for_overview(asked)
        if is_overview and (named := await self._open_named_note(owner_id, asked, note_counts)):
            return named
        found = await self.find(owner_id, standalone(question, earlier), note_counts=note_counts, limit=TOP_WHEN_CLOSE)
        retrieval = Retrieval(
            _as_many_as_needed(found.passages), found.best, self.threshold(note_counts), self.compute_relevance(found)
        )
        # Before a refusal it is looked more closely: "what does the handbook say?" has no word of its own but a note's name.
        if retrieval.is_relevant or is_overview or not found.passages:
            return retrieval
        return await self._open_named_note(owner_id, asked, note_counts) or retrieval

    async def _list_notes(self, owner_id: str, note_counts: NoteCounts) -> Retrieval:
        count, passages = await self.contents.list_recent(owner_id, limit=LISTED, characters=LISTED_CHARACTERS)
        return Retrieval(passages, 1.0, self.threshold(note_counts), 1.0, describe_listing(len(passages), count))

    async def _open_named_note(self, owner_id: str, question: str, note_counts: NoteCounts) -> Retrieval | None:
        """Return the beginning of the note that a question asks about as a whole; None if it asks for something else."""
        name = find_note_name(question)
        if not name or not await self.phrasings.ask_about_one(question):
            return None
        count, passages = await self.contents.find_by_name(owner_id, name, notes=NAMED_NOTES, passages=OPENING)
        if not passages:
            return None
        return Retrieval(passages, 1.0, self.threshold(note_counts), 1.0, describe_opening(len(passages), count))

    async def find(
        self, owner_id: str, question: str, *, note_counts: NoteCounts, limit: int, without: str | None = None
    ) -> PassageSearchResult:
        """Return the best `limit` passages for a question that stands alone, without the note of that id."""
        if not note_counts.chunks or not question:
            return PassageSearchResult(0.0)
        return await self.search.find_passages(
            owner_id,
            embedder=self.embedder.name,
            question=question,
            vector=await self.embedder.embed_question(question),
            chunks=note_counts.chunks,
            limit=limit,
            telling=keep_content_words(question),
            without=without,
        )

    def measure(self, owner_id: str, note_counts: NoteCounts) -> Measure:
        """Return a function that measures questions against the owner's notes, as turns do."""

        async def measure_question(question: str, without: str | None) -> Measured:
            found = await self.find(owner_id, question, note_counts=note_counts, limit=TOP, without=without)
            return Measured(found.best, self.compute_relevance(found))

        return measure_question

    def compute_relevance(self, found: PassageSearchResult) -> float:
        """Return what is compared with the threshold; `found` must have at least the best `TOP` passages there are."""
        return relevance(found, min_similarity=self.embedder.min_similarity)

    def threshold(self, note_counts: NoteCounts) -> float:
        """Return the relevance that is needed for an answer."""
        return self.embedder.min_similarity if note_counts.min_similarity is None else note_counts.min_similarity


def _as_many_as_needed(passages: Sequence[Passage]) -> Sequence[Passage]:
    top = [passage.similarity for passage in passages[:TOP]]
    is_close = len(top) == TOP and max(top) - min(top) < CLOSE
    return passages[: TOP_WHEN_CLOSE if is_close else TOP]


def make_retriever(embedder: Embedder, search: PassageSearch, contents: Contents) -> Retriever:
    """Return a retriever that compares questions about the notes themselves by the same embedder."""
    return Retriever(embedder, search, contents, Phrasings(embedder))
