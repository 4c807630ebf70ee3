"""Measure the quality and speed of note retrieval, and how well the guard refuses questions that the notes don't answer.

`python -m bench.retrieval` adds three sets of notes to an embedded Postgres with the product's own code and prints recall@3 and
the guard's precision and recall for their questions. Then it fills an index with synthetic passages and times searching and
adding. It exits with 0 when all targets are met. All traffic stays on this machine, and every process that it starts is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from bench.questions import COMPARISON, DEVELOPMENT, EVERYDAY, FRESH, NAMED, QuestionSet, load_questions
from rapport.cli.calibration_plot import draw_curve
from rapport.domain.embedder import Embedder
from rapport.domain.note import Chunk, NoteCounts
from rapport.domain.note_scope import NoteScope
from rapport.retrieval.calibration import MAX_PASSAGES, Calibration, calibrate
from rapport.retrieval.embedders.registry import close_embedder, make_embedder
from rapport.retrieval.library import Library
from rapport.retrieval.retriever import TOP, make_retriever
from rapport.storage.database import Database
from rapport.storage.migrate import migrate, schema_lock
from rapport.storage.notes.note_index import NoteIndex
from rapport.storage.notes.notes import NewNote, Notes
from rapport.storage.notes.passage_search import PassageSearch
from rapport.storage.notes.visible_notes import VisibleNotes
from rapport.storage.postgres.embedded import EmbeddedPostgres
from rapport.storage.vector_index import ensure_vector_index

SEARCHES = {"vector": (1.0, 0.0), "text": (0.0, 1.0), "fused": (None, None)}
MARKS = (100, 10_000, 100_000)
CHUNKS_A_NOTE = 10
SENTENCES_A_CHUNK = 3
ADDED_AT_A_MARK = 20
FIRST, TIMED = 200, 400
"""The first searches load the index into memory, on each connection, and are reported separately: only a server that has just
started has them."""
DIMENSIONS = 384
GUARD_GOAL, SEARCH_MS_GOAL, ADD_RATIO_GOAL = 0.9, 20.0, 1.25


@dataclass(frozen=True)
class Guard:
    """The guard's results with a threshold, on questions of which it is known whether the notes answer them."""

    threshold: float
    precision: float
    """The share of refused questions that had no answer."""
    recall: float
    """The share of questions without an answer that were refused."""
    answered: float
    """The share of questions with an answer that were not refused."""
    answers_right: float
    """The share of questions that were not refused and had an answer."""


@dataclass
class Figures:
    recall_at_3: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    guard: dict[str, dict[str, Guard]] = field(default_factory=dict[str, dict[str, Guard]])
    speed: dict[str, float] = field(default_factory=dict[str, float])


def guard_at(threshold: float, answerable: Sequence[float], unanswerable: Sequence[float]) -> Guard:
    wrongly = sum(similarity < threshold for similarity in answerable)
    rightly = sum(similarity < threshold for similarity in unanswerable)
    let_in, let_through = len(answerable) - wrongly, len(unanswerable) - rightly
    return Guard(
        threshold,
        precision=rightly / (rightly + wrongly) if rightly + wrongly else 1.0,
        recall=rightly / len(unanswerable),
        answered=let_in / len(answerable),
        answers_right=let_in / (let_in + let_through) if let_in + let_through else 1.0,
    )


def best_guard(answerable: Sequence[float], unanswerable: Sequence[float]) -> Guard:
    """Return the results of the best possible threshold, chosen with hindsight: it maximizes the worse of precision and recall."""
    return max(
        (guard_at(at, answerable, unanswerable) for at in sorted({*answerable, *unanswerable})),
        key=lambda guard: min(guard.precision, guard.recall),
    )


# ---- quality


async def quality(database: Database, embedder: Embedder, figures: Figures, curves: Path | None) -> None:
    similarities: dict[str, tuple[list[float], list[float]]] = {}
    for name in (DEVELOPMENT, COMPARISON, FRESH, NAMED):
        questions = load_questions(name)
        await read_in(database, embedder, name, questions)
        figures.recall_at_3[name] = await recalls(database, embedder, name, questions)
        measured = await measured_threshold(database, embedder, name)
        if curves is not None:
            draw_curve(measured, curves / f"{name}.png")
        print(f"\n{name}: {len(questions.notes)} notes, {measured.note}")
        answered, unanswered = await bests(database, embedder, name, questions)
        _, everyday = await bests(database, embedder, name, load_questions(EVERYDAY))
        for kind, unasked in ((name, unanswered), (f"{name}, {EVERYDAY}", everyday)):
            similarities[kind] = answered, unasked
            figures.guard[kind] = {
                "default": guard_at(embedder.min_similarity, *similarities[kind]),
                "calibrated": guard_at(measured.threshold, *similarities[kind]),
                "hindsight": best_guard(*similarities[kind]),
            }
        print_recalls(figures.recall_at_3[name])
    for name, rows in figures.guard.items():
        print_guard(name, rows)


