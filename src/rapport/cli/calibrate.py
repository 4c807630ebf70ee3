"""`rapport calibrate`: measure on the notes that a user may see which similarity a passage needs to answer a question."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from langchain_core.messages import HumanMessage
from rich.console import Console
from rich.table import Table

from rapport.agents.models import BUILTIN, close_model, make_model
from rapport.cli.calibration_plot import draw_curve
from rapport.cli.note_library import open_library
from rapport.domain.extras import PLOT, missing_extra
from rapport.domain.note_scope import NoteScope
from rapport.retrieval.calibration import MAX_PASSAGES, Ask, Calibration, calibrate
from rapport.settings import Settings
from rapport.storage.notes.notes import Notes
from rapport.storage.notes.visible_notes import VisibleNotes


async def run(settings: Settings, *, user: str, png: Path, keep: bool) -> None:
    """Measure the threshold, show it, and store it if it is reliable."""
    console = Console(highlight=False)
    scope = NoteScope(user)
    async with open_library(settings) as (library, retriever), _writer(settings) as ask:
        async with library.database.statement() as connection:
            visible = VisibleNotes(connection)
            sample = await visible.sample_vectors(scope, library.embedder.name, limit=MAX_PASSAGES)
            counts = await visible.get_counts(user, library.embedder.name)
        with console.status("asking questions about the notes…"):
            calibration = await calibrate(sample, library.embedder, retriever.measure(scope, counts), ask=ask)
        _show(calibration, console)
        if calibration.curve:
            _draw(calibration, png, console)
        if keep and calibration.confident:
            async with library.database.statement() as connection:
                await Notes(connection).set_min_similarity(user, library.embedder.name, calibration.threshold)
            console.print(f"From now on [bold]{calibration.threshold:.3f}[/bold] decides for {user}'s notes.")


async def reset(settings: Settings, *, user: str) -> None:
    """Restore the embedder's own threshold."""
    async with open_library(settings) as (library, _), library.database.statement() as connection:
        await Notes(connection).set_min_similarity(user, library.embedder.name, None)
    Console(highlight=False).print(
        f"The embedder's own threshold, {library.embedder.min_similarity:.3f}, decides again."
    )


def _draw(calibration: Calibration, png: Path, console: Console) -> None:
    """Write the picture if possible. A failure does not affect the threshold."""
    if not PLOT.is_installed:
        console.print(
            str(missing_extra(PLOT, "`rapport calibrate` can draw this as a curve")), markup=False, soft_wrap=True
        )
        return
    try:
        draw_curve(calibration, png)
    except OSError as error:
        console.print(f"The curve can't be drawn in {png}: {error.strerror or error}.", markup=False, soft_wrap=True)
    else:
        console.print(f"The curve is drawn in {png}.", markup=False, soft_wrap=True)


def _show(calibration: Calibration, console: Console) -> None:
    if calibration.curve:
        table = Table("threshold", "precision", "recall", "F1", "both kinds right", box=None)
        nearest = min(calibration.curve, key=lambda point: abs(point.threshold - calibration.threshold))
        for number, point in enumerate(calibration.curve):
            if number % 5 == 0 or point is nearest:
                mark = "bold" if point is nearest else ""
                table.add_row(
                    f"{point.threshold:.2f}",
                    f"{point.precision:.3f}",
                    f"{point.recall:.3f}",
                    f"{point.f1:.3f}",
                    f"{point.balanced_accuracy:.3f}",
                    style=mark,
                )
        console.print(
            "What the guard would do: of what it refuses, how much has no answer (precision);"
            " of what has no answer, how much it refuses (recall).",
            soft_wrap=True,
        )
        console.print(table)
    console.print(calibration.note, soft_wrap=True)


@asynccontextmanager
async def _writer(settings: Settings) -> AsyncGenerator[Ask | None]:
    """Open the chat model that writes the questions; rules replace the built-in model, which can't."""
    if settings.model == BUILTIN:
        yield None
        return
    model = make_model(settings.model, timeout=settings.model_timeout, environment=os.environ)

    async def ask(prompt: str) -> str:
        return str((await model.ainvoke([HumanMessage(prompt)])).text)

    try:
        yield ask
    finally:
        await close_model(model)
