"""Test that numpy's BLAS has one thread in every process, unless the operator sets another number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import Home

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc to find the BLAS of a process"),
]

REPORT = '''
import atexit, ctypes, os, re

def report():
    """Write down how many threads the loaded OpenBLAS has; nothing if numpy was not imported."""
    with open("/proc/self/maps") as maps:
        [path] = set(re.findall(r"/\\S*openblas\\S*", maps.read())) or {None}
    if path:
        library = ctypes.CDLL(path)
        names = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads", "openblas_get_num_threads")
        count = next(getattr(library, name) for name in names if hasattr(library, name))
        with open(os.environ["BLAS_REPORT"], "w") as out:
            out.write(str(count()))

atexit.register(report)
'''
"""Code that runs in the inspected process, as its `sitecustomize`."""


@pytest.fixture
def reported(tmp_path: Path) -> dict[str, str]:
    """Return the environment with which a process reports; on a machine with one core OpenBLAS always has one thread."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two cores")
    (tmp_path / "sitecustomize.py").write_text(REPORT)
    return {"PYTHONPATH": str(tmp_path), "BLAS_REPORT": str(tmp_path / "threads")}


def threads(reported: dict[str, str]) -> int:
    return int(Path(reported["BLAS_REPORT"]).read_text())


@pytest.mark.parametrize(("chosen", "expected"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)], ids=["unset", "set"])
async def test_the_server_has_one_unless_the_operator_chose(
    home: Home, reported: dict[str, str], chosen: dict[str, str], expected: int
) -> None:
    server = await home.serve(**reported, **chosen)
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0, server.tail()
    assert threads(reported) == expected


@pytest.mark.parametrize(("chosen", "expected"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)], ids=["unset", "set"])
def test_a_program_that_runs_the_server_itself_has_one_too(
    reported: dict[str, str], chosen: dict[str, str], expected: int
) -> None:
    environment = {"PATH": os.environ["PATH"], **reported, **chosen}
    code = "from rapport.cli.serve import web_app; from rapport.app import open_app; import numpy"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert threads(reported) == expected
