"""WordLlama: a light embedder with one vector per token. It takes microseconds per text and is less exact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rapport.domain.errors import Permanent
from rapport.domain.extras import WORDLLAMA, require_extra
from rapport.retrieval.embedders.local import LocalEmbedder, find_data_file, get_first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

MIN_SIMILARITY = 0.32
NAME = "wordllama-l2-supercat-256"
MAX_CHARACTERS = 32_000
BATCH_SIZE = 64
DIMENSIONS = 256
MAX_CACHED_ROWS = 20_000
"""Cached rows, half a kilobyte each: enough for the latest messages of a hundred busy chats."""


class WordLlama(LocalEmbedder):
    """256 dimensions: the mean of the tokens' vectors, independent of their order.

    The wheel's weights and tokenizer are read as data: its code searches the tokenizer in a folder that the wheel lacks, then on
    the network, and it configures logging for the whole process.
    """

    def __init__(self) -> None:
        files = _find_files()
        super().__init__(NAME, min_similarity=MIN_SIMILARITY, load=lambda: _load(*files), batch_size=BATCH_SIZE)


def _find_files() -> tuple[Path, Path]:
    require_extra(WORDLLAMA, "RAPPORT_EMBEDDINGS names WordLlama (for Python 3.13 or older)")
    weights = find_data_file("wordllama", "weights", "l2_supercat_256.safetensors")
    return weights, find_data_file("wordllama", "tokenizers", "l2_supercat_tokenizer_config.json")


class _Table:
    def __init__(self, vectors: NDArray[np.float16], tokenizer: Tokenizer) -> None:
        self._vectors = vectors
        self._tokenizer = tokenizer

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.embed_question(text) for text in texts]

    def embed_question(self, text: str) -> list[float]:
        import numpy as np

        readable = text[:MAX_CHARACTERS].encode(errors="replace").decode()
        # An empty text gets the vector of the unknown token, which is near no passage.
        ids = self._tokenizer.encode(readable, add_special_tokens=False).ids or [0]
        summed = self._vectors[ids].sum(axis=0, dtype=np.float32)
        return cast("list[float]", (summed / np.linalg.norm(summed)).tolist())


class WordTable:
    """Vectors of length 1, computed synchronously: for comparing many short texts with each other.

    The table is read on first use. The latest rows are cached, because the same chats are read again and again.
    """

    def __init__(self, weights: Path, vocabulary: Path) -> None:
        def row(text: str) -> NDArray[np.float16]:
            return _make_row(_load(weights, vocabulary), text)

        self._row = lru_cache(maxsize=MAX_CACHED_ROWS)(row)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        return np.array([self._row(text) for text in texts], np.float32).reshape(len(texts), DIMENSIONS)


def open_word_table() -> WordTable | None:
    """Return the table of the wheel; None if it is not installed: it is an extra, and not available for every Python."""
    try:
        return WordTable(*_find_files())
    except Permanent:
        return None


def _make_row(table: _Table, text: str) -> NDArray[np.float16]:
    import numpy as np

    # An empty text gets the zero vector: a message without words is similar to no other.
    return np.array(table.embed_question(text) if text.strip() else [0.0] * DIMENSIONS, np.float16)


@cache  # once per process: all embedders with the same weights share them
def _load(weights: Path, vocabulary: Path) -> _Table:
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(vocabulary))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return _Table(_map_matrix(weights), tokenizer)
    except Exception as error:
        raise Permanent(f"WordLlama can't be loaded: {get_first_line(error)}") from error


def _map_matrix(path: Path) -> NDArray[np.float16]:
    """Return the only tensor of a safetensors file, memory-mapped: eight bytes of length, a JSON header, the numbers."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        described: dict[str, Any] = json.loads(file.read(length))["embedding.weight"]
    if described["dtype"] != "F16":
        raise ValueError(f"its numbers are {described['dtype']}, not F16")
    start = 8 + length + described["data_offsets"][0]
    return np.memmap(path, dtype="<f2", mode="r", offset=start, shape=tuple(described["shape"]))
