"""How a run develops beyond its steady state, and the cost of each dataset of the script.

A rate describes an input in its steady state. A run also has a first element, a shuffle buffer to fill, a pause at
every epoch boundary, later epochs that a cache makes faster, and sometimes a drift.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.measurement import Interval


@dataclass(frozen=True)
class Drift:
    """Change of the seconds per element over a run."""

    change: Interval  # ratio of the fitted seconds per element at the end of the run to those at its start
    since: int  # index of the element from which on they change
    elements: int  # length of the run
    significant: bool  # seen in every run, beyond correlated noise, and large enough to matter


@dataclass(frozen=True)
class Course:
    """Wall times of the input alone, consumed as fast as it delivers; None if not measured."""

    first_seconds: float | None = None  # until the first element of the first iterator
    fill_seconds: float | None = None  # part of a first element's time, filling shuffle buffers; None: no shuffle
    steady_seconds: float | None = None  # per element, after the first element and the warm-up
    border_seconds: float | None = None  # extra time of the first element of a later epoch
    borders: int = 0  # epoch boundaries passed; 0: `border_seconds` was measured on fresh iterators
    epoch_elements: int | None = None  # in one epoch, if an epoch ended or the count is known
    epochs: int = 0  # complete epochs observed
    later: Interval | None = None  # ratio of the rate of later epochs to that of the first
    drift: Drift | None = None
    curve: tuple[float, ...] = ()  # seconds per element, block by block, of the run examined for drift
    notes: tuple[str, ...] = ()

    @property
    def epoch_seconds(self) -> float | None:
        """Seconds the input alone needs for one later epoch, including the pause at its boundary."""
        if self.epoch_elements is None or self.steady_seconds is None:
            return None
        return self.epoch_elements * self.steady_seconds + (self.border_seconds or 0.0)


@dataclass(frozen=True)
class DatasetCost:
    """Cost of one dataset of the script. CPU seconds are those of the whole process.

    The `taken` fields cover what the script itself consumed before training began: the time in `iter` and the first
    twenty `next` calls (a loop that takes more is a training loop), or the whole call of `evaluate`, `predict`, `adapt`
    and `reduce` (`whole_call`), which includes the work of the model between the elements.
    """

    taken_wall_seconds: float = 0.0
    taken_cpu_seconds: float = 0.0
    whole_call: bool = False
    element_wall_seconds: float | None = None  # of the input alone, consumed as fast as it delivers
    element_cpu_seconds: float | None = None
    epoch_elements: int | None = None

    @property
    def epoch_wall_seconds(self) -> float | None:
        """Seconds for one pass over the dataset alone."""
        if self.element_wall_seconds is None or self.epoch_elements is None:
            return None
        return self.element_wall_seconds * self.epoch_elements
