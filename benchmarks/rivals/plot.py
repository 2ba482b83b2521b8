"""The plot of `pipetune bench`: the speed of pipetune and its rivals relative to the original script."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rivals.results import PIPETUNE, Benchmarks, WorkloadResult
from pipetune.core.measurement import Interval
from pipetune.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _BROWN, _GREEN, _RED = "#4658c8", "#8f4a14", "#0f7a5c", "#b3321f"
_GREY = "#9aa0ab"
_MARKS: Mapping[str, tuple[str, str]] = {
    "off": ("x", _GREY),
    "autotune": ("o", _BLUE),
    "stage_based": ("^", _BROWN),
    "plumber": ("D", _RED),
    "expert": ("*", _GREY),
}
_CACHED = "#a9d3c6"  # a paler green
_SPREAD = 0.5  # fraction of a row over which the rivals' marks are spread vertically
_ROW_INCHES, _EDGE_INCHES, _WIDTH_INCHES = 0.5, 1.1, 7.5


def write_figure(benchmarks: Benchmarks, path: Path) -> None:
    """Draws a bar for pipetune and a mark for each rival, as multiples of `defaults`, on a logarithmic axis.

    A light bar behind the dark one shows the speed with a cache. The suffix of the path determines the format.
    """
    from matplotlib.figure import Figure as Canvas

    workloads = benchmarks.workloads
    with _style():
        canvas = Canvas(figsize=(_WIDTH_INCHES, _EDGE_INCHES + _ROW_INCHES * len(workloads)))
        axes: Axes = canvas.subplots()
        axes.set_xscale("log")
        for place, workload in enumerate(workloads):
            _draw_workload(axes, place, workload)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(workloads)), [words.clean(one.name) for one in workloads])
        axes.set_ylim(len(workloads) - 0.4, -0.6)
        axes.set_xlabel("examples per second over the current script (defaults), input alone")
        _set_ticks(axes)
        _add_legend(axes)
        format = path.suffix.removeprefix(".")
        # The name of the date depends on the format; None omits it, so that the same results give the same file.
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format, {})
        canvas.savefig(path, format=format, dpi=160, bbox_inches="tight", metadata=dates)


@contextlib.contextmanager
def _style() -> Iterator[None]:
    """Sets the style and makes the output reproducible. Figures made without pyplot need no display."""
    import matplotlib

    settings = matplotlib.rc_context(
        {
            "svg.hashsalt": "pipetune",
            "svg.fonttype": "none",
            "text.parse_math": False,  # names may contain dollar signs
            "font.size": 9.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    with settings, warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; users cannot do anything about that.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def _draw_workload(axes: Axes, place: int, workload: WorkloadResult) -> None:
    with_cache, uncached = workload.ratio_over.get("defaults"), workload.without_cache.get("defaults")
    cached = PIPETUNE in workload.caches and workload.caches[PIPETUNE].counts
    if with_cache is not None:
        _draw_bar(axes, place, with_cache, _CACHED if cached else _GREEN)
    if cached and uncached is not None:
        _draw_bar(axes, place, uncached, _GREEN)
    for position, (name, (mark, colour)) in enumerate(_MARKS.items()):
        ratio = workload.over_defaults.get(name)
        if ratio is not None:
            height = place + _SPREAD * (position / (len(_MARKS) - 1) - 0.5)
            axes.plot([ratio.low, ratio.high], [height, height], color=colour, linewidth=1, alpha=0.6)
            edge, width = (colour, 1.2) if mark == "x" else ("white", 0.6)  # visible on a bar as well
            (point,) = axes.plot([ratio.median], [height], mark, color=colour, markersize=5)
            point.set_markeredgecolor(edge)
            point.set_markeredgewidth(width)


def _draw_bar(axes: Axes, place: int, ratio: Interval, colour: str) -> None:
    axes.barh(place, ratio.median - 1.0, left=1.0, height=0.62, color=colour, zorder=0)
    axes.plot([ratio.low, ratio.high], [place, place], color="black", linewidth=2.2, alpha=0.6, zorder=1)


def _set_ticks(axes: Axes) -> None:
    """Labels the axis with 1, 2, 5 and their multiples, instead of powers of ten."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_xlim()
    ticks = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in (1, 2, 5)
    ]
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}x"))
    axes.xaxis.set_minor_locator(NullLocator())


def _add_legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Line2D | Patch] = [
        Patch(color=_GREEN, label=PIPETUNE),
        Patch(color=_CACHED, label=f"{PIPETUNE} with a cache"),
    ]
    handles += [
        Line2D([], [], marker=mark, color=colour, linestyle="", markersize=4.5, label=name)
        for name, (mark, colour) in _MARKS.items()
    ]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4, frameon=False)
