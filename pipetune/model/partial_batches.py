"""Steps: which minibatch each replica gets at each, and what happens where the data ends.

After the section "Partial batches" of TensorFlow's "Distributed Input" guide and `input_lib.py` of TensorFlow 2.21.
A replica that has no more data while another has gets a dummy batch of size 0. Over several workers that takes a
message: at every step all of them add up how many replicas have data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

Step = tuple[range, ...]
"""The minibatch of each replica of one worker, as positions in what the worker reads; a dummy is empty."""

DUMMY = range(0)


def handled(*, workers: int, fixed_shapes: bool, endless: bool) -> bool:
    """Whether TensorFlow looks at every step which replicas have data.

    It does not for data without end, nor for one worker whose batches all have one fixed shape.
    """
    return not endless and (workers > 1 or not fixed_shapes)


def dealt(minibatches: Sequence[range], replicas: int) -> list[Step]:
    """The minibatches of a worker, in turn to its replicas; the last step may have fewer of them than replicas."""
    return [tuple(minibatches[start : start + replicas]) for start in range(0, len(minibatches), replicas)]


def together(workers: Sequence[Sequence[Step]], replicas: int) -> list[tuple[Step, ...]]:
    """The steps of all workers with dummies: they go on until no replica of any worker has data.

    Args:
        workers: of each, its `dealt` steps.
        replicas: of each worker.
    """
    count = max(map(len, workers), default=0)
    return [
        tuple(_filled(steps[number] if number < len(steps) else (), replicas) for number in range(count))
        for steps in workers
    ]


def cut_off(workers: Sequence[Sequence[Step]], replicas: int) -> list[tuple[Step, ...]]:
    """The steps without dummies: the first replica without data ends them, and what others still have is lost."""
    count = min((sum(len(step) == replicas for step in steps) for steps in workers), default=0)
    return [tuple(steps[:count]) for steps in workers]


def messages(steps: int, *, workers: int, handled: bool) -> int:
    """How often the workers ask one another who has data: at every step, and once more to see the end."""
    return steps + 1 if handled and workers > 1 else 0


def first_out(workers: Iterable[Sequence[Step]]) -> int:
    """Steps until a worker has no data at all."""
    return min(map(len, workers), default=0)


def _filled(step: Step, replicas: int) -> Step:
    return (*step, *itertools.repeat(DUMMY, replicas - len(step)))
