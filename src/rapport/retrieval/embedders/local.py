"""Embed in this process: the model is loaded on first use and runs in its own threads, so the event loop never waits."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from rapport.domain.errors import Busy, Permanent, RapportError, Transient
from rapport.domain.note import Vector

T = TypeVar("T")
R = TypeVar("R")


class LocalModel(Protocol):
    """Weights in memory. Called from two threads at a time."""

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector of length 1 for each text."""
        ...

    def embed_question(self, text: str) -> list[float]:
        """Return the vector of a question, of length 1."""
        ...


class LocalEmbedder:
    """A model in this process, with one thread for passages and one for questions, so that these never queue.

    The constructor loads nothing: the weights are read once, on first use or by `start_loading`.
    """

    def __init__(self, name: str, *, min_similarity: float, load: Callable[[], LocalModel], batch_size: int) -> None:
        self._name = name
        self._min_similarity = min_similarity
        self._load = load
        self._batch = batch_size
        self._model: LocalModel | None = None
        self._loading = threading.Lock()
        self._closed = False
        self._bulk = ThreadPoolExecutor(1, thread_name_prefix="embed-passages")
        self._quick = ThreadPoolExecutor(1, thread_name_prefix="embed-question")

    @property
    def name(self) -> str:
        """Return the name that identifies the vectors."""
        return self._name

    @property
    def min_similarity(self) -> float:
        """Return the similarity below which a passage is about something else."""
        return self._min_similarity

    @property
    def is_loaded(self) -> bool:
        """Return True if the weights are in memory."""
        return self._model is not None

    def start_loading(self) -> None:
        """Start reading the weights and return at once. If it fails, the first use raises the error."""
        if not self._closed and not self.is_loaded:
            self._quick.submit(self._get_model)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text. If the caller is cancelled, it stops after the current batch."""
        vectors: list[Vector] = [()] * len(texts)
        # Texts of similar length share a batch, which is padded to its longest. Bytes predict tokens better than characters.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number].encode(errors="replace")))
        for first in range(0, len(order), self._batch):
            numbers = order[first : first + self._batch]
            batch_vectors = await self._run_in(
                self._bulk, lambda batch: self._get_model().embed_passages(batch), [texts[n] for n in numbers]
            )
            for number, vector in zip(numbers, batch_vectors, strict=True):
                vectors[number] = vector
        return vectors

    async def embed_question(self, question: str) -> Vector:
        """Return the vector of a question."""
        return await self._run_in(self._quick, lambda text: self._get_model().embed_question(text), question)

    def close(self) -> None:
        """End the threads after the current batch. Waiting calls get an error, not a cancellation."""
        self._closed = True
        self._bulk.shutdown()
        self._quick.shutdown()

    async def _run_in(self, thread: ThreadPoolExecutor, work: Callable[[T], R], argument: T) -> R:
        if self._closed:
            raise self._make_closing_error()
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work, argument)
        except RapportError:
            raise
        except Exception as error:
            raise Transient(f"{self._name} could not embed: {get_first_line(error)}") from error

    def _get_model(self) -> LocalModel:
        if self._closed:
            raise self._make_closing_error()
        with self._loading:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _make_closing_error(self) -> Busy:
        return Busy(f"{self._name} is closing.")


def find_data_file(package: str, *parts: str) -> Path:
    """Return a file of an installed package without importing the package; raise Permanent if it is missing."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder, *parts)).is_file():
            return path
    raise Permanent(
        f"The package {package} is not installed or lacks {'/'.join(parts)}: install it again, or choose another embedder"
        " with RAPPORT_EMBEDDINGS."
    )


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
