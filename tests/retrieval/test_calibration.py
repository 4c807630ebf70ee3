"""Test calibration of the guard's threshold: repeatable, safe with few notes, and right for real questions."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from bench.questions import QuestionSet, load_questions
from hypothesis import given, settings
from hypothesis import strategies as st

from rapport.cli.calibration_plot import draw_curve
from rapport.domain.embedder import Embedder
from rapport.domain.errors import Transient
from rapport.domain.note import Chunk, Vector
from rapport.retrieval import calibration as measuring
from rapport.retrieval.calibration import Calibration, Sampled, calibrate
from rapport.retrieval.chunking import make_embedding_text, split_chunks, split_sentences
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.retrieval.relevance import Measure, Measured

SUBJECTS = {
    "boiler": "The boiler pressure drops in winter. Radiators upstairs want bleeding with the brass key.",
    "bees": "Varroa mites are treated with formic acid. Honey is harvested in June and the hive gets syrup.",
    "choir": "Rehearsals happen on Mondays in the parish hall. Sopranos arrive early and wear rust scarves.",
    "bread": "Rye starter is fed weekly. The loaf bakes in an iron pot and the crust cracks when it cools.",
    "bus": "Buses leave the station every twenty minutes. Bicycles travel after nine if passengers leave space.",
    "pool": "The season begins in May. Early swimmers enter the basin before seven and the slide opens at noon.",
    "roses": "Prune roses when forsythia blooms. Climbers keep their long shoots and blackspot leaves are burnt.",
    "car": "Winter tyres are stored at the garage. The diesel takes thin oil and the hook screws in behind.",
}


@dataclass
class WordsAsVectors:
    """An embedder that uses words only: the similarity of texts is their share of common words."""

    name: str = "words"
    min_similarity: float = 0.3
    questions: list[str] = field(default_factory=list[str])

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [_of_words(text) for text in texts]

    async def embed_question(self, question: str) -> Vector:
        self.questions.append(question)
        return _of_words(question)


def _of_words(text: str) -> Vector:
    total = np.zeros(256)
    for word in (word for word in text.lower().replace("?", " ").replace(".", " ").split() if len(word) > 3):
        total += np.random.default_rng(zlib.crc32(word.encode())).normal(size=256)
    return [float(value) for value in total / (np.linalg.norm(total) or 1)]


def measure_by(passages: Sequence[Sampled], embedder: Embedder) -> Measure:
    """Measures by the similarity alone."""

    async def measure(question: str, without: str | None) -> Measured:
        vector = np.array(await embedder.embed_question(question))
        best = max((float(np.dot(vector, one)) for id_, *_, one in passages if id_ != without), default=0.0)
        return Measured(best, best)

    return measure


async def calibrated(
    passages: Sequence[Sampled], embedder: Embedder, *, ask: Callable[[str], Awaitable[str]] | None = None
) -> Calibration:
    return await calibrate(passages, embedder, measure_by(passages, embedder), ask=ask)


def passages_of(texts: dict[str, str]) -> list[Sampled]:
    return [(note_id, note_id, Chunk("", text), _of_words(f"{note_id} {text}")) for note_id, text in texts.items()]


async def test_a_threshold_lies_between_questions_with_and_without_an_answer() -> None:
    measured = await calibrated(passages_of(SUBJECTS), WordsAsVectors())
    assert measured.confident
    assert np.median(measured.negatives) < measured.threshold < np.median(measured.positives)
    at = min(measured.curve, key=lambda point: abs(point.threshold - measured.threshold))
    assert at.balanced_accuracy > 0.9
    assert at.precision > 0.9
    assert at.recall > 0.9


async def test_measuring_again_gives_the_same_whatever_order_the_passages_come_in() -> None:
    passages = passages_of(SUBJECTS)
    first = await calibrated(passages, WordsAsVectors())
    assert await calibrated(passages, WordsAsVectors()) == first
    random.Random(3).shuffle(passages)
    assert await calibrated(passages, WordsAsVectors()) == first


async def test_with_hardly_any_notes_the_threshold_stays() -> None:
    few = passages_of(dict(list(SUBJECTS.items())[:4]))
    measured = await calibrated(few, WordsAsVectors(min_similarity=0.42))
    assert (measured.threshold, measured.confident, measured.curve) == (0.42, False, ())
    assert "too few notes" in measured.note


async def test_notes_that_can_not_be_told_apart_keep_the_threshold() -> None:
    """Eight times the same note: a question finds its answer even when its own note is left out."""
    same = {f"copy-{number}": SUBJECTS["bees"] for number in range(8)}
    measured = await calibrated(passages_of(same), WordsAsVectors(min_similarity=0.42))
    assert "put aside" in measured.note
    assert measured.threshold == 0.42 or measured.confident


async def test_notes_without_words_keep_the_threshold() -> None:
    numbers = {f"list-{number}": f"{number} 12 44 9.5" for number in range(8)}
    measured = await calibrated(
        [("n" + name, "7", chunk, vector) for name, _, chunk, vector in passages_of(numbers)], WordsAsVectors()
    )
    assert (measured.threshold, measured.confident) == (0.3, False)
    assert "hardly any words" in measured.note


async def test_no_question_is_a_sentence_of_the_notes() -> None:
    embedder = WordsAsVectors()
    await calibrated(passages_of(SUBJECTS), embedder)
    sentences = [part.strip().lower() for text in SUBJECTS.values() for part in text.split(".") if part.strip()]
    assert len(embedder.questions) > len(measuring.GENERAL_QUESTIONS)
    assert not [asked for asked in embedder.questions if any(sentence in asked.lower() for sentence in sentences)]


def say(reply: str) -> Callable[[str], Awaitable[str]]:
    async def ask(prompt: str) -> str:
        assert "<passage>" in prompt
        return reply

    return ask


async def test_a_chat_model_writes_the_questions_when_there_is_one() -> None:
    embedder = WordsAsVectors()
    texts = {f"{name}-{number}": f"{text} Part {number}." for name, text in SUBJECTS.items() for number in range(3)}
    await calibrated(passages_of(texts), embedder, ask=say('Sure!\n"How do I get rid of the mites?"'))
    asked = embedder.questions[: -len(measuring.GENERAL_QUESTIONS)]
    assert set(asked) == {"How do I get rid of the mites?"}
    assert len(asked) == 2 * len(texts), "each is measured with its own note, and without it"


async def test_a_chat_model_that_fails_is_asked_a_few_times_and_done_without() -> None:
    asked = 0

    async def ask(_: str) -> str:
        nonlocal asked
        asked += 1
        raise Transient("overloaded")

    by_rules = await calibrated(passages_of(SUBJECTS), WordsAsVectors())
    assert await calibrated(passages_of(SUBJECTS), WordsAsVectors(), ask=ask) == by_rules
    assert asked == measuring.MAX_FAILURES_IN_A_ROW


async def test_stopping_while_the_chat_model_thinks_stops() -> None:
    async def ask(_: str) -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await calibrated(passages_of(SUBJECTS), WordsAsVectors(), ask=ask)


async def test_of_few_questions_little_is_believed() -> None:
    """The same notes with another default: the more questions there were, the less it matters."""

    async def shift(texts: dict[str, str]) -> float:
        low = await calibrated(passages_of(texts), WordsAsVectors(min_similarity=0.1))
        high = await calibrated(passages_of(texts), WordsAsVectors(min_similarity=0.5))
        assert low.confident
        assert high.confident
        return high.threshold - low.threshold

    many = {f"{name}-{number}": f"{text} {name}{number}." for name, text in SUBJECTS.items() for number in range(20)}
    assert 0 < await shift(many) < await shift(SUBJECTS) < 0.4


similarities = st.lists(st.builds(Measured, st.floats(-1, 1), st.floats(-1, 1)), max_size=60)


@given(similarities, similarities, st.floats(0, 1))
@settings(max_examples=200)
def test_whatever_is_measured_the_threshold_is_sane(
    positives: list[Measured], negatives: list[Measured], default: float
) -> None:
    measured = measuring.judge(WordsAsVectors(min_similarity=default), positives, negatives)
    assert measured.threshold == default or measuring.LEAST <= measured.threshold <= measuring.MOST
    thresholds = [point.threshold for point in measured.curve]
    assert thresholds == sorted(thresholds)
    recalls = [point.recall for point in measured.curve]
    assert recalls == sorted(recalls)
    assert all(0 <= point.precision <= 1 and 0 <= point.f1 <= 1 for point in measured.curve)


async def test_the_curve_is_of_the_whole_decision_and_the_threshold_of_the_similarity() -> None:
    embedder = WordsAsVectors(min_similarity=0.4)
    near = [Measured(0.5 + number / 100, 0.6 + number / 100) for number in range(20)]
    far = [Measured(0.1 + number / 100, 0.1 + number / 100) for number in range(20)]
    measured = measuring.judge(embedder, near, far)
    alone = [Measured(one.similarity, one.similarity) for one in near]
    assert measured.threshold == measuring.judge(embedder, alone, far).threshold
    assert measured.positives == tuple(one.relevance for one in near)
    assert measured.curve[-1].threshold >= 0.79


async def test_the_curve_is_drawn(tmp_path: Path) -> None:
    draw_curve(await calibrated(passages_of(SUBJECTS), WordsAsVectors()), tmp_path / "curve.png")
    draw_curve(await calibrated([], WordsAsVectors()), tmp_path / "nothing.png")
    for name in ("curve.png", "nothing.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["household", "company"])
async def test_measured_on_real_notes_the_guard_tells_real_questions_apart(name: str) -> None:
    """Questions that people wrote, at the threshold that rules found without ever seeing one of them."""
    embedder = make_embedder("bundled", environment={})
    try:
        questions = load_questions(name)
        passages = await _embedded(embedder, questions)
        measured = await calibrated(passages, embedder)
        assert measured.confident, measured.note
        vectors = np.array([vector for *_, vector in passages])
        answered = [await _best(embedder, vectors, one.text) for one in questions.answerable[:60]]
        unanswered = [await _best(embedder, vectors, one.text) for one in questions.unanswerable[:60]]
    finally:
        await close_embedder(embedder)
    kept = np.mean(np.array(answered) >= measured.threshold)
    refused = np.mean(np.array(unanswered) < measured.threshold)
    assert (kept + refused) / 2 >= 0.75
    assert _regret(measured, answered, unanswered) <= 0.06


async def _embedded(embedder: Embedder, questions: QuestionSet) -> list[Sampled]:
    cut = [
        (note, chunk, point)
        for note in questions.notes
        for chunk in split_chunks(note.text, title=note.title)
        for point in split_sentences(chunk)
    ]
    vectors = await embedder.embed([make_embedding_text(note.title, chunk, point) for note, chunk, point in cut])
    return [(note.id, note.title, chunk, vector) for (note, chunk, _), vector in zip(cut, vectors, strict=True)]


async def _best(embedder: Embedder, vectors: np.ndarray[tuple[int, int], np.dtype[np.float64]], question: str) -> float:
    return float((vectors @ np.array(await embedder.embed_question(question))).max())


def _regret(measured: Calibration, answered: list[float], unanswered: list[float]) -> float:
    """Return how much balanced accuracy the best threshold of all, chosen with hindsight, would have had more."""

    def accuracy(threshold: float) -> float:
        return float(np.mean(np.array(answered) >= threshold) + np.mean(np.array(unanswered) < threshold)) / 2

    return max(accuracy(at) for at in (*answered, *unanswered)) - accuracy(measured.threshold)
