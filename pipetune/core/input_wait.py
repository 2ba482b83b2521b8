"""The input wait of training steps, and the line that says what to do about it."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass

from pipetune.core.measurement import percent
from pipetune.core.profile import NOT_BOUND_BELOW


@dataclass(frozen=True)
class InputWait:
    """How long training steps took, and how much of that they waited for their input."""

    steps: int = 0
    seconds: float = 0.0  # that the steps took, waiting included
    wait_seconds: float = 0.0

    @property
    def share(self) -> float | None:
        """The share of the steps' time spent waiting for input, 0 to 1; None if nothing was measured."""
        return min(1.0, max(0.0, self.wait_seconds / self.seconds)) if self.steps and self.seconds else None

    def __add__(self, other: InputWait) -> InputWait:
        return InputWait(self.steps + other.steps, self.seconds + other.seconds, self.wait_seconds + other.wait_seconds)

    def summary(self, unavailable: str = "") -> str:
        """Returns one line about the wait, which names the next command if a faster input can gain something.

        `unavailable` says why nothing could be measured; "" if there were too few steps.
        """
        if self.share is None:
            return f"Input wait not available: {unavailable or 'fewer than two steps in a row took less than 10 s'}."
        sentence = f"Input wait {percent(self.share)} of {self.steps:,} steps"
        return f"{sentence}: {_next_step()} may help." if self.share >= NOT_BOUND_BELOW else f"{sentence}."


def _next_step() -> str:
    """Returns what analyses this training: a command for a script or a module, a function in a notebook."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != "__main__":  # as of a folder
        return f"`pipetune analyze -m {spec.name.removesuffix('.__main__')}`"
    return f"`pipetune analyze {shlex.quote(os.path.relpath(file))}`" if file else "`pipetune.tune(dataset)`"
