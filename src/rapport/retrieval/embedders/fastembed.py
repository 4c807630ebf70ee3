"""Models of the package `fastembed`, if it is installed. It downloads a model when it is first used."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from typing import Any

from rapport.domain.errors import Permanent
from rapport.retrieval.embedders.local import LocalEmbedder
from rapport.retrieval.embedders.vector_checks import check_vectors

MIN_SIMILARITY = 0.30
BATCH_SIZE = 8


class FastEmbed(LocalEmbedder):
    """A model by its name in fastembed's list. Its threshold is a guess until `rapport calibrate` has been run."""

    def __init__(self, model: str) -> None:
        if importlib.util.find_spec("fastembed") is None:
            raise Permanent(f"fastembed:{model} needs the package fastembed: `pip install fastembed`.")
        name = f"fastembed:{model}"
        super().__init__(name, min_similarity=MIN_SIMILARITY, load=lambda: _Model(name, model), batch_size=BATCH_SIZE)


class _Model:
    def __init__(self, name: str, model: str) -> None:
        library: Any = importlib.import_module("fastembed")
        self._name = name
        self._model = library.TextEmbedding(model_name=model, threads=1)

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return self._check(self._model.passage_embed(list(texts), batch_size=BATCH_SIZE), len(texts))

    def embed_question(self, text: str) -> list[float]:
        return self._check(self._model.query_embed(text), 1)[0]

    def _check(self, rows: Iterable[Any], count: int) -> list[list[float]]:
        return check_vectors([row.tolist() for row in rows], count=count, embedder=self._name)
