"""Counts the elements of a module's datasets and those of the user's own pipeline, to compare them.

Elements are identified by the numbers attached when they are read, if these are kept to the end and if module and
pipeline attach the same number to the same value; otherwise by a fingerprint of their value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import Coverage, ElementIdentity, ModuleCheck
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.operators import EpochEffect, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.numbering import INSIDE_BITS
from pipetune.model.coverage import StoredBytes
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay

MOST_BYTES = 256 * 2**20  # of files, which are read about ten times; if there is more data, file names are counted
MOST_COUNTED = 2_000_000  # elements of an epoch that are counted, at most
MOST_ELEMENTS = 20_000  # first elements that are counted if the data is longer and has no files to count
_TWO_EPOCHS_BYTES = 32 * 2**20  # of files up to which two epochs are counted, by judgement: more takes twice as long
GROUP = 1_024  # elements fetched at a time, by judgement: fewer cost more calls of Python, more only memory


@dataclass(frozen=True)
class Measure:
    """How elements are counted."""

    counted: str  # a key of `REDUCTIONS`
    epochs: int  # number of epochs to count
    against_pipeline: bool  # compare with the user's own pipeline; else with the module as a single worker

    def reduce(self, pipeline: Pipeline) -> Pipeline:
        """Returns the part of a pipeline that outputs the elements to count."""
        return REDUCTIONS[self.counted](pipeline)


def measure(
    source: live.LivePipeline, single: live.LivePipeline, tuned: Pipeline, shard_by: str, most_bytes: int
) -> Measure:
    """Returns how the elements of `tuned`, an edited form of `source`, can be counted.

    Args:
        single: the pipeline of the module as a single worker.
        shard_by: "file" or "element"; "" if the data is not sharded.
        most_bytes: bytes of files up to which elements are read and counted.

    Raises:
        CannotReplay: they cannot be counted; the message says why.
    """
    reduced = numbering.of_elements(tuned)
    bytes_read = _bytes(source) if numbering.reads_records(reduced) else 0
    cardinality = int(replay(source, reduced).cardinality())
    repeats = any(kind.startswith("Repeat") for node in reduced for kind in node.inner)  # which may never end
    endless = cardinality == tf.data.INFINITE_CARDINALITY or repeats
    if not endless and cardinality <= MOST_COUNTED and bytes_read is not None and bytes_read <= most_bytes:
        small = bytes_read <= _TWO_EPOCHS_BYTES or shard_by == "element"
        return Measure("elements", 2 if small else 1, against_pipeline=True)
    if shard_by != "element" and numbering.of_files(single.pipeline) is not None:
        return Measure("files", 2, against_pipeline=False)
    if not shard_by:
        raise CannotReplay("The data is too long to be counted, and has no files to count instead.")
    return Measure("first elements", 1, against_pipeline=False)


REDUCTIONS: Mapping[str, Callable[[Pipeline], Pipeline]] = {
    "elements": numbering.of_elements,
    "files": lambda pipeline: numbering.of_files(pipeline) or pipeline,
    "first elements": lambda pipeline: numbering.with_most(numbering.of_elements(pipeline), MOST_ELEMENTS),
}
"""Functions that reduce a pipeline to the part that outputs the elements to count, by what is counted."""


@dataclass(frozen=True)
class Epoch:
    """The elements of an epoch in order of arrival, as 1-D int64 arrays of equal length."""

    digests: Any  # fingerprints of the values
    numbers: Any = None  # None: an operator does not keep the numbers
    inside: bool = False  # as in `numbering.Numbered`

    def counts(self, key: ElementIdentity) -> Counter[int]:
        """Returns how often each number or digest occurs: numbers in order, digests in order of first occurrence."""
        keys = self.numbers if key is ElementIdentity.INDEX else self.digests
        found, first, counts = np.unique(keys, return_index=True, return_counts=True)
        order = np.arange(len(found)) if key is ElementIdentity.INDEX else np.argsort(first)
        return Counter(dict(zip(found[order].tolist(), counts[order].tolist(), strict=True)))

    @property
    def distinct(self) -> bool:
        """Whether there are numbers and none occurs twice."""
        return self.numbers is not None and len(np.unique(self.numbers)) == len(self.numbers)

    def numbers_like(self, other: Epoch) -> bool:
        """Whether numbers that occur in both epochs belong to equal values."""
        if not self.distinct or not other.distinct or self.inside != other.inside:
            return False
        _, mine, other_indices = np.intersect1d(self.numbers, other.numbers, assume_unique=True, return_indices=True)
        agree = bool(np.array_equal(self.digests[mine], other.digests[other_indices]))
        return agree and (len(mine) > 0 or not len(self.numbers))


@dataclass(frozen=True)
class Expectation:
    """What several readers should deliver together, and how elements are identified."""

    how: Measure
    epochs: tuple[Counter[int], ...]  # the elements of each epoch
    key: ElementIdentity  # of the counts: INDEX or DIGEST
    told_by: ElementIdentity  # for the report: `key`, or NAME if files are counted
    files: tuple[int, ...] = ()  # elements in each file, in the order of the counts; () if unknown
    stored: StoredBytes | None = None  # bytes of the elements on storage; None: unknown, or not in files
    reads_all: bool = False  # each of them reads all of the data to deliver its own part


@dataclass(frozen=True)
class Counted:
    """Results of running a module as several workers."""

    checks: tuple[ModuleCheck, ...]  # one per number of workers
    coverage: tuple[Coverage, ...] = ()  # the same, if elements were counted
    expectation: Expectation | None = None  # what they should deliver together; None: elements could not be counted


def expect(
    source: live.LivePipeline, single: live.LivePipeline, tuned: Pipeline, shard_by: str, *, numbers: bool = True
) -> Expectation:
    """Returns the expected elements of each epoch; the arguments are those of `measure`.

    If the user's own pipeline selects its elements at random (`shuffle` before `take`), only their number can be
    compared with it, and the selection of the module as a single worker is expected.

    Args:
        numbers: identify elements by their numbers, if possible; else only by their values.

    Raises:
        CannotExpress: module and pipeline deliver different numbers of elements, or the pipeline fails.
        CannotReplay: the elements cannot be counted, or there are too many; the message says why.
    """
    how = measure(source, single, tuned, shard_by, MOST_BYTES)
    made, epochs = single, read_epochs(single, how.reduce(single.pipeline), how.epochs)
    numbers = numbers and all(epoch.distinct for epoch in epochs)
    if how.against_pipeline:
        own = read_epochs(source, how.reduce(tuned), 2)
        first, second = (epoch.counts(ElementIdentity.DIGEST) for epoch in own)
        if first == second:
            numbers = numbers and own[0].numbers_like(epochs[0])
            made, epochs = source, own[:1] * how.epochs
        elif first.total() != len(epochs[0].digests):
            raise CannotExpress(
                f"The module gives {len(epochs[0].digests)} elements, the pipeline {first.total()}; it chooses "
                "them at random, which cannot be divided among workers."
            )
    key = ElementIdentity.INDEX if numbers else ElementIdentity.DIGEST
    return Expectation(
        how,
        tuple(epoch.counts(key) for epoch in epochs),
        key,
        told_by=ElementIdentity.NAME if how.counted == "files" else key,
        files=files_in(epochs[0]) if numbers else (),
        stored=stored_by(made, epochs, key) if how.counted != "first elements" else None,
        reads_all=shard_by == "element" and numbering.reads_records(numbering.of_elements(tuned)),
    )


def stored_by(made: live.LivePipeline, epochs: Sequence[Epoch], key: ElementIdentity) -> StoredBytes | None:
    """Returns the bytes on storage that the elements of these epochs of `made` belong to; None if unknown."""
    if any(epoch.numbers is None for epoch in epochs):
        return None
    return numbering.stored(made, [(epoch.numbers, epoch.digests) for epoch in epochs], key, inside=epochs[0].inside)


def files_in(epoch: Epoch) -> tuple[int, ...]:
    """Returns the number of elements in each file, in the order of the files; () if they do not come from files."""
    if not epoch.inside:
        return ()
    _, counts = np.unique(epoch.numbers >> INSIDE_BITS, return_counts=True)
    return tuple(counts.tolist())


def epochs_of(how: Measure, made: live.LivePipeline, key: ElementIdentity) -> list[Counter[int]]:
    """Returns how often each element occurs, for each epoch of a module's pipeline, identified by `key`."""
    epochs = read_epochs(made, how.reduce(made.pipeline), how.epochs)
    return [epoch.counts(key) for epoch in epochs]


