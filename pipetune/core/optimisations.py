"""What TensorFlow's own graph passes changed in a pipeline, and why one changed nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PassState(enum.StrEnum):
    """The effect of a graph pass on one pipeline."""

    FIRED = "fired"  # enabled, and the executed graph would be different without it
    IDLE = "idle"  # enabled, but found nothing to change
    OFF = "off"  # disabled; enabling it would change nothing
    COULD = "could"  # disabled; enabling it would change the graph


@dataclass(frozen=True)
class PassReason:
    """Why a pass did not change an operator."""

    node: str  # empty: the pipeline as a whole
    why: str


@dataclass(frozen=True)
class PassResult:
    """The result of one graph pass of the installed TensorFlow on the original pipeline."""

    name: str  # TensorFlow's name: "map_parallelization"
    by_default: bool  # enabled unless the script configures it
    state: PassState
    changes: tuple[str, ...] = ()  # removed and added operators: "Map becomes ParallelMap"
    reasons: tuple[PassReason, ...] = ()


@dataclass(frozen=True)
class Optimisations:
    """All passes of the installed TensorFlow, in the order it runs them; those that fired come first."""

    passes: tuple[PassResult, ...] = ()
    note: str = ""  # why nothing could be read

    def result(self, name: str) -> PassResult | None:
        return next((one for one in self.passes if one.name == name), None)
