"""The charts as figures for papers and slides, drawn with matplotlib from the same view.

The files are the same bytes each time: no date, ids salted with a constant, text kept as text.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core.session import Session
from pipetune.report.charts import STEPS_DRAWN, lanes
from pipetune.report.view import DatasetView, View, make_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLOURS = {
    "input": "#d9731a",
    "model": "#4658c8",
    "wait": "#f3c9c0",
    "extra": "#a4a7ae",
    "extract": "#edb35d",
    "transform": "#d9731a",
    "load": "#8f4a14",
    "tuned": "#0f7a5c",
    "bound": "#4658c8",
    "accepted": "#0f7a5c",
    "undecided": "#8a5a00",
    "failed": "#b3321f",
}
PLAIN = "#9aa0ab"


def write_figures(session: Session, folder: str | os.PathLike[str], *, format: str = "svg") -> tuple[Path, ...]:
    """Write `rates`, `operators`, `timeline`, `predictions` and `trials`, those there is something to draw for.

    Args:
        format: "svg", "png" or "pdf".
    """
    view = make_view(session)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written = []
    with house_style():
        for name, canvas in _figures(view):
            path = place / f"{name}.{format}"
            save_canvas(canvas, path, format=format)
            written.append(path)
    return tuple(written)


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Inside, matplotlib draws as all figures here are drawn; a canvas made without pyplot needs no display."""
    import matplotlib

    settings = matplotlib.rc_context(
        {
            "svg.hashsalt": "pipetune",
            "svg.fonttype": "none",
            "text.parse_math": False,  # a name with dollars is not mathematics
            "font.size": 9.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    with settings, warnings.catch_warnings():
        # A name in a script the font lacks shows as boxes; that is nothing a user could act on.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def save_canvas(canvas: Canvas, path: Path, *, format: str) -> None:
    """Write a figure; the same bytes each time."""
    # Each format names its own date differently; None leaves it out.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format, {})
    canvas.savefig(path, format=format, dpi=160, bbox_inches="tight", metadata=dates)


def _figures(view: View) -> list[tuple[str, Canvas]]:
    from matplotlib.figure import Figure as Canvas

    drawn: list[tuple[str, Canvas]] = []

    def add(name: str, rows: int) -> Axes:
        canvas = Canvas(figsize=(7.0, 0.7 + 0.42 * rows))
        drawn.append((name, canvas))
        axes: Axes = canvas.subplots()
        return axes

    main = view.main
    if main is not None:
        if any(rung.examples.known for rung in main.ladder.rungs):
            _rates(add("rates", len(main.ladder.rungs) + 1), main)
        if any(row.share.known for row in main.operators.rows):
            _operators(add("operators", len(main.operators.rows)), main)
        if main.timeline.rows:
            _timeline(add("timeline", 2 * len(main.timeline.rows)), main)
        if main.foresight.points:
            _predictions(add("predictions", 10), main)
    tried = [row for row in view.attempts.rows if row.gain.known]
    if tried:
        _trials(add("trials", len(tried)), view)
    return drawn


def _short(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:47]}…"


def _rates(axes: Axes, dataset: DatasetView) -> None:
    known = [(rung.name, rung.label, rung.examples) for rung in dataset.ladder.rungs if rung.examples.known]
    if dataset.ladder.bound.known:
        known.append(("bound", "Bound: the model alone", dataset.ladder.bound))
    for place, (name, _, figure) in enumerate(known):
        bar = axes.barh(place, figure.value or 0.0, color=COLOURS.get(name, PLAIN), height=0.6)
        axes.bar_label(bar, [f" {figure.text}"])
    axes.set_yticks(range(len(known)), [label for _, label, _ in known])
    axes.invert_yaxis()
    axes.set_xlabel("examples per second, input alone")
    axes.margins(x=0.15)


def _operators(axes: Axes, dataset: DatasetView) -> None:
    rows = [row for row in dataset.operators.rows if row.share.known]
    for place, row in enumerate(rows):
        bar = axes.barh(place, 100 * (row.share.value or 0.0), color=COLOURS.get(row.stage, PLAIN), height=0.6)
        axes.bar_label(bar, [f" {row.share.text}"])
    axes.set_yticks(range(len(rows)), [_short(f"{row.title} {row.where}".strip()) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("share of the input's CPU time, %")
    axes.margins(x=0.15)


def _timeline(axes: Axes, dataset: DatasetView) -> None:
    rows = lanes(dataset.timeline)
    longest = max(row.period_ms for row in dataset.timeline.rows) * STEPS_DRAWN / 100
    for place, row in enumerate(rows):
        for bar in row.bars:
            left, width = bar.start * longest, bar.width * longest
            alpha = 1.0 if row.measured else 0.5
            height = 2.4 * place + bar.lane
            axes.barh(height, width, left=left, height=0.9, color=COLOURS[bar.kind], alpha=alpha)
    axes.set_yticks([2.4 * place + 0.5 for place in range(len(rows))], [row.label for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds; input above, model below")


def _predictions(axes: Axes, dataset: DatasetView) -> None:
    rows = [row for row in dataset.foresight.rows if row.predicted.value and row.measured.value]
    measured = [row.measured.value or 0.0 for row in rows]
    predicted = [row.predicted.value or 0.0 for row in rows]
    ends = (min(*measured, *predicted) / 1.3, max(*measured, *predicted) * 1.3)
    axes.plot(ends, ends, color=PLAIN, linewidth=1)
    axes.plot(measured, predicted, "o", color=COLOURS["model"])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("measured examples per second, input alone")
    axes.set_ylabel("predicted")


def _trials(axes: Axes, view: View) -> None:
    rows = [row for row in view.attempts.rows if row.gain.known]
    for place, row in enumerate(rows):
        low, middle, high = row.gain.low or 0.0, row.gain.value or 0.0, row.gain.high or 0.0
        colour = COLOURS.get(row.outcome, PLAIN)
        axes.plot(row.ratios, [place] * len(row.ratios), ".", color=PLAIN, alpha=0.3)
        axes.plot([low, high], [place, place], color=colour, linewidth=2)
        axes.plot([middle], [place], "o", color=colour)
    axes.axvline(1.0, color=PLAIN, linewidth=1)
    axes.axvline(view.attempts.acceptance, color=PLAIN, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(rows)), [_short(row.label) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("gain, ratio")
