"""Makes what a script leaves to chance the same in every process that runs it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.pipelines import call_sites, live, replay

_SEED = 1


@contextlib.contextmanager
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


def with_seeds(dataset: Any) -> Any:
    """Returns a dataset whose shuffles have seeds, for what a script computes of it before it trains.

    A layer that adapts to a part of shuffled data would else have another vocabulary in each process, and the patched
    script other elements than the plan. It is the dataset itself if each of its shuffles has a seed, if a cache is in
    it, which the script may fill so, or if it cannot be rebuilt.
    """
    # Nothing of this is the script's, which goes on with its own dataset, whatever keeps that from being rebuilt.
    with contextlib.suppress(Exception), call_sites.running_workflow():
        source = live.read(dataset)
        unseeded = [node for node in source.pipeline if node.op == "shuffle" and node.argument("seed") is None]
        if unseeded and not any(node.op in ("cache", "snapshot") for node in source.pipeline):
            seeded: dict[str, Any] = {}
            for node in unseeded:  # what is upstream comes first
                above = replay.replay_nodes(source, source.pipeline, replacements=seeded)[node.inputs[0]]
                again = node.argument("reshuffle_each_iteration")
                seeded[node.id] = above.shuffle(node.argument("buffer_size"), _SEED, reshuffle_each_iteration=again)
            return replay.replay(source, source.pipeline, replacements=seeded)
    return dataset
