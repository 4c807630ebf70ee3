"""Load the notes and questions on which retrieval and its guard are measured. They were written for this project.

Each set is a file of JSON lines: a paragraph on how it was made, the notes, and the questions with the ids of the notes
that answer them. No note answers a question without ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

DEVELOPMENT, COMPARISON, FRESH = "household", "company", "harbour"
"""For tuning; for comparing alternatives; and one that was little used for either."""
NAMED = "handbook"
"""Half of its questions name what they ask for. It is for choosing the weight of words relative to vectors."""
EVERYDAY = "everyday"
"""General knowledge questions, without notes."""


@dataclass(frozen=True)
class WrittenNote:
    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Question:
    text: str
    notes: frozenset[str]


@dataclass(frozen=True)
class QuestionSet:
    about: str
    notes: Sequence[WrittenNote]
    answerable: Sequence[Question]
    unanswerable: Sequence[Question]


def load_questions(name: str) -> QuestionSet:
    """Return the set of this name."""
    rows = [orjson.loads(line) for line in (Path(__file__).parent / f"{name}.jsonl").read_bytes().splitlines()]
    notes = [WrittenNote(row["id"], row["title"], row["text"]) for row in rows if row["kind"] == "note"]
    questions = [Question(row["text"], frozenset(row["notes"])) for row in rows if row["kind"] == "question"]
    return QuestionSet(
        about=next(row["text"] for row in rows if row["kind"] == "about"),
        notes=notes,
        answerable=[question for question in questions if question.notes],
        unanswerable=[question for question in questions if not question.notes],
    )
