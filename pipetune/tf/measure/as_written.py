"""What each worker of a job gets from the script's original pipeline, determined in one process, worker by worker.

If a strategy divides the data, TensorFlow builds the pipeline that each worker would run, and that pipeline is
executed. Otherwise every worker runs the script's pipeline, with the script's own `shard` set for that worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.coverage import AsWritten, Coverage, Identity, WorkerShare
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Remove
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.model import autosharding, sharding
from pipetune.model.coverage import coverage
from pipetune.model.delivered import coverage_of
from pipetune.model.distributing import dataset_delivery, function_delivery
from pipetune.tf.measure.worker_pipelines import Job, Refused, applied, divided_by_file, of_worker, pipelines
from pipetune.tf.pipelines import live
from pipetune.tf.standalone import counting, probe, stored_bytes

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_BATCHES = frozenset({"batch", "padded_batch"})
_MOST_COMPUTED = 5_000_000  # elements; the computation takes 1 to 2 s
_WHOLE_BATCHES = frozenset({"take", "skip", "zip", "concatenate", "unbatch", "rebatch", "shard"})


def divide(source: live.LivePipeline, job: Job, *, most_bytes: int = counting.MOST_BYTES) -> AsWritten:
    """Returns what each worker of `job` gets; where that cannot be determined, the result holds the reason.

    Args:
        source: the live original pipeline.
        job: the workers, and the auto-shard policy of their strategy.
        most_bytes: bytes of files up to which elements are read and counted; beyond it the coverage is computed from
            the number of elements, if possible.
    """
    policy = ""
    try:
        made = list(pipelines(source.pipeline, job))
        if job.policy:
            policy = applied(source, job)
        found = _Division(source, job, policy, most_bytes).count(made)
    except _TooLong as error:
        computed, sizes = _by_arithmetic(source.pipeline, job, policy), stored_bytes.file_sizes(source)
        return AsWritten(
            job.workers,
            computed,
            policy,
            why="" if computed is not None else error.message,
            stopped_at=_stopped_at(source, policy),
            files=len(sizes),
            file_bytes=sum(sizes) if sizes else None,
        )
    except (CannotReplay, CannotExpress) as error:
        return AsWritten(job.workers, policy=policy, why=error.message)
    except Refused as refusal:
        return AsWritten(job.workers, policy=refusal.policy, why=str(refusal), refused=True)
    return AsWritten(job.workers, found, policy, stopped_at=_stopped_at(source, policy))


def _stopped_at(source: live.LivePipeline, policy: str) -> str:
    return autosharding.found(source.pipeline).stopped_at if policy == "DATA" else ""


class _TooLong(CannotReplay):
    """There is too much data to count its elements here."""


def _by_arithmetic(pipeline: Pipeline, job: Job, policy: str) -> Coverage | None:
    """Computes the coverage from the number of elements, without running anything; None where that is not possible.

    It is possible only if that number is known, and the data is divided neither by files, whose sizes would matter,
    nor by the script's own `shard`.
    """
    batches = [node for node in pipeline if node.op in _BATCHES]
    elements = pipeline[batches[-1].inputs[0]].cardinality if batches else INFINITE
    size = _size(batches[-1]) if batches else None
    if size is None or not 0 <= elements <= _MOST_COMPUTED or any(node.op == "shard" for node in pipeline):
        return None
    if policy == "FILE" or (policy == "DATA" and any(map(_unseeded, pipeline))):
        return None
    if not policy:
        everything = sharding.AutoShardPolicy.OFF
        return coverage_of(function_delivery([elements], size, workers=job.workers, by=everything))
    delivery = dataset_delivery(
        [elements],
        size,
        workers=job.workers,
        replicas_per_worker=job.replicas_per_worker,
        policy=sharding.AutoShardPolicy(policy.lower()),
        batch_size_known=autosharding.batch_size_known(pipeline),
    )
    return coverage_of(delivery)


class _Division:
    """Counts the elements that each worker of one job gets."""

    def __init__(self, source: live.LivePipeline, job: Job, policy: str, most_bytes: int) -> None:
        pipeline = source.pipeline
        try:
            how = counting.measure(source, source, pipeline, "", most_bytes)
        except CannotReplay as error:
            raise _TooLong(error.message) from error
        if how.counted != "elements":
            raise _TooLong("The data is too long to be counted.")
        self._source, self._job, self._policy = source, job, policy
        batches = [node for node in pipeline if node.op in _BATCHES]
        self._batch = _size(batches[-1]) if batches else None
        below = pipeline.downstream(batches[-1].id) if batches else ()
        if any(node.op in _WHOLE_BATCHES for node in below):
            raise CannotReplay("Whole batches are taken or joined behind the batch.")
        if policy and self._batch is None:
            raise CannotReplay("The pipeline does not batch, so that a strategy cannot divide its elements.")

    def count(self, made: list[Pipeline]) -> Coverage:
        """Counts what each worker gets in one epoch; `made` holds the pipeline that each worker would build."""
        whole = self._source.pipeline
        own = [node.id for node in whole if node.op == "shard"]
        data = probe.of_elements(apply_edits(whole, [Remove(name) for name in own]))
        epochs = counting.read_epochs(self._source, data, 2)
        first, second = (epoch.counts(Identity.DIGEST) for epoch in epochs)
        if first != second:
            raise CannotReplay("The pipeline chooses its elements at random, anew in each epoch.")
        told_by = Identity.NUMBER if epochs[0].numbers_like(epochs[1]) else Identity.DIGEST
        wanted = epochs[0].counts(told_by)
        parts = [list(self._minibatches(pipeline, worker, told_by)) for worker, pipeline in enumerate(made)]
        given = [[_counts(mine)] for mine in parts]
        files = counting.files_in(epochs[0]) if told_by is Identity.NUMBER else ()
        found = coverage(
            [wanted],
            given,
            told_by=told_by,
            files=files,
            stored=counting.stored_by(self._source, epochs[:1], told_by),
            reads_all=self._reads_all,
        )
        return replace(
            found,
            workers=tuple(self._share(found, index, mine) for index, mine in enumerate(parts)),
            replicas_per_worker=self._job.replicas_per_worker,
        )

    def _share(self, found: Coverage, index: int, minibatches: list[Any]) -> WorkerShare:
        share = found.workers[index]
        full = max(1, (self._batch or 1) // (self._replicas if self._policy else 1))
        return replace(
            share,
            batches=len(minibatches),
            short_batches=sum(len(rows) < full for rows in minibatches),
            read=found.elements if self._reads_all else self._of_files(found, share),
        )

    def _of_files(self, found: Coverage, share: WorkerShare) -> int | None:
        """Elements in the files that a worker reads, with those its own `shard` drops afterwards; None if unknown."""
        if not self._reads_before_its_shard():
            return share.elements
        mine = zip(found.cells, share.cells, strict=True)
        return sum(size for size, count in mine if count) if found.by_file else None

    @property
    def _reads_all(self) -> bool:
        """Whether every worker reads all of the data."""
        return self._policy in ("DATA", "OFF") if self._policy else self._reads_before_its_shard()

    @property
    def _replicas(self) -> int:
        return self._job.workers * self._job.replicas_per_worker

    def _reads_before_its_shard(self) -> bool:
        pipeline = self._source.pipeline
        for node in pipeline:
            if node.op == "shard":
                return any(above.op in autosharding.READERS or above.inner for above in pipeline.upstream(node.id))
        return False

    def _minibatches(self, pipeline: Pipeline, worker: int, told_by: Identity) -> Iterator[Any]:
        """Yields the batches of a worker's replicas: 1-D int64 arrays of the keys that identify the elements."""
        policy = self._policy
        if policy == "FILE" and all(pipeline[name].inputs for name in autosharding.found(pipeline).divided_at):
            pipeline, policy = divided_by_file(pipeline, self._job.workers, worker), "OFF"
        look = probe.numbers if told_by is Identity.NUMBER else probe.fingerprints
        # Under DATA a worker keeps its part of the order in which it reads, and that order may differ per worker.
        reduced = probe.of_elements(pipeline, in_order=policy == "DATA")
        dataset = look(self._source, reduced).batch(self._batch or 1)
        if policy:
            # A map after the batch hides the batch size from TensorFlow, as the script's own operators do.
            if not autosharding.batch_size_known(self._source.pipeline):
                dataset = dataset.map(tf.autograph.experimental.do_not_convert(lambda rows: rows + 0))
            dataset = of_worker(dataset, policy, self._job, worker=worker)
        with counting.running():
            yield from dataset.as_numpy_iterator()


def _unseeded(node: Node) -> bool:
    return node.op == "shuffle" and node.argument("seed") is None


def _size(node: Node) -> int | None:
    size = node.argument("batch_size")
    return size if isinstance(size, int) and size > 0 else None


def _counts(minibatches: list[Any]) -> dict[int, int]:
    if not minibatches:
        return {}
    keys, counts = np.unique(np.concatenate(minibatches), return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))
