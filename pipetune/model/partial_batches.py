"""Which minibatch each replica gets at each step, and what happens at the end of the data.

Follows the section "Partial batches" of TensorFlow's "Distributed Input" guide and `input_lib.py` of TensorFlow 2.21.
A replica that has run out of data while another has not gets a dummy batch of size 0. With several workers this takes
a message: at every step, all workers sum up how many replicas have data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

Step = tuple[range, ...]
"""The minibatch of each replica of one worker, as positions in the worker's stream; a dummy is empty."""

DUMMY = range(0)


def handled(*, workers: int, fixed_shapes: bool, endless: bool) -> bool:
    """Whether TensorFlow checks at every step which replicas have data.

    It does not for infinite data, nor for a single worker whose batches all have the same fixed shape.
    """
    return not endless and (workers > 1 or not fixed_shapes)


def dealt(minibatches: Sequence[range], replicas: int) -> list[Step]:
    """Assigns the minibatches of a worker to its replicas in turn; the last step may have fewer than replicas."""
    return [tuple(minibatches[start : start + replicas]) for start in range(0, len(minibatches), replicas)]


def together(workers: Sequence[Sequence[Step]], replicas: int) -> list[tuple[Step, ...]]:
    """The steps of all workers in lockstep, with dummies: they continue until no replica of any worker has data.

    Args:
        workers: the `dealt` steps of each worker.
        replicas: replicas of each worker.
    """
    count = max(map(len, workers), default=0)
    return [
        tuple(_filled(steps[number] if number < len(steps) else (), replicas) for number in range(count))
        for steps in workers
    ]


def cut_off(workers: Sequence[Sequence[Step]], replicas: int) -> list[tuple[Step, ...]]:
    """The steps without dummies: they end at the first replica without data; what the other replicas have is lost."""
    count = min((sum(len(step) == replicas for step in steps) for steps in workers), default=0)
    return [tuple(steps[:count]) for steps in workers]


def messages(steps: int, *, workers: int, handled: bool) -> int:
    """How often the workers exchange which replicas have data: once per step, and once more to detect the end."""
    return steps + 1 if handled and workers > 1 else 0


def first_out(workers: Iterable[Sequence[Step]]) -> int:
    """Number of steps until the first worker has run out of data."""
    return min(map(len, workers), default=0)


def _filled(step: Step, replicas: int) -> Step:
    return (*step, *itertools.repeat(DUMMY, replicas - len(step)))