async def read_in(database: Database, embedder: Embedder, owner: str, questions: QuestionSet) -> None:
    library = Library(database, embedder)
    for note in questions.notes:
        await library.add(owner, note.text, title=note.title, note_id=note.id)


async def recalls(database: Database, embedder: Embedder, owner: str, questions: QuestionSet) -> dict[str, float]:
    """Return, for each way of searching, the share of the answering notes among the first three passages."""
    async with database.statement() as connection:
        counts = await VisibleNotes(connection).get_counts(owner, embedder.name)
    found: dict[str, float] = {}
    for way, (near, words) in SEARCHES.items():
        search = PassageSearch(database) if near is None or words is None else PassageSearch(database, near, words)
        shares: list[float] = []
        for question in questions.answerable:
            passages = (
                await make_retriever(embedder, search, NoteIndex(database)).find(
                    NoteScope(owner), question.text, note_counts=counts, limit=TOP
                )
            ).passages
            shares.append(len(question.notes & {passage.note_id for passage in passages}) / len(question.notes))
        found[way] = statistics.mean(shares)
    return found


async def bests(
    database: Database, embedder: Embedder, owner: str, questions: QuestionSet
) -> tuple[list[float], list[float]]:
    """Return the guard's relevance for every question with an answer, and for every one without."""
    async with database.statement() as connection:
        counts = await VisibleNotes(connection).get_counts(owner, embedder.name)
    retriever = make_retriever(embedder, PassageSearch(database), NoteIndex(database))

    async def best(text: str) -> float:
        return (await retriever.retrieve(NoteScope(owner), text, earlier=(), note_counts=counts)).relevance

    answerable = [await best(question.text) for question in questions.answerable]
    return answerable, [await best(question.text) for question in questions.unanswerable]


async def measured_threshold(database: Database, embedder: Embedder, owner: str) -> Calibration:
    async with database.statement() as connection:
        passages = await VisibleNotes(connection).sample_vectors(NoteScope(owner), embedder.name, limit=MAX_PASSAGES)
        counts = await VisibleNotes(connection).get_counts(owner, embedder.name)
    return await calibrate(
        passages,
        embedder,
        make_retriever(embedder, PassageSearch(database), NoteIndex(database)).measure(NoteScope(owner), counts),
    )


def print_recalls(found: dict[str, float]) -> None:
    print("  recall@3: " + ", ".join(f"{way} {share:.3f}" for way, share in found.items()), flush=True)


def print_guard(name: str, rows: dict[str, Guard]) -> None:
    print(f"\nguard, {name:<20} threshold  precision  recall  answered  answers right")
    for label, guard in rows.items():
        print(
            f"  {label:<25}{guard.threshold:>9.3f}{guard.precision:>11.3f}{guard.recall:>8.3f}"
            f"{guard.answered:>10.3f}{guard.answers_right:>15.3f}",
            flush=True,
        )


# ---- speed