def read_epochs(source: live.LivePipeline, reduced: Pipeline, count: int) -> list[Epoch]:
    """Returns the first epoch of `reduced`, an edited form of `source`, read `count` times.

    Building costs more than reading a small epoch: the same dataset is read again, unless its draws would continue.

    Raises:
        CannotExpress: the pipeline fails.
        CannotReplay: there are too many elements to count.
    """
    found = numbering.numbered_groups(source, reduced, GROUP)
    epochs = [_read(*found)]
    restarts = all(_restarts(node) for node in reduced)
    while len(epochs) < count:
        epochs.append(_read(*(found if restarts else numbering.numbered_groups(source, reduced, GROUP))))
    return epochs


def _restarts(node: Node) -> bool:
    """Whether the output of an operator in an epoch is independent of earlier epochs."""
    draws = node.function is not None and not node.function.stateless
    shuffles = any("Shuffle" in kind for kind in node.inner)
    return operator_facts(node.op).epochs is EpochEffect.SAME and not draws and not shuffles


def _read(dataset: Any, numbers: bool, inside: bool) -> Epoch:
    parts = [np.asarray(part) for part in groups(dataset)]
    columns = np.concatenate(parts) if parts else np.zeros((0, 2 if numbers else 1), np.int64)
    return Epoch(columns[:, -1], columns[:, 0] if numbers else None, inside)


