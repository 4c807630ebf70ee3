"""Print text of other people safely, and progress bars, in the same form for every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def make_plain_line(value: object, *, limit: int = 10_000) -> str:
    """Return another person's text as one line without control characters, at most `limit` characters."""
    from rapport.retrieval.files.document import fit_on_one_line

    return fit_on_one_line(str(value).encode(errors="replace").decode(), limit=limit)


def escape_line(value: object, *, limit: int = 10_000) -> str:
    """Return another person's text as one line that rich prints without reading it as markup."""
    from rich.markup import escape

    return escape(make_plain_line(value, limit=limit))


def make_progress(console: Console) -> Progress:
    """Return a progress bar that leaves nothing behind and shows nothing where the output is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
