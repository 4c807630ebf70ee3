"""An MCP server over stdio for tests of crashes: its one tool adds a line to a file.

The file is the first argument. If a file of the same name with `.kill` exists, a call removes it and kills Rapport after its effect.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP

server = FastMCP("files")
FILE = Path(sys.argv[1])
KILL = FILE.with_suffix(".kill")


@server.tool()
def write(text: str) -> str:
    """Write a line down."""
    with FILE.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    if KILL.exists():
        KILL.unlink()
        os.kill(os.getppid(), signal.SIGKILL)
    return "written"


if __name__ == "__main__":
    server.run()