class Synthetic:
    """Make synthetic passages: word frequencies as in a language (Zipf), vectors in clusters. Every run makes the same ones."""

    def __init__(self, size: int) -> None:
        chance = np.random.default_rng(11)
        syllables = [first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "u", "ar", "en")]
        words = {"".join(chance.choice(syllables, int(chance.integers(2, 5)))) for _ in range(40_000)}
        self._words = np.array(sorted(words))
        chance.shuffle(self._words)
        shares = 1.0 / np.arange(1, len(self._words) + 1) ** 1.07
        self._shares = np.cumsum(shares / shares.sum())
        centres = chance.normal(size=(500, DIMENSIONS))
        sentences = size * SENTENCES_A_CHUNK
        near = centres[chance.integers(0, 500, sentences)] + 1.2 * chance.normal(size=(sentences, DIMENSIONS))
        self.vectors: NDArray[np.float32] = _unit(near).astype(np.float32)
        self._chance = chance

    def text(self, words: int = 70) -> str:
        picked = np.minimum(np.searchsorted(self._shares, self._chance.random(words)), len(self._words) - 1)
        return " ".join(self._words[picked])

    def note(self, owner: str, first: int, count: int) -> NewNote:
        """Return a note of the passages from `first` on."""
        texts = [self.text() for _ in range(count)]
        text = "\n\n".join(texts)
        chunks = [
            (Chunk("", part), self.vectors[SENTENCES_A_CHUNK * number : SENTENCES_A_CHUNK * (number + 1)].tolist())
            for number, part in enumerate(texts, first)
        ]
        hash_ = hashlib.sha256(text.encode()).digest()
        return NewNote(owner, f"n{first}", f"Note {first}", text, hash_, None, "synthetic", chunks)

    def question(self) -> tuple[str, NDArray[np.float32]]:
        """Return a few words, and a vector near that of a passage."""
        base = self.vectors[int(self._chance.integers(0, len(self.vectors)))]
        vector = _unit((base + 0.04 * self._chance.normal(size=DIMENSIONS))[None])[0]
        return self.text(8), vector.astype(np.float32)


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def speed(database: Database, embedder: Embedder, size: int, figures: Figures) -> None:
    marks = [mark for mark in MARKS if mark < size] + [size]
    synthetic = Synthetic(size + len(marks) * ADDED_AT_A_MARK * CHUNKS_A_NOTE)
    filled = 0
    begun = time.perf_counter()
    for mark in marks:
        async with vectors_indexed_afterwards(database, mark - filled):
            while filled < mark:
                count = min(CHUNKS_A_NOTE, mark - filled)
                await put(database, synthetic.note("many", filled, count))
                filled += count
        await tidy(database)
        filled += await add_at(database, embedder, synthetic, filled, mark, figures)
        took, load = time.perf_counter() - begun, os.getloadavg()[0]
        print(f"  {mark:,} passages after {took:,.0f} s; load {load:.1f} on {os.cpu_count()} cores", flush=True)
    await search_speed(database, synthetic, filled, figures)


async def put(database: Database, note: NewNote) -> None:
    async with database.transaction() as connection:
        await Notes(connection).put(note, replace=False)


@contextlib.asynccontextmanager
async def vectors_indexed_afterwards(database: Database, count: int) -> AsyncGenerator[None]:
    """For many passages, create the vector index after they are inserted: with the index, inserting takes a quarter of an hour."""
    if count < 20_000:
        yield
        return
    async with database.statement() as connection:
        await connection.execute(f"DROP INDEX sentence_vectors_near_{DIMENSIONS}".encode())
    yield
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute("SET LOCAL maintenance_work_mem = '1GB'")
        await ensure_vector_index(connection, "sentence_vectors", DIMENSIONS)


async def tidy(database: Database) -> None:
    """Vacuum and analyse now, as autovacuum would a minute later: the statistics hold how frequent words are."""
    async with database.statement() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("VACUUM ANALYZE chunks, sentence_vectors")
        await connection.execute("CHECKPOINT")  # writes to disk now instead of while searches are timed
        await connection.execute("RESET statement_timeout")


async def add_at(
    database: Database, embedder: Embedder, synthetic: Synthetic, filled: int, mark: int, figures: Figures
) -> int:
    """Time storing a note of ten embedded passages, and adding a note from its text."""
    library = Library(database, embedder)
    stored: list[float] = []
    whole: list[float] = []
    alone: list[float] = []
    for number in range(ADDED_AT_A_MARK):
        note = synthetic.note("many", filled + number * CHUNKS_A_NOTE, CHUNKS_A_NOTE)
        stored.append(await timed(lambda note=note: put(database, note)))
        text = "\n\n".join(synthetic.text() for _ in range(3))
        whole.append(await timed(lambda text=text: library.add("writer", text, title="Added")))
        texts = [synthetic.text() for _ in range(3)]
        alone.append(await timed(lambda texts=texts: embedder.embed(texts)))
    figures.speed[f"embed_ms_at_{mark}"] = statistics.median(alone)
    figures.speed[f"store_ms_at_{mark}"] = statistics.median(stored)
    figures.speed[f"add_ms_at_{mark}"] = statistics.median(whole)
    return ADDED_AT_A_MARK * CHUNKS_A_NOTE


async def search_speed(database: Database, synthetic: Synthetic, filled: int, figures: Figures) -> None:
    search = PassageSearch(database)
    times: list[float] = []
    seen: list[tuple[NDArray[np.float32], float]] = []
    for _ in range(FIRST + TIMED):
        text, vector = synthetic.question()
        as_list: list[float] = vector.tolist()
        begun = time.perf_counter()
        found = await search.find_passages(
            NoteScope("many"),
            embedder="synthetic",
            question=text,
            vector=as_list,
            counts=NoteCounts(filled, None),
            limit=5,
        )
        times.append((time.perf_counter() - begun) * 1e3)
        seen.append((vector, found.best))
    # Exact comparison after the timing: it would evict the caches of the timed searches.
    exact = (float((synthetic.vectors[: filled * SENTENCES_A_CHUNK] @ vector).max()) for vector, _ in seen)
    nearest_found = sum(best >= nearest - 0.002 for (_, best), nearest in zip(seen, exact, strict=True))
    for name, part in (("first_search", times[:FIRST]), ("search", times[FIRST:])):
        figures.speed[f"{name}_ms_p50"] = percentile(part, 50)
        figures.speed[f"{name}_ms_p95"] = percentile(part, 95)
    figures.speed["nearest_found"] = nearest_found / len(seen)


