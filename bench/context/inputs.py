"""Find the annotated chats and the program that scores answers: they are not part of the repository.

Both are expected in `../shared` beside the checkout, or in the folder that `BENCH_SHARED` names. `python -m bench.context.inputs bench`
(or `train`) exits with one sentence if something is missing. It needs nothing but Python, so `make` runs it before it installs
anything.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SHARED = Path(os.environ.get("BENCH_SHARED") or Path(__file__).parents[3] / "shared")
OWN_CHAT = "ubuntu-dev"
OTHER_CHATS = ("channel-two-dev", "new-stripe", "new-mediawiki", "new-ubuntu-meeting")
PILOT_CHAT = "channel-two-pilot"
SCORER_FOLDER = SHARED / "tools" / "context"


def chat_path(name: str) -> Path:
    """Return where the chat of this name is expected."""
    return SHARED / "data" / "context" / f"{name}.base.jsonl"


TRAINING_FILE = chat_path("ubuntu-train")
BENCH_FILES = (
    *(chat_path(name) for name in (OWN_CHAT, *OTHER_CHATS, PILOT_CHAT)),
    SCORER_FOLDER / "score.py",
    SCORER_FOLDER / "tasks.py",
)


def require_files(*paths: Path) -> None:
    """Exit with one sentence that names the missing files and where they are expected, unless all are there."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        names = ", ".join(path.name for path in missing)
        folders = " and ".join(dict.fromkeys(str(path.parent) for path in missing))
        sys.exit(
            f"Missing: {names}, expected in {folders}; these files are not part of the repository, so put them there"
            " or set BENCH_SHARED to the folder that holds data/context and tools/context."
        )


if __name__ == "__main__":
    require_files(*{"bench": BENCH_FILES, "train": (TRAINING_FILE,)}[sys.argv[1]])
