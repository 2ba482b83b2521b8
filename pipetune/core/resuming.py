"""How a script resumes where an earlier run stopped."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Way(enum.StrEnum):
    """What the script stores of its position in the data."""

    ITERATOR_STATE = "iterator-state"  # the state of the iterator, in a checkpoint
    SKIP = "skip"  # the number of elements to skip
    IDS = "ids"  # the ids of the examples already used
    EPOCHS = "epochs"  # only the epoch: the data restarts from the beginning


@dataclass(frozen=True)
class Resuming:
    """One place in the script that resumes in this way."""

    way: Way
    what: str  # in the words of the script: "tf.train.Checkpoint(iterator=...)"
    file: str = ""
    line: int = 0
    node: str = ""  # the operator that does it, if any: the `skip`