async def timed(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    await action()
    return (time.perf_counter() - begun) * 1e3


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(np.array(values), share))


def print_speed(figures: Figures, size: int) -> None:
    of = figures.speed
    print()
    for name, label in (("first_search", f"the first {FIRST} searches"), ("search", f"the {TIMED} after them")):
        shown = f"p50 {of[f'{name}_ms_p50']:.1f} ms, p95 {of[f'{name}_ms_p95']:.1f} ms"
        print(f"{label} among {size:,} passages: {shown}")
    print(f"the nearest one was found in {of['nearest_found']:.1%}")
    marks = sorted(int(name.rpartition("_")[2]) for name in of if name.startswith("add_ms_at_"))
    for what, label in (
        ("store", "storing 10 embedded passages"),
        ("embed", "embedding 3 alone, which does not depend on how many there are"),
        ("add", "adding a note of about 3, with embedding"),
    ):
        first = of[f"{what}_ms_at_{marks[0]}"]
        cells = ", ".join(
            f"at {mark:,} {of[f'{what}_ms_at_{mark}']:.1f} ms (x{of[f'{what}_ms_at_{mark}'] / first:.2f})"
            for mark in marks
        )
        print(f"{label}: {cells}")


# ---- the command


def goals(figures: Figures) -> list[tuple[str, bool, str]]:
    """Return each measured target, whether it is met, and the measured value."""
    found: list[tuple[str, bool, str]] = []
    for name, recall in figures.recall_at_3.items():
        better = max(recall["vector"], recall["text"])
        met = recall["fused"] >= better
        found.append(
            (f"{name}: fused recall@3 at least the better of both", met, f"{recall['fused']:.3f} to {better:.3f}")
        )
    for name, rows in figures.guard.items():
        if EVERYDAY not in name:
            continue  # only reported: their subjects are too similar to separate all of them
        guard = rows["calibrated"]
        met = min(guard.precision, guard.recall) >= GUARD_GOAL
        shown = f"{guard.precision:.3f} and {guard.recall:.3f}"
        found.append((f"{name}: guard precision and recall at least {GUARD_GOAL}", met, shown))
    if p95 := figures.speed.get("search_ms_p95"):
        found.append((f"search p95 at most {SEARCH_MS_GOAL:g} ms", p95 <= SEARCH_MS_GOAL, f"{p95:.1f} ms"))
    added = [took for name, took in figures.speed.items() if name.startswith("add_ms_at_")]
    if len(added) > 1:
        ratio = added[-1] / added[0]
        found.append((f"adding to many, to few, at most x{ADD_RATIO_GOAL}", ratio <= ADD_RATIO_GOAL, f"x{ratio:.2f}"))
    return found


@contextlib.asynccontextmanager
async def empty_database(folder: Path) -> AsyncGenerator[Database]:
    server = await asyncio.to_thread(EmbeddedPostgres.start, folder)
    database = Database(server.url, max_size=4)
    try:
        await database.open()
        async with schema_lock(database):
            await migrate(database)
        yield database
    finally:
        await database.close()
        await asyncio.to_thread(server.stop)


async def run(folder: Path, size: int, curves: Path | None, figures: Figures) -> None:
    embedder = make_embedder("bundled", environment={})
    try:
        async with empty_database(folder) as database:
            await quality(database, embedder, figures, curves)
            if size:
                await speed(database, embedder, size, figures)
                print_speed(figures, size)
    finally:
        await close_embedder(embedder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.retrieval", description=__doc__)
    parser.add_argument("--sizes", type=int, default=MARKS[-1], help="passages in the speed part; 0 leaves it out")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--curves", type=Path, help="also draw the calibrations into this folder")
    given = parser.parse_args(arguments)
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="rapport-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run under another account
        asyncio.run(run(Path(folder) / "data", given.sizes, given.curves, figures))
    reached = goals(figures)
    print("\ntargets")
    for label, met, shown in reached:
        print(f"  {'pass' if met else 'FAIL':<6}{label:<62}{shown}")
    if given.json:
        given.json.write_bytes(orjson.dumps(asdict(figures), option=orjson.OPT_INDENT_2))
    return 0 if all(met for _, met, _ in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
