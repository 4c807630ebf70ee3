"""Check that the benchmarks of group context name the files they lack before they do anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cases import every_case

ROOT = Path(__file__).parents[2]


def run_module(*arguments: str, shared: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BENCH_SHARED": str(shared)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@every_case(
    ("arguments", "missing"),
    [
        (["bench.context.inputs", "train"], "ubuntu-train.base.jsonl"),
        (["bench.context.inputs", "bench"], "ubuntu-dev.base.jsonl"),
        (["bench.context.quality"], "score.py"),
    ],
)
def test_missing_files_are_named_in_one_sentence(tmp_path: Path, arguments: list[str], missing: str) -> None:
    ran = run_module(*arguments, shared=tmp_path)
    assert ran.returncode == 1
    assert ran.stdout == ""
    [sentence] = ran.stderr.splitlines()
    assert sentence.startswith("Missing: ")
    assert missing in sentence
    assert str(tmp_path / "data" / "context") in sentence or str(tmp_path / "tools" / "context") in sentence


def test_files_that_are_there_are_not_missed(tmp_path: Path) -> None:
    data = tmp_path / "data" / "context"
    data.mkdir(parents=True)
    (data / "ubuntu-train.base.jsonl").touch()
    assert run_module("bench.context.inputs", "train", shared=tmp_path).returncode == 0
