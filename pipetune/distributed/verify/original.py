"""What each worker of a job receives from the script's original pipeline, determined in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.job_processes import WorkerJob
from pipetune.core.distribution import Coverage, ElementIdentity, OriginalSharding, WorkerShare
from pipetune.core.edits import Insert, Remove, SetArgument, apply_edits
from pipetune.core.errors import CannotExpress, CannotReplay, PipetuneError
from pipetune.core.operators import READERS
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.distributed.emit.sharding import BATCHES
from pipetune.distributed.verify import counting, numbering
from pipetune.model import coverage
from pipetune.model.coverage import computed_coverage, worst_coverage
from pipetune.pipelines import live

MOST_BYTES = 64 * 2**20
"""Of files that are read to count elements, about twice by each worker; beyond it the coverage is computed from the
number of elements, if possible."""


class _DivisionRefused(Exception):
    """TensorFlow cannot divide the data: under which policy, and why."""


def _applied_policy(source: live.LivePipeline, job: WorkerJob) -> str:
    """Returns the policy that TensorFlow applies to the script's dataset: "FILE", "DATA" or "OFF"."""
    policy = coverage.AutoShardPolicy(job.policy.lower())
    try:
        from_files = bool(coverage.find_shardable_files(source.pipeline))
        found = coverage.applied_policy(policy, from_files=from_files, workers=job.workers)
    except PipetuneError as error:
        raise _DivisionRefused(policy.name, error.message) from error
    if found is coverage.AutoShardPolicy.FILE:
        _try_files(source, job)
    return found.name


def _try_files(source: live.LivePipeline, job: WorkerJob) -> None:
    """Divides the script's own dataset by files through TensorFlow, and takes the first element of the first worker."""
    try:
        with counting.running():
            for _ in _worker_dataset(source.dataset, "FILE", job, worker=0).take(1):
                pass
    except tf.errors.OpError as error:  # while the dataset is built
        raise _DivisionRefused("FILE", "it finds no files that it can divide") from error
    except CannotExpress as error:
        if not isinstance(error.__cause__, tf.errors.InvalidArgumentError):
            raise
        why = "it assigns whole files to workers, and there are fewer files than workers"
        raise _DivisionRefused("FILE", why) from error


def _worker_dataset(dataset: Any, policy: str, job: WorkerJob, *, worker: int) -> Any:
    """Returns the pipeline that a strategy builds from the script's dataset on one worker."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    dataset, replicas = dataset.with_options(options), job.workers * job.replicas_per_worker
    return tensorflow_private.worker_pipeline(dataset, workers=job.workers, worker=worker, replicas=replicas)


def _sharded_by_file(pipeline: Pipeline, workers: int, worker: int) -> Pipeline:
    """Returns the pipeline with the `shard`s that TensorFlow would insert upstream of readers and file-name shuffles.

    TensorFlow finds readers in functions that are called directly, but not in those that `numbering` wraps.
    """
    edits = []
    for name in coverage.find_shardable_files(pipeline).divided_at:
        above = pipeline[pipeline[name].inputs[0]]
        while above.op == "shuffle":
            above = pipeline[above.inputs[0]]
        arguments = {"num_shards": workers, "index": worker}
        edits.append(Insert(after=above.id, op="shard", id=f"shard@{name}", arguments=arguments))
    return apply_edits(pipeline, edits)


def _pipelines_by_worker(pipeline: Pipeline, job: WorkerJob) -> Iterator[Pipeline]:
    """Yields the script's pipeline as each worker would build it."""
    own = [node for node in pipeline if node.op == "shard"]
    inside = any(kernel.startswith("Shard") for node in pipeline for kernel in node.inner)
    if job.queries_index and (inside or not own):
        raise CannotReplay("The script queries its worker index, and may divide the data where pipetune cannot see it.")
    if job.queries_index and any(node.argument("index") != job.own_index for node in own):
        raise CannotReplay("The index of the script's own `shard` is not the worker index.")
    counts = [count if isinstance(count := node.argument("num_shards"), int) else 0 for node in own]
    if job.queries_index and min(counts) < job.workers:
        raise CannotReplay(f"The script's own `shard` makes fewer than {job.workers} parts, one for each worker.")
    for worker in range(job.workers):
        edits = [SetArgument(node.id, "index", worker) for node in own] if job.queries_index else []
        yield apply_edits(pipeline, edits)


