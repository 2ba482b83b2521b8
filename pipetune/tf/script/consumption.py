"""How the script uses one of its datasets."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pipetune.core.handover import Captured
from pipetune.tf.script import capture
from pipetune.tf.script.handing_over import HandedOver


@dataclass
class Consumption:
    """How the script has used one of its datasets so far."""

    dataset: Any
    variable: str  # the name of the user's variable that holds it, or ''
    role: str  # "training", "validation", "evaluation", "prediction", "adapt", "preview", "other"
    how: str
    elements: int = 0
    file: str = ""
    line: int = 0
    steps_per_epoch: int | None = None
    epochs: int | None = None  # requested by the call
    certain: bool = False  # the call is made only once: `epochs` is the total number of training epochs
    starts_again: bool = False  # an epoch that ends with the data is followed by a fresh iterator: Keras 3
    handed: HandedOver | None = None  # how a strategy distributes it to the replicas
    captured: tuple[Captured, ...] = ()  # objects of this process that the function for the workers uses
    across_workers: bool = False  # a strategy distributes the dataset to the workers of a job
    path: capture.Path = ()  # the user's call stack where it is consumed
    extra: dict[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0  # spent fetching elements: in `iter` and `next`, or in the whole call
    cpu_seconds: float = 0.0  # of the whole process in that time
    whole_call: bool = False  # evaluate, predict, adapt, reduce: the times include the model's work

    @property
    def name(self) -> str:
        """Name of the dataset: the user's variable, else its role."""
        return self.variable or self.role


class Stopwatch:
    """Context manager: adds the wall and CPU time inside it to consumptions, also if the block raises.

    Costs two reads of two clocks, about a microsecond; measuring windows do not use it.
    """

    __slots__ = ("_cpu", "_uses", "_wall")

    def __init__(self, *uses: Consumption) -> None:
        self._uses = uses

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        self._wall, self._cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        for use in self._uses:
            self.charge(use)

    def charge(self, use: Consumption) -> None:
        """Adds the measured time to `use`."""
        use.wall_seconds += self._wall
        use.cpu_seconds += self._cpu


def whole_call(uses: list[Consumption]) -> Stopwatch:
    """Returns a stopwatch for a call that consumes datasets as a whole; its time includes the model's work."""
    for use in uses:
        use.whole_call = True
    return Stopwatch(*uses)


def name_in(frame: FrameType | None, dataset: Any) -> str:
    """Returns the variable that holds the dataset in `frame` or a user frame that called it; '' if none does."""
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name, value in list(scope.items()):
                if value is dataset and not name.startswith("_"):
                    return name
        frame, _ = capture.user_frame(frame.f_back)
    return ""
