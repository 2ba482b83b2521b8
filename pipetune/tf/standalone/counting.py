"""Counts the elements of what a module makes, and those of the user's own pipeline to hold them against.

Elements are told apart by the numbers they got where they were read, if those come through and module and pipeline
give the same number to the same value; else by their value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.coverage import Identity
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.operators import Epochs, facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.model.stored import Stored
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.standalone import probe, stored_bytes
from pipetune.tf.standalone.numbering import INSIDE_BITS

MOST_BYTES = 256 * 2**20  # of files, read about ten times; beyond it their names are counted
MOST_COUNTED = 2_000_000  # elements of an epoch
MOST_ELEMENTS = 20_000  # counted from the start where the data is longer and has no files to count
_TWO_EPOCHS_BYTES = 32 * 2**20
_GROUP = 1_024


@dataclass(frozen=True)
class Measure:
    """How elements are counted."""

    counted: str  # a key of `REDUCTIONS`
    epochs: int
    against_pipeline: bool  # the user's own pipeline is the measure; else the module as a single worker

    def reduce(self, pipeline: Pipeline) -> Pipeline:
        """What is left of a pipeline to be counted."""
        return REDUCTIONS[self.counted](pipeline)


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
        return Measure("elements", 2 if small else 1, against_pipeline=True)
    if shard_by != "element" and probe.of_files(single.pipeline) is not None:
        return Measure("files", 2, against_pipeline=False)
    if not shard_by:
        raise CannotReplay("The data is too long to be counted, and has no files to count instead.")
    return Measure("first elements", 1, against_pipeline=False)


REDUCTIONS: Mapping[str, Callable[[Pipeline], Pipeline]] = {
    "elements": probe.of_elements,
    "files": lambda pipeline: probe.of_files(pipeline) or pipeline,
    "first elements": lambda pipeline: probe.with_most(probe.of_elements(pipeline), MOST_ELEMENTS),
}
"""What is left of a pipeline to be counted, by what is counted."""


@dataclass(frozen=True)
class Epoch:
    """The elements of an epoch in the order they came, as arrays of 64-bit integers."""

    digests: Any
    numbers: Any = None  # None: they did not come through
    inside: bool = False  # see `numbering.Numbered`

    def counts(self, key: Identity) -> Counter[int]:
        """How often each number, or digest, comes; numbers in order, digests as they first came."""
        keys = self.numbers if key is Identity.NUMBER else self.digests
        found, first, counts = np.unique(keys, return_index=True, return_counts=True)
        order = np.arange(len(found)) if key is Identity.NUMBER else np.argsort(first)
        return Counter(dict(zip(found[order].tolist(), counts[order].tolist(), strict=True)))

    @property
    def distinct(self) -> bool:
        """Whether no number comes twice."""
        return self.numbers is not None and len(np.unique(self.numbers)) == len(self.numbers)

    def numbers_like(self, other: Epoch) -> bool:
        """Whether both give the same value to the same number, where both have it."""
        if not self.distinct or not other.distinct or self.inside != other.inside:
            return False
        _, mine, theirs = np.intersect1d(self.numbers, other.numbers, assume_unique=True, return_indices=True)
        agree = bool(np.array_equal(self.digests[mine], other.digests[theirs]))
        return agree and (len(mine) > 0 or not len(self.numbers))


@dataclass(frozen=True)
class Expected:
    """What the epochs of a pipeline should hold, and how its elements are told apart."""

    epochs: tuple[Counter[int], ...]
    key: Identity  # of the counts: NUMBER or DIGEST
    told_by: Identity
    files: tuple[int, ...] = ()  # elements in each, in the order of the counts; () where that is not known
    stored: Stored | None = None  # what the elements are of on storage; None: not known, or in no files


@dataclass(frozen=True)
class Wanted:
    """What several readers are to give together."""

    how: Measure
    expected: Expected
    reads_all: bool = False  # each of them reads all of the data to give its own part


def expected(
    how: Measure, source: live.LivePipeline, single: live.LivePipeline, tuned: Pipeline, *, numbers: bool = True
) -> Expected:
    """What each epoch should hold; without `numbers` elements are told apart by their values alone.

    Where the user's own pipeline chooses its elements at random (`shuffle` before `take`), only their number
    can be compared with it, and the choice of the module run as one worker is the measure.
    """
    alone = read_epochs(single, how.reduce(single.pipeline), how.epochs)
    numbers = numbers and all(epoch.distinct for epoch in alone)
    if not how.against_pipeline:
        return _expected(how, single, alone, numbers=numbers)
    reduced = how.reduce(tuned)
    own = read_epochs(source, reduced, 2)
    first, second = (epoch.counts(Identity.DIGEST) for epoch in own)
    if first == second:
        return _expected(how, source, own[:1] * how.epochs, numbers=numbers and own[0].numbers_like(alone[0]))
    if first.total() != len(alone[0].digests):
        raise CannotExpress(
            f"The module gives {len(alone[0].digests)} elements, the pipeline {first.total()}; it chooses "
            "them at random, which cannot be divided among workers."
        )
    return _expected(how, single, alone, numbers=numbers)


def _expected(how: Measure, made: live.LivePipeline, epochs: list[Epoch], *, numbers: bool) -> Expected:
    key = Identity.NUMBER if numbers else Identity.DIGEST
    files = files_in(epochs[0]) if numbers else ()
    found = tuple(epoch.counts(key) for epoch in epochs)
    stored = stored_by(made, epochs, key) if how.counted != "first elements" else None
    return Expected(found, key, Identity.NAME if how.counted == "files" else key, files, stored)


def stored_by(made: live.LivePipeline, epochs: Sequence[Epoch], key: Identity) -> Stored | None:
    """What the elements of these epochs of `made` are of on storage; None where that is not known."""
    if any(epoch.numbers is None for epoch in epochs):
        return None
    return stored_bytes.stored(
        made, [(epoch.numbers, epoch.digests) for epoch in epochs], key, inside=epochs[0].inside
    )


def files_in(epoch: Epoch) -> tuple[int, ...]:
    """Elements in each file, in the order of their numbers; () where elements do not come from files."""
    if not epoch.inside:
        return ()
    _, counts = np.unique(epoch.numbers >> INSIDE_BITS, return_counts=True)
    return tuple(counts.tolist())


def epochs_of(how: Measure, made: live.LivePipeline, key: Identity) -> list[Counter[int]]:
    """What each epoch of a module's pipeline gives."""
    epochs = read_epochs(made, how.reduce(made.pipeline), how.epochs)
    return [epoch.counts(key) for epoch in epochs]


