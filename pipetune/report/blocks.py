"""The blocks a report consists of: sections produce them, and the renderers know nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pipetune.report.words import NOT_MEASURED, Fact, Figure


@dataclass(frozen=True)
class Place:
    """A place in the user's source; `file` is the absolute path for a link, "" if it must not be shown."""

    text: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Part:
    """A part of a bar, as a share of the longest bar; `kind` names its colour."""

    kind: str
    share: float


@dataclass(frozen=True)
class RatioAxis:
    low: float
    high: float

    def at(self, ratio: float) -> float:
        """Returns the position of a ratio as a share of the width, kept inside."""
        if ratio <= 0:
            return 0.0
        share = (math.log(ratio) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return min(1.0, max(0.0, share))

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Round ratios, with their positions, whose labels do not touch; 1 is always among them."""
        chosen: list[tuple[float, str]] = []
        for tick in sorted(_TICKS, key=lambda tick: (abs(math.log(tick)), tick)):
            place = self.at(tick)
            if self.low <= tick <= self.high and all(abs(place - other) >= _LABEL_WIDTH for other, _ in chosen):
                chosen.append((place, f"{tick:g}x"))
        return tuple(sorted(chosen))


_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
_LABEL_WIDTH = 0.14  # share of the axis


def ratio_axis(gains: Iterable[Figure]) -> RatioAxis:
    """Returns an axis that holds every interval and 1, with some room."""
    known = [gain for gain in gains if gain.low and gain.high and math.isfinite(gain.high)]
    low = min([0.9, *(gain.low for gain in known if gain.low)])
    high = max([1.15, *(gain.high for gain in known if gain.high)])
    return RatioAxis(low / 1.05, high * 1.05)


@dataclass(frozen=True)
class Forest:
    """One interval on a ratio axis, with the pairs it rests on; pairs outside the axis are drawn at its ends."""

    gain: Figure
    axis: RatioAxis
    pairs: tuple[float, ...] = ()
    kind: str = ""  # names its colour


@dataclass(frozen=True)
class Cell:
    """A cell of a table. Without text the figure is missing, and `why` says the reason."""

    text: str = ""
    note: str = ""  # a second, quieter line
    why: str = ""
    sort: float | None = None  # to sort by, if not by the text
    place: Place | None = None
    chip: str = ""  # a state with this colour
    strong: bool = False
    bar: tuple[Part, ...] = ()
    forest: Forest | None = None


@dataclass(frozen=True)
class Column:
    title: str
    number: bool = False  # aligned to the right


def numbers(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, number=True) for title in titles)


@dataclass(frozen=True)
class Row:
    """A row of a table; `details` are shown on demand, `state` is what a reader filters by."""

    cells: tuple[Cell, ...]
    state: str = ""
    details: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Filter:
    """A state that rows can have; `shown` from the start, or only when asked for."""

    state: str
    count: int
    shown: bool


@dataclass(frozen=True)
class Table:
    """Rows and columns; with filters if rows have states."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    filters: tuple[Filter, ...] = ()
    sortable: bool = False


@dataclass(frozen=True)
class Claim:
    """The first thing a reader sees. `kind` names the outcome, and so the colour."""

    kind: str
    big: str
    note: str
    sentence: str
    gain: Figure
    forest: Forest | None = None
    step: str = "step"  # what the time beside it is the time of


@dataclass(frozen=True)
class Sentence:
    """A paragraph of plain text."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Facts:
    """Labels and what stands beside them."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Bar:
    """A bar with its label; `parts` are shares of the longest bar of the block."""

    label: str
    text: str
    parts: tuple[Part, ...]
    marked: bool = False


@dataclass(frozen=True)
class Bars:
    """Bars on one axis that starts at zero."""

    bars: tuple[Bar, ...]
    legend: tuple[tuple[str, str], ...] = ()  # kind, meaning
    limit: float | None = None  # a line across all bars, as a share of the longest
    sentence: str = ""  # the same for those who cannot see the bars


@dataclass(frozen=True)
class Series:
    """Consecutive measurements as thin columns, stacked; shares of the highest."""

    columns: tuple[tuple[Part, ...], ...]
    legend: tuple[tuple[str, str], ...]
    marks: tuple[int, ...]  # columns before which a line stands
    lines: tuple[tuple[float, str], ...]  # height as a share, label
    sentence: str


@dataclass(frozen=True)
class Hunk:
    """One change of a file, with what its rewrites gained."""

    file: str
    lines: tuple[tuple[str, str], ...]  # kind ("add", "remove", "same"), text
    gains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """The patch; `text` is the whole of it, to copy, and `command` prints it."""

    hunks: tuple[Hunk, ...]
    text: str
    command: str


@dataclass(frozen=True)
class Checks:
    """Answers to one question; each is "yes", "no", "changed" or "unknown"."""

    title: str
    answers: tuple[tuple[str, str, str], ...]  # state, text, detail


@dataclass(frozen=True)
class Commands:
    """Commands to type, each with what it does."""

    commands: tuple[Fact, ...]


@dataclass(frozen=True)
class Notice:
    """Something about the script that the reader should know, and what to do about it."""

    code: str
    place: Place | None
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Listing:
    """Text as it is: an error, the source of a module."""

    text: str
    label: str


@dataclass(frozen=True)
class Band:
    """What one worker gets of the data; parts as start, width, share of the stretch, kind."""

    label: str
    sentence: str
    parts: tuple[tuple[float, float, float, str], ...]
    reads_all: bool = False


@dataclass(frozen=True)
class Bands:
    """Who reads what: the data of an epoch from left to right, a row for each worker."""

    rows: tuple[Band, ...]
    legend: tuple[tuple[str, str], ...]
    borders: tuple[float, ...]  # between files, as shares of the width
    caption: str


@dataclass(frozen=True)
class Section:
    """A titled part; folded parts are opened on demand."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    folded: bool = False
    parts: tuple[Section, ...] = ()


Block = Claim | Sentence | Facts | Table | Bars | Series | Diff | Checks | Commands | Notice | Listing | Bands


@dataclass(frozen=True)
class Page:
    """All of a report: the answer first."""

    title: str
    version: str
    date: str
    machine: str  # in a few words
    busy: str  # that other processes used the machine; "" if they did not
    headline: str  # of the answer, for the window's title
    sections: tuple[Section, ...]


def number_cell(value: float | None, form: Callable[[float], str], *, why: str = NOT_MEASURED) -> Cell:
    """Returns a cell with a number in words, or why it is missing."""
    return Cell(why=why) if value is None else Cell(form(value), sort=value)