def groups(dataset: Any) -> Iterator[Any]:
    """Yields the elements of one epoch of a dataset in batches of `GROUP`, as arrays.

    Raises:
        CannotExpress: the pipeline fails.
        CannotReplay: there are too many elements to count.
    """
    count = 0
    with running():
        for group in dataset.take(MOST_COUNTED // GROUP + 1).as_numpy_iterator():
            count += len(group)
            yield group
    if count > MOST_COUNTED:
        raise CannotReplay(f"The pipeline gives more than {MOST_COUNTED} elements.")


@contextmanager
def running() -> Iterator[None]:
    """Context manager: turns an error of the running pipeline into a reason not to write the module.

    Raises:
        CannotExpress: TensorFlow raised an error.
    """
    try:
        yield
    except tf.errors.OpError as error:
        why = next(iter(error.message.strip().splitlines()), "")
        raise CannotExpress(f"The pipeline does not run to its end: {type(error).__name__}: {why}") from error


def _bytes(source: live.LivePipeline) -> int | None:
    """Returns the total size of the files that the sources name; None if that of one cannot be determined."""
    total = 0
    for dataset in (source.datasets[node.id] for node in source.pipeline if not node.inputs):
        holder = getattr(dataset, "_filenames", dataset)
        for tensor in getattr(holder, "_tensors", ()):
            if tensor.dtype == tf.string and tensor.shape.rank == 1:
                for name in tensor.numpy().tolist():
                    try:
                        total += int(tf.io.gfile.stat(name.decode()).length)
                    except (tf.errors.OpError, UnicodeDecodeError):
                        return None
    return total
