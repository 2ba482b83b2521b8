"""What the search needs from the outside: something that measures a plan, and a listener.

Tests give it invented times, the worker gives it TensorFlow.
"""

from __future__ import annotations

from typing import Protocol

from pipetune.core.edits import Plan
from pipetune.core.results import Comparison, Pause, Window

DEFAULTS = "defaults"
"""The baseline every gain is over: the pipeline as written, TensorFlow's default optimisations on."""


class Notify(Protocol):
    """Hears what the search does, as it does it.

    Events: "stage" (name), "trying" (plan: a window or a comparison of it begins), "pair" (plan, pairs, ratio: the
    leading plan of a race after a round), "trial" (trial: a finished `Trial`), "best" (plan, gain). A listener saves
    the session here: what was measured survives an interrupt, and which plan ran when the process died is known.
    """

    def __call__(self, event: str, /, **details: object) -> None: ...


def silent(event: str, /, **details: object) -> None:
    """A listener that listens to nothing."""


class Windows(Protocol):
    """Takes windows, each on a fresh iterator; whatever one changes is put back. Both kinds may raise `RunFailed`."""

    @property
    def trains(self) -> bool:
        """Whether training windows are possible: the consumer can be given another input."""

    @property
    def epoch_steps(self) -> int | None:
        """Elements of the pipeline per epoch, a training step each; None where nobody knows."""

    @property
    def pause(self) -> Pause | None:
        """The pauses of the input as written, if it comes in bursts; the start of an epoch is none."""

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        """Consumes the input as fast as it delivers, for `seconds` after `warmup_seconds`."""

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        """Runs `steps` training steps."""


class Runner(Windows, Protocol):
    """Measures plans on the pipeline being tuned. Every method may raise `RunFailed`."""

    @property
    def shares_processors(self) -> bool:
        """Whether the model and the input compute on the same processors."""

    def compare(self, plan: Plan) -> Comparison:
        """Checks that the plan yields the data the pipeline yields as written, as far as its class promises."""

    def seconds_to_fill(self, plan: Plan, epoch_seconds: float | None) -> float | None:
        """Returns how long the caches that a plan adds take to be filled before its first window; None if unknown.

        Args:
            plan: the plan.
            epoch_seconds: what a pass over all elements takes; None if that is unknown.
        """

    def predicted_bytes(self, plan: Plan) -> float:
        """Returns the peak bytes predicted under `plan`, in the terms of the memory limit given to the search."""