_MOST_COMPUTED = 5_000_000  # elements; the computation takes 1 to 2 s
_WHOLE_BATCHES = frozenset({"filter", "take", "skip", "zip", "concatenate", "unbatch", "rebatch", "shard"})


def measure_worker_coverage(source: live.LivePipeline, job: WorkerJob) -> OriginalSharding:
    """Returns what each worker of `job` receives; if that cannot be determined, the result contains the reason."""
    policy = ""
    try:
        made = list(_pipelines_by_worker(source.pipeline, job))
        if job.policy:
            policy = _applied_policy(source, job)
        found = _Division(source, job, policy).count(made)
    except _TooLong as error:
        computed, sizes = _by_arithmetic(source.pipeline, job, policy), numbering.file_sizes(source)
        return OriginalSharding(
            job.workers,
            computed,
            policy,
            why="" if computed is not None else error.message,
            stopped_at=_stopped_at(source, policy),
            files=len(sizes),
            file_bytes=sum(sizes) if sizes else None,
        )
    except (CannotReplay, CannotExpress) as error:
        return OriginalSharding(job.workers, policy=policy, why=error.message)
    except _DivisionRefused as refusal:
        policy, why = refusal.args
        return OriginalSharding(job.workers, policy=policy, why=why, refused=True)
    return OriginalSharding(job.workers, found, policy, stopped_at=_stopped_at(source, policy))


def _stopped_at(source: live.LivePipeline, policy: str) -> str:
    return coverage.find_shardable_files(source.pipeline).stopped_at if policy == "DATA" else ""


class _TooLong(CannotReplay):
    """There is too much data to count its elements here."""


def _by_arithmetic(pipeline: Pipeline, job: WorkerJob, policy: str) -> Coverage | None:
    """Computes the coverage from the number of elements, without running anything; None if that is not possible.

    It is possible only if that number is known, and the data is divided neither by files, because their sizes would
    matter, nor by the script's own `shard`.
    """
    batches = [node for node in pipeline if node.op in BATCHES]
    elements = pipeline[batches[-1].inputs[0]].cardinality if batches else INFINITE
    size = _size(batches[-1]) if batches else None
    if size is None or not 0 <= elements <= _MOST_COMPUTED or any(node.op == "shard" for node in pipeline):
        return None
    unseeded = any(node.op == "shuffle" and node.argument("seed") is None for node in pipeline)
    if policy == "FILE" or (policy == "DATA" and unseeded):
        return None
    return computed_coverage(
        elements,
        size,
        workers=job.workers,
        replicas_per_worker=job.replicas_per_worker if policy else 1,
        policy=coverage.AutoShardPolicy(policy.lower()) if policy else None,
        batch_size_known=coverage.batch_size_known(pipeline),
    )


