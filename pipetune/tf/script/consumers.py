"""Consumers train on a dataset: each can run a measuring window of training steps on any given dataset.

`fit_consumer`: the user's own `fit`. `loop_consumer`: the user's own loop body, which runs on the script's thread
while the workflow waits on another. `step_consumers`: a function, or an emulated step of a given duration.
"""

from __future__ import annotations

from typing import Any, Protocol

from pipetune.core.measurement import RunFailed, Window


class ScriptStopped(BaseException):
    """Ends the user's script once everything is measured; a BaseException, so no `except Exception` catches it."""


class Consumer(Protocol):
    """Something that trains on a dataset."""

    kind: str  # "keras-fit", "loop", "step", "emulated", "none"
    sentence: str  # description for the report

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Trains `steps` steps after `warmup` uncounted ones on a fresh iterator of `dataset`.

        Raises:
            RunFailed: the consumer cannot run a window (any more); the message is the reason.
        """
        ...


class NoConsumer:
    """Nothing trains: the input is measured alone."""

    kind = "none"

    def __init__(self, why: str) -> None:
        self.sentence = why

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        raise RunFailed(self.sentence)
