"""The course of a run: what is apart from steady state, and what each dataset of the script costs.

A rate says what an input delivers once it runs. A run also has a first element, a shuffle buffer to fill, a pause at
every epoch border, later epochs that a cache makes faster, and sometimes a drift.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.measurement import Interval


@dataclass(frozen=True)
class Drift:
    """How the seconds per element change over a run."""

    change: Interval  # the fitted seconds per element at the end of the run over those at its start
    since: int  # the element from which on they change
    elements: int  # of the run
    significant: bool  # every run showed it, beyond what correlated noise gives, and it matters


@dataclass(frozen=True)
class Course:
    """Seconds of wall time, the input alone, consumed as fast as it delivers; None where not measured."""

    first_seconds: float | None = None  # to the first element of the first iterator
    fill_seconds: float | None = None  # of a first element, spent filling shuffle buffers; None: no shuffle
    steady_seconds: float | None = None  # per element, once the first and the warm-up have passed
    border_seconds: float | None = None  # what the first element of a later epoch costs above a steady one
    borders: int = 0  # epoch borders passed; 0: `border_seconds` is that of fresh iterators
    epoch_elements: int | None = None  # in one epoch, where an epoch ended or the count is known
    epochs: int = 0  # whole epochs seen
    later: Interval | None = None  # rate of the later epochs over the first
    drift: Drift | None = None
    curve: tuple[float, ...] = ()  # seconds per element, block by block, of the run that drift was looked for in
    notes: tuple[str, ...] = ()

    @property
    def epoch_seconds(self) -> float | None:
        """Seconds the input alone needs for one later epoch, its pause included."""
        if self.epoch_elements is None or self.steady_seconds is None:
            return None
        return self.epoch_elements * self.steady_seconds + (self.border_seconds or 0.0)


@dataclass(frozen=True)
class DatasetCost:
    """What one dataset of the script costs. CPU seconds are those of the whole process.

    Before training began the script took elements itself: the time is that of `iter` and of the first twenty `next` (a
    loop that takes more is one that trains), or the whole call for `evaluate`, `predict`, `adapt` and `reduce`, whose
    model works between the elements.
    """

    taken_wall_seconds: float = 0.0
    taken_cpu_seconds: float = 0.0
    whole_call: bool = False
    element_wall_seconds: float | None = None  # measured alone, as fast as it delivers
    element_cpu_seconds: float | None = None
    epoch_elements: int | None = None

    @property
    def epoch_wall_seconds(self) -> float | None:
        """Seconds for one pass over it alone."""
        if self.element_wall_seconds is None or self.epoch_elements is None:
            return None
        return self.element_wall_seconds * self.epoch_elements
