"""Run npm's MCP inspector in its command-line mode."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.installing import packages
from tests.support.waiting import LIMIT_SECONDS

FOLDER = Path(__file__).parent / "inspector"


class Inspected(NamedTuple):
    """What the inspector printed."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


async def inspect(home: Path, *arguments: str) -> Inspected:
    """Run the inspector with these arguments, with `home` as its home directory."""
    node = shutil.which("node")
    modules = packages(FOLDER)
    assert node is not None
    script = modules / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
    process = await asyncio.create_subprocess_exec(
        node,
        str(script),
        "--cli",
        *arguments,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Inspected(process.returncode, out.decode(), err.decode())


def call(tool: str, **arguments: str) -> Sequence[str]:
    """Return the inspector's arguments for a call of a tool."""
    pairs = [f"{name}={value}" for name, value in arguments.items()]
    return ["--method", "tools/call", "--tool-name", tool, "--tool-arg", *pairs]
