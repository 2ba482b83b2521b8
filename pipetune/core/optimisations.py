"""What TensorFlow's own graph passes did to a pipeline, and why one could not."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PassState(enum.StrEnum):
    """What became of a pass on one pipeline."""

    FIRED = "fired"  # in force, and without it the graph that runs would be another one
    IDLE = "idle"  # in force, and found nothing it could change
    OFF = "off"  # not in force; switched on it would change nothing here
    COULD = "could"  # not in force; switched on it would change the graph


@dataclass(frozen=True)
class PassReason:
    """Why a pass left one operator as it is."""

    node: str  # empty: the pipeline as a whole
    why: str


@dataclass(frozen=True)
class PassResult:
    """One graph pass of the installed TensorFlow on one pipeline as written."""

    name: str  # as TensorFlow calls it: "map_parallelization"
    by_default: bool  # on where the script says nothing
    state: PassState
    changes: tuple[str, ...] = ()  # operators taken out and put in: "Map becomes ParallelMap"
    reasons: tuple[PassReason, ...] = ()


@dataclass(frozen=True)
class Optimisations:
    """All passes the installed TensorFlow knows, in the order it runs them; those that fired first."""

    passes: tuple[PassResult, ...] = ()
    note: str = ""  # why nothing could be read

    def result(self, name: str) -> PassResult | None:
        return next((one for one in self.passes if one.name == name), None)
