"""Recognise questions about the notes themselves: which notes there are, and what one of them is about.

No passage answers these, so the similarity to passages does not help. They are recognised by their similarity to a few
phrasings, and because they have no words other than those of the phrasings, except for the name of a note.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rapport.domain.embedder import Embedder
from rapport.domain.note import Vector
from rapport.retrieval.standalone_question import keep_content_words, plain

LISTING = (
    "What documents do you have?",
    "Which documents are available to you?",
    "Do you have any documents?",
    "Which notes are there?",
    "How many notes do you have?",
    "List all my notes.",
    "What files do you know?",
    "Which files have been added or uploaded?",
    "What sources can you use?",
    "Show me the list of documents.",
    "Name all the documents that you have access to.",
    "What are the titles of the documents?",
    "Which topics do the documents cover?",
    "What are my notes about?",
    "Summarise all the notes.",
    "Give me a summary of my documents.",
    "Welche Dokumente hast du?",
    "Welche Notizen gibt es?",
    "Quels documents as-tu ?",
    "Quelles notes y a-t-il ?",
    "¿Qué documentos tienes?",
    "¿Qué notas hay?",
)
"""Ways to ask which notes there are."""

ABOUT_ONE = (
    "Summarise the document.",
    "Summarize the document.",
    "Sum up the document.",
    "Give me a summary of the document.",
    "Give me an overview of the document.",
    "What is the document about?",
    "What does the document say?",
    "What is in the document?",
    "Tell me about the document.",
    "What are the main points of the document?",
    "What are the contents of the document?",
    "Describe the document.",
    "Outline the document.",
    "Show me the document.",
    "Fasse das Dokument zusammen.",
    "Résume le document.",
    "Resume el documento.",
)
"""Ways to ask what a note is about, with "document" in place of its name."""

_ALIKE = 0.5
"""The required similarity to a phrasing, as a fraction of the range between the embedder's threshold and 1."""
_NAMED = "document"
_KINDS = frozenset(["document", "note", "file", "page", "text", "source"])
"""Words for a note."""
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_MOST_CHARACTERS = 200
"""A message with more words is not only a request for an overview."""


def asks_which(question: str) -> bool:
    """Return True if a question has only words that ask which notes there are."""
    words = _find_content_words(question)
    return len(question) <= _MOST_CHARACTERS and bool(words) and words <= _LISTING_WORDS


def find_note_name(question: str) -> str:
    """Return the words of a question that could name a note; "" if it has none, or too many words."""
    if len(question) > _MOST_CHARACTERS:
        return ""
    return " ".join(word for word in _WORD.findall(keep_content_words(question)) if _stem(word) not in _ABOUT_WORDS)


def asks_for_overview(question: str) -> bool:
    """Return True if a question has a name and a word that asks for an overview."""
    return bool(_find_content_words(question) & _ABOUT_WORDS - _KINDS) and bool(find_note_name(question))


def hide_name(question: str) -> str:
    """Return the question with "document" in place of the words that could name a note."""
    name_words = {word.casefold() for word in find_note_name(question).split()}
    words = [
        _NAMED if word.casefold() in name_words or _stem(word) in _KINDS else word for word in _WORD.findall(question)
    ]
    return " ".join(
        word for number, word in enumerate(words) if word != _NAMED or words[number - 1 : number] != [_NAMED]
    )


def _stem(word: str) -> str:
    return word.casefold().removesuffix("s")


def _find_content_words(text: str) -> frozenset[str]:
    return frozenset(map(_stem, _WORD.findall(keep_content_words(plain(text)))))


def _words_of(phrasings: Iterable[str]) -> frozenset[str]:
    return frozenset(word for phrasing in phrasings for word in _find_content_words(phrasing))


_LISTING_WORDS = _words_of(LISTING) | _KINDS
_ABOUT_WORDS = _words_of(ABOUT_ONE) | _KINDS


@dataclass(slots=True)
class Phrasings:
    """Compares questions with the phrasings, whose vectors are computed once, when a question first has matching words."""

    embedder: Embedder
    _vectors: dict[Sequence[str], Sequence[Vector]] = field(default_factory=dict[Sequence[str], Sequence[Vector]])

    async def ask_which(self, question: str) -> bool:
        """Return True if the question asks which notes there are."""
        return asks_which(question) and await self._is_like(question, LISTING)

    async def ask_about_one(self, question: str) -> bool:
        """Return True if the question asks what the note is about that `named_in` may name."""
        return await self._is_like(hide_name(question), ABOUT_ONE)

    async def _is_like(self, text: str, phrasings: Sequence[str]) -> bool:
        if phrasings not in self._vectors:
            embed = self.embedder.embed_question
            self._vectors[phrasings] = await asyncio.gather(*(embed(phrasing) for phrasing in phrasings))
        vector = await self.embedder.embed_question(text)
        similarity = max(
            sum(a * b for a, b in zip(vector, phrasing_vector, strict=True))
            for phrasing_vector in self._vectors[phrasings]
        )
        least = self.embedder.min_similarity
        return similarity >= least + _ALIKE * (1 - least)