class _Division:
    """Counts the elements that each worker of one job receives."""

    def __init__(self, source: live.LivePipeline, job: WorkerJob, policy: str) -> None:
        pipeline = source.pipeline
        try:
            how = counting.measure(source, source, pipeline, "", MOST_BYTES)
        except CannotReplay as error:
            raise _TooLong(error.message) from error
        if how.counted != "elements":
            raise _TooLong("There is too much data to count its elements.")
        self._source, self._job, self._policy = source, job, policy
        batches = [node for node in pipeline if node.op in BATCHES]
        self._batch = _size(batches[-1]) if batches else None
        below = pipeline.downstream(batches[-1].id) if batches else ()
        if any(node.op in _WHOLE_BATCHES for node in below):
            raise CannotReplay("An operator after the last `batch` selects, joins or splits whole batches.")
        if policy and self._batch is None:
            raise CannotReplay("The pipeline has no `batch`, so a strategy cannot divide its elements.")

    def count(self, made: list[Pipeline]) -> Coverage:
        """Returns what each worker receives in one epoch; `made` contains the pipeline that each worker would build."""
        whole = self._source.pipeline
        own = [node.id for node in whole if node.op == "shard"]
        data = numbering.of_elements(apply_edits(whole, [Remove(name) for name in own]))
        epochs = counting.read_epochs(self._source, data, 2)
        first, second = (epoch.counts(ElementIdentity.DIGEST) for epoch in epochs)
        if first != second:
            raise CannotReplay("The pipeline selects different elements at random in each epoch.")
        told_by = ElementIdentity.INDEX if epochs[0].numbers_like(epochs[1]) else ElementIdentity.DIGEST
        expected = epochs[0].counts(told_by)
        parts = [list(self._minibatches(pipeline, worker, told_by)) for worker, pipeline in enumerate(made)]
        given = [[Counter(key for rows in mine for key in rows.tolist())] for mine in parts]
        files = counting.files_in(epochs[0]) if told_by is ElementIdentity.INDEX else ()
        found = worst_coverage(
            [expected],
            given,
            told_by=told_by,
            files=files,
            stored=counting.stored_by(self._source, epochs[:1], told_by),
            reads_all=self._reads_all,
        )
        workers = tuple(self._share(found, index, mine) for index, mine in enumerate(parts))
        return replace(found, workers=workers, replicas_per_worker=self._job.replicas_per_worker)

    def _share(self, found: Coverage, index: int, minibatches: list[Any]) -> WorkerShare:
        share = found.workers[index]
        replicas = self._job.workers * self._job.replicas_per_worker if self._policy else 1
        full = max(1, (self._batch or 1) // replicas)
        short = sum(len(rows) < full for rows in minibatches)
        read = found.elements if self._reads_all else self._of_files(found, share)
        return replace(share, batches=len(minibatches), short_batches=short, read=read)

    def _of_files(self, found: Coverage, share: WorkerShare) -> int | None:
        """Returns the elements in all files that a worker reads, including those dropped later; None if unknown."""
        if not self._reads_before_its_shard():
            return share.elements
        mine = zip(found.cells, share.cells, strict=True)
        return sum(size for size, count in mine if count) if found.by_file else None

    @property
    def _reads_all(self) -> bool:
        """Whether every worker reads all of the data."""
        return self._policy in ("DATA", "OFF") if self._policy else self._reads_before_its_shard()

    def _reads_before_its_shard(self) -> bool:
        pipeline = self._source.pipeline
        for node in pipeline:
            if node.op == "shard":
                return any(above.op in READERS or above.inner for above in pipeline.upstream(node.id))
        return False

    def _minibatches(self, pipeline: Pipeline, worker: int, told_by: ElementIdentity) -> Iterator[Any]:
        """Yields the batches of a worker's replicas: 1-D int64 arrays of the keys that identify the elements."""
        policy = self._policy
        if policy == "FILE" and all(pipeline[at].inputs for at in coverage.find_shardable_files(pipeline).divided_at):
            pipeline, policy = _sharded_by_file(pipeline, self._job.workers, worker), "OFF"
        look = numbering.numbers if told_by is ElementIdentity.INDEX else numbering.fingerprints
        # Under DATA a worker selects elements by their position in the order it reads, which may differ per worker.
        reduced = numbering.of_elements(pipeline, in_order=policy == "DATA")
        dataset = look(self._source, reduced).batch(self._batch or 1)
        if policy:
            # A map after the batch hides the batch size from TensorFlow, as the script's own operators do.
            if not coverage.batch_size_known(self._source.pipeline):
                dataset = dataset.map(tf.autograph.experimental.do_not_convert(lambda rows: rows + 0))
            dataset = _worker_dataset(dataset, policy, self._job, worker=worker)
        with counting.running():
            yield from dataset.as_numpy_iterator()


def _size(node: Node) -> int | None:
    size = node.argument("batch_size")
    return size if isinstance(size, int) and size > 0 else None
