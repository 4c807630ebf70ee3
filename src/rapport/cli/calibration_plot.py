"""Draw the curve of a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rapport.retrieval.calibration import Calibration

_INK, _ANSWERED, _UNANSWERED, _CHOSEN = "#333333", "#2a78b5", "#d9822b", "#b3261e"


def draw_curve(calibration: Calibration, path: Path) -> None:
    """Write a PNG with the similarities of the two kinds of questions, and the guard's rates at every threshold."""
    # Imported here: it takes half a second, and only this command draws. No pyplot, which would search for a display and
    # keep every figure in memory.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(8, 7), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"Guard threshold measured with {calibration.embedder}", color=_INK)
    kinds, rates = figure.subplots(2, 1, sharex=True)
    _draw_kinds(kinds, calibration)
    _draw_rates(rates, calibration)
    for axes in (kinds, rates):
        axes.axvline(
            calibration.threshold, color=_CHOSEN, linewidth=1.6, label=f"proposed: {calibration.threshold:.3f}"
        )
        axes.axvline(
            calibration.default,
            color=_INK,
            linewidth=1,
            linestyle=":",
            label=f"embedder's own: {calibration.default:.3f}",
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    figure.savefig(path, format="png")


def _draw_kinds(axes: Any, calibration: Calibration) -> None:
    everything = (*calibration.positives, *calibration.negatives)
    axes.set_ylabel("share of questions (%)")
    if not everything:
        axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=_INK)
        return
    edges = [number / 40 for number in range(int(min(everything) * 40), int(max(everything) * 40) + 2)]
    for values, color, label in (
        (calibration.negatives, _UNANSWERED, "not answered by the notes"),
        (calibration.positives, _ANSWERED, "answered by the notes"),
    ):
        weights = [100 / len(values)] * len(values)
        axes.hist(values, bins=edges, weights=weights, color=color, alpha=0.55, label=f"{label} ({len(values)})")


def _draw_rates(axes: Any, calibration: Calibration) -> None:
    thresholds = [point.threshold for point in calibration.curve]
    for name, color, style in (
        ("precision", _ANSWERED, "-"),
        ("recall", _UNANSWERED, "-"),
        ("balanced_accuracy", _INK, "--"),
    ):
        values = [getattr(point, name) for point in calibration.curve]
        axes.plot(thresholds, values, color=color, linestyle=style, label=name.replace("_", " "))
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("threshold (similarity of the best passage)")
    axes.set_ylabel("of the guard")