def read_epochs(source: live.LivePipeline, reduced: Pipeline, count: int) -> list[Epoch]:
    """So many times the first epoch of `reduced`, an edited form of `source`.

    Building costs more than reading a small epoch: one dataset is read again, unless it goes on with its draws then.

    Raises:
        CannotExpress: the pipeline fails on its way.
        CannotReplay: it gives too many to count.
    """
    found = probe.numbered_groups(source, reduced, _GROUP)
    epochs = [_read(*found)]
    begins_anew = all(_begins_anew(node) for node in reduced)
    while len(epochs) < count:
        epochs.append(_read(*(found if begins_anew else probe.numbered_groups(source, reduced, _GROUP))))
    return epochs


def read_epoch(source: live.LivePipeline, reduced: Pipeline) -> Epoch:
    """One of them."""
    return read_epochs(source, reduced, 1)[0]


def _begins_anew(node: Node) -> bool:
    """Whether what an operator does in an epoch does not depend on those before."""
    function = node.function
    draws = function is not None and (function.random or not function.stateless)
    shuffles = any("Shuffle" in kind for kind in node.inner)
    return facts(node.op).epochs is Epochs.SAME and not draws and not shuffles


def _read(dataset: Any, numbers: bool, inside: bool) -> Epoch:
    parts = [np.asarray(part) for part in groups(dataset)]
    columns = np.concatenate(parts) if parts else np.zeros((0, 2 if numbers else 1), np.int64)
    return Epoch(columns[:, -1], columns[:, 0] if numbers else None, inside)


def count_epoch(dataset: Any) -> Counter[int]:
    """How often each fingerprint comes.

    Raises:
        CannotExpress: the pipeline fails on its way.
        CannotReplay: it gives too many to count.
    """
    found: Counter[int] = Counter()
    for group in groups(dataset.batch(_GROUP)):
        found.update(group.tolist())
    return found


def groups(dataset: Any) -> Iterator[Any]:
    """The groups of an epoch, as arrays of so many elements."""
    count = 0
    with running():
        for group in dataset.take(MOST_COUNTED // _GROUP + 1).as_numpy_iterator():
            count += len(group)
            yield group
    if count > MOST_COUNTED:
        raise CannotReplay(f"The pipeline gives more than {MOST_COUNTED} elements.")


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
