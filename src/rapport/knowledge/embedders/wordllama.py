"""WordLlama: the light embedder, a table of one vector a token. Microseconds a text, and less exact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rapport.domain.errors import Permanent
from rapport.knowledge.embedders.local import LocalEmbedder, data_file, first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

MIN_SIMILARITY = 0.32
NAME = "wordllama-l2-supercat-256"
MAX_CHARACTERS = 32_000
BATCH = 64


class WordLlama(LocalEmbedder):
    """256 numbers a text: the mean of its tokens' vectors, in any order.

    The wheel's weights and tokenizer are read as data: its own code looks for the tokenizer in a folder that
    the wheel lacks and then on the network, and it sets up logging for the whole process.
    """

    def __init__(self) -> None:
        weights = data_file("wordllama", "weights", "l2_supercat_256.safetensors")
        vocabulary = data_file("wordllama", "tokenizers", "l2_supercat_tokenizer_config.json")
        super().__init__(NAME, min_similarity=MIN_SIMILARITY, load=lambda: _load(weights, vocabulary), batch=BATCH)


class _Table:
    def __init__(self, vectors: NDArray[np.float16], tokenizer: Tokenizer) -> None:
        self._vectors = vectors
        self._tokenizer = tokenizer

    def passages(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.question(text) for text in texts]

    def question(self, text: str) -> list[float]:
        import numpy as np

        readable = text[:MAX_CHARACTERS].encode(errors="replace").decode()
        # A text of nothing is the token of nothing known: it has a direction, and no passage lies in it.
        ids = self._tokenizer.encode(readable, add_special_tokens=False).ids or [0]
        summed = self._vectors[ids].sum(axis=0, dtype=np.float32)
        return cast("list[float]", (summed / np.linalg.norm(summed)).tolist())


@cache  # once a process: whoever makes another embedder of the same weights shares them
def _load(weights: Path, vocabulary: Path) -> _Table:
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(vocabulary))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return _Table(_matrix(weights), tokenizer)
    except Exception as error:
        raise Permanent(f"WordLlama can't be loaded: {first_line(error)}") from error


def _matrix(path: Path) -> NDArray[np.float16]:
    """The one tensor of a safetensors file, mapped: eight bytes of length, a JSON header, and then the numbers."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        described: dict[str, Any] = json.loads(file.read(length))["embedding.weight"]
    if described["dtype"] != "F16":
        raise ValueError(f"its numbers are {described['dtype']}, not F16")
    start = 8 + length + described["data_offsets"][0]
    return np.memmap(path, dtype="<f2", mode="r", offset=start, shape=tuple(described["shape"]))
