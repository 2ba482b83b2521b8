"""The picture of `pipetune bench`: of each workload how fast every rival is beside the script as written."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core.benchmarks import PIPETUNE, Benchmarks, WorkloadResult
from pipetune.core.results import Interval
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
_SPREAD = 0.5  # of a row that the marks of the rivals take, one above the other
_ROW_INCHES, _EDGE_INCHES, _WIDTH_INCHES = 0.5, 1.1, 7.5


def write_figure(benchmarks: Benchmarks, path: Path) -> None:
    """Draw a bar for pipetune and a mark for each rival, as multiples of `defaults`, on a logarithmic axis.

    A light bar behind the dark one is what a cache adds. The format is that of the path's suffix.
    """
    from matplotlib.figure import Figure as Canvas

    workloads = benchmarks.workloads
    with _house_style():
        canvas = Canvas(figsize=(_WIDTH_INCHES, _EDGE_INCHES + _ROW_INCHES * len(workloads)))
        axes: Axes = canvas.subplots()
        axes.set_xscale("log")
        for place, workload in enumerate(workloads):
            _row(axes, place, workload)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(workloads)), [words.clean(one.name) for one in workloads])
        axes.set_ylim(len(workloads) - 0.4, -0.6)
        axes.set_xlabel("examples per second over the current script (defaults), input alone")
        _ticks(axes)
        _legend(axes)
        format = path.suffix.removeprefix(".")
        # Each format names its own date differently; None leaves it out, so that the bytes are the same each time.
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format, {})
        canvas.savefig(path, format=format, dpi=160, bbox_inches="tight", metadata=dates)


@contextlib.contextmanager
def _house_style() -> Iterator[None]:
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


def _row(axes: Axes, place: int, workload: WorkloadResult) -> None:
    with_cache, bare = workload.ratio_over.get("defaults"), workload.without_cache.get("defaults")
    cached = PIPETUNE in workload.caches and workload.caches[PIPETUNE].counts
    if with_cache is not None:
        _bar(axes, place, with_cache, _CACHED if cached else _GREEN)
    if cached and bare is not None:
        _bar(axes, place, bare, _GREEN)
    for position, (name, (mark, colour)) in enumerate(_MARKS.items()):
        ratio = workload.over_defaults.get(name)
        if ratio is not None:
            height = place + _SPREAD * (position / (len(_MARKS) - 1) - 0.5)
            axes.plot([ratio.low, ratio.high], [height, height], color=colour, linewidth=1, alpha=0.6)
            edge, width = (colour, 1.2) if mark == "x" else ("white", 0.6)  # seen on a bar, too
            (point,) = axes.plot([ratio.median], [height], mark, color=colour, markersize=5)
            point.set_markeredgecolor(edge)
            point.set_markeredgewidth(width)


def _bar(axes: Axes, place: int, ratio: Interval, colour: str) -> None:
    axes.barh(place, ratio.median - 1.0, left=1.0, height=0.62, color=colour, zorder=0)
    axes.plot([ratio.low, ratio.high], [place, place], color="black", linewidth=2.2, alpha=0.6, zorder=1)


def _ticks(axes: Axes) -> None:
    """Round multiples as labels: a logarithmic axis says 10^0 by itself."""
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


def _legend(axes: Axes) -> None:
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
