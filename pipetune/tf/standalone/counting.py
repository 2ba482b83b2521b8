"""Counts the elements of what a module makes, and those of the user's own pipeline to hold them against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.standalone import probe

MOST_BYTES = 256 * 2**20  # of files, read about ten times; beyond it their names are counted
MOST_COUNTED = 2_000_000  # elements of an epoch
MOST_ELEMENTS = 20_000  # counted from the start where the data is longer and has no files to count
_TWO_EPOCHS_BYTES = 32 * 2**20
_GROUP = 1_024

Reduce = Callable[[Pipeline], Pipeline]


@dataclass(frozen=True)
class Measure:
    """How elements are counted."""

    counted: str  # "elements", "files", or "first elements"
    reduce: Reduce
    epochs: int
    against_pipeline: bool  # the user's own pipeline is the measure; else the module as a single worker


def measure(
    source: live.LivePipeline, single: live.LivePipeline, tuned: Pipeline, shard_by: str, most_bytes: int
) -> Measure:
    """How the elements of `tuned`, an edited form of `source`, can be counted; `single` is the module run alone.

    Raises:
        CannotReplay: they cannot; the message says why.
    """
    reduced = probe.of_elements(tuned)
    bytes_read = _bytes(source) if probe.reads_records(reduced) else 0
    cardinality = int(replay(source, reduced).cardinality())
    endless = cardinality == tf.data.INFINITE_CARDINALITY or probe.repeats_inside(reduced)
    if not endless and cardinality <= MOST_COUNTED and bytes_read is not None and bytes_read <= most_bytes:
        small = bytes_read <= _TWO_EPOCHS_BYTES or shard_by == "element"
        return Measure("elements", probe.of_elements, 2 if small else 1, against_pipeline=True)
    if shard_by != "element" and probe.of_files(single.pipeline) is not None:
        return Measure("files", _files_of, 2, against_pipeline=False)
    if not shard_by:
        raise CannotReplay("The data is too long to be counted, and has no files to count instead.")
    return Measure(
        "first elements",
        lambda pipeline: probe.with_most(probe.of_elements(pipeline), MOST_ELEMENTS),
        1,
        against_pipeline=False,
    )


def _files_of(pipeline: Pipeline) -> Pipeline:
    return probe.of_files(pipeline) or pipeline


def expected(
    how: Measure, source: live.LivePipeline, single: live.LivePipeline, tuned: Pipeline
) -> list[Counter[int]]:
    """What each epoch should hold.

    Where the user's own pipeline chooses its elements at random (`shuffle` before `take`), only their number
    can be compared with it, and the choice of the module run as one worker is the measure.
    """
    alone = epochs_of(how, single)
    if not how.against_pipeline:
        return alone
    dataset = probe.fingerprints(source, how.reduce(tuned))
    own = [count_epoch(dataset) for _ in range(2)]
    if own[0] == own[1]:
        return [own[0]] * how.epochs
    if own[0].total() != alone[0].total():
        raise CannotExpress(
            f"The module gives {alone[0].total()} elements, the pipeline {own[0].total()}; it chooses "
            "them at random, which cannot be divided among workers."
        )
    return alone


def epochs_of(how: Measure, made: live.LivePipeline) -> list[Counter[int]]:
    """What each epoch of a module's pipeline gives."""
    dataset = probe.fingerprints(made, how.reduce(made.pipeline))
    return [count_epoch(dataset) for _ in range(how.epochs)]


def count_epoch(dataset: Any) -> Counter[int]:
    """How often each fingerprint comes.

    Raises:
        CannotExpress: the pipeline fails on its way.
        CannotReplay: it gives too many to count.
    """
    found: Counter[int] = Counter()
    with running():
        for group in dataset.batch(_GROUP).take(MOST_COUNTED // _GROUP + 1).as_numpy_iterator():
            found.update(group.tolist())
    if found.total() > MOST_COUNTED:
        raise CannotReplay(f"The pipeline gives more than {MOST_COUNTED} elements.")
    return found


@contextmanager
def running() -> Iterator[None]:
    """Makes an error of the pipeline that runs a reason not to emit it."""
    try:
        yield
    except tf.errors.OpError as error:
        text = error.message.strip().splitlines()
        raise CannotExpress(
            f"The pipeline does not run to its end: {type(error).__name__}: {text[0] if text else ''}"
        ) from error


def _bytes(source: live.LivePipeline) -> int | None:
    """The size of all files whose names the sources hold; None where one cannot be asked."""
    total = 0
    for node in source.pipeline:
        if node.inputs:
            continue
        dataset = source.datasets[node.id]
        holder = getattr(dataset, "_filenames", dataset)
        for tensor in getattr(holder, "_tensors", ()):
            if tensor.dtype == tf.string and tensor.shape.rank == 1:
                for name in tensor.numpy().tolist():
                    try:
                        total += int(tf.io.gfile.stat(name.decode()).length)
                    except (tf.errors.OpError, UnicodeDecodeError):
                        return None
    return total
