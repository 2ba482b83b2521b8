"""Makes what a script leaves to chance the same in every process that runs it."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private

_SEED = 1


@contextmanager
def repeatable(*, until: Callable[[], bool]) -> Iterator[None]:
    """Context manager: while open, draws without a seed and lists of files are the same in every process.

    A script that shuffles its files would else build other data in each process, and the patched script could not be
    compared with the plan. TensorFlow gets no global seed, which would decide which rewrites are legal: datasets and
    functions draw as before.

    Args:
        until: says whether to leave TensorFlow's eager draws to chance again, as where training begins.
    """
    random.seed(_SEED)
    np.random.seed(_SEED)
    new_generator, generators = np.random.default_rng, itertools.count()
    glob = tf.io.gfile.glob

    @functools.wraps(new_generator)
    def seeded(seed: Any = None) -> Any:
        return new_generator([_SEED, next(generators)] if seed is None else seed)

    @functools.wraps(glob)
    def in_order(pattern: Any) -> list[str]:
        return sorted(glob(pattern))  # several threads search the folders of a pattern, in another order each time

    np.random.default_rng, tf.io.gfile.glob = seeded, in_order
    try:
        with tensorflow_private.seeded_eager_draws(_SEED, until=until):
            yield
    finally:
        np.random.default_rng, tf.io.gfile.glob = new_generator, glob
