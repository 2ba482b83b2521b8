"""What is known about the use of one dataset of the script."""

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
    """What is known about the use of one dataset so far."""

    dataset: Any
    variable: str  # the name of the user's variable that holds it, or ''
    role: str  # "training", "validation", "evaluation", "prediction", "adapt", "preview", "other"
    how: str
    elements: int = 0
    file: str = ""
    line: int = 0
    steps_per_epoch: int | None = None
    epochs: int | None = None  # that the call asks for
    certain: bool = False  # the script makes that call once: `epochs` is all the training there is
    starts_again: bool = False  # where an epoch ends with the data, the next begins it anew: Keras 3
    handed: HandedOver | None = None  # how a strategy takes it to the replicas that train
    captured: tuple[Captured, ...] = ()  # of this process, by the function that workers call for the dataset
    across_workers: bool = False  # a strategy takes the dataset to the workers of a job
    path: capture.Path = ()  # the user's calls in which it is consumed
    extra: dict[str, Any] = field(default_factory=dict)
    wall_seconds: float = 0.0  # the script spent taking elements: in `iter` and `next`, or in the whole call
    cpu_seconds: float = 0.0  # of the process in that time
    whole_call: bool = False  # evaluate, predict, adapt, reduce: the model's work is in it

    @property
    def name(self) -> str:
        """What to call the dataset: the user's variable, or what it is used for."""
        return self.variable or self.role


class Stopwatch:
    """Context manager: charges the time inside it to consumptions, however it ends.

    Two reads of two clocks, about a microsecond; no window is measured through it.
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
        """Adds the time measured to what `use` cost."""
        use.wall_seconds += self._wall
        use.cpu_seconds += self._cpu


def whole_call(uses: list[Consumption]) -> Stopwatch:
    """A stopwatch for a call that does all there is to do with some datasets: the model's work is in its time."""
    for use in uses:
        use.whole_call = True
    return Stopwatch(*uses)


def name_in(frame: FrameType | None, dataset: Any) -> str:
    """The variable that holds the dataset where it is consumed; '' if none does."""
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name, value in list(scope.items()):
                if value is dataset and not name.startswith("_"):
                    return name
        frame, _ = capture.user_frame(frame.f_back)
    return ""
