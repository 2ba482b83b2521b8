"""Makes what a script leaves to chance the same in every process that runs it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.pipelines import call_sites, live, replay

_SEED = 1


@contextlib.contextmanager
def repeatable(*, until: Callable[[], bool], began: float = 0.0) -> Iterator[None]:
    """Context manager: while open, draws without a seed and lists of files are the same in every process.

    A script that shuffles its files would else build other data in each process, and the patched script could not be
    compared with the plan. TensorFlow gets no global seed, which would decide which rewrites are legal: datasets and
    functions draw as before. A script that draws the name of its folder finds it made by an earlier process, and makes
    it again there.

    Args:
        until: says whether training has begun: TensorFlow's eager draws are left to chance then, and no folder is made
            again.
        began: when the analysis began, in seconds since the epoch. Processes of another one draw other numbers.
    """
    drawn = int(began) or _SEED
    random.seed(drawn)
    np.random.seed(drawn)
    new_generator, generators = np.random.default_rng, itertools.count()
    glob, make_folder = tf.io.gfile.glob, os.mkdir

    @functools.wraps(new_generator)
    def seeded(seed: Any = None) -> Any:
        return new_generator([drawn, next(generators)] if seed is None else seed)

    @functools.wraps(glob)
    def in_order(pattern: Any) -> list[str]:
        return sorted(glob(pattern))  # several threads search the folders of a pattern, in another order each time

    @functools.wraps(make_folder)
    def make_folder_again(path: Any, *args: Any, **more: Any) -> None:
        try:
            make_folder(path, *args, **more)
        except FileExistsError:
            if until() or not began or more or not os.path.isdir(path) or os.stat(path).st_ctime < began:
                raise

    np.random.default_rng, tf.io.gfile.glob, os.mkdir = seeded, in_order, make_folder_again
    try:
        with tensorflow_private.seeded_eager_draws(drawn, until=until):
            yield
    finally:
        np.random.default_rng, tf.io.gfile.glob, os.mkdir = new_generator, glob, make_folder


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
