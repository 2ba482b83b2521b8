"""The pipeline that each worker of a job would run, built in this process as the script or TensorFlow would do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, SetArgument
from pipetune.core.errors import CannotExpress, CannotReplay, PipetuneError
from pipetune.core.pipeline import Node, Pipeline
from pipetune.model import autosharding, sharding
from pipetune.tf import private
from pipetune.tf.pipelines import live
from pipetune.tf.standalone import counting

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's


@dataclass(frozen=True)
class Job:
    """The workers that the data is divided among."""

    workers: int
    policy: str = ""  # auto-shard policy of the strategy that distributes it: "AUTO", "FILE", ...; "" without one
    replicas_per_worker: int = 1
    own_index: int | None = None  # index of this process among the workers; None: unknown
    asks: bool = False  # whether the script queries which worker it is


class Refused(Exception):
    """TensorFlow cannot divide the data under this policy."""

    def __init__(self, policy: str, why: str) -> None:
        super().__init__(why)
        self.policy = policy


def applied(source: live.LivePipeline, job: Job) -> str:
    """Returns the policy that TensorFlow applies to the script's dataset: "FILE", "DATA" or "OFF".

    Raises:
        Refused: the policy does not fit the dataset.
        CannotExpress: the pipeline fails at its first element.
    """
    policy = sharding.AutoShardPolicy(job.policy.lower())
    try:
        found = sharding.applied_policy(
            policy, from_files=bool(autosharding.found(source.pipeline)), workers=job.workers
        )
    except PipetuneError as error:
        raise Refused(policy.name, error.message) from error
    if found is sharding.AutoShardPolicy.FILE:
        _try_files(source, job)
    return found.name


def _try_files(source: live.LivePipeline, job: Job) -> None:
    """Lets TensorFlow divide the script's own dataset by files, and takes the first element on the first worker."""
    try:
        with counting.running():
            for _ in of_worker(source.dataset, "FILE", job, worker=0).take(1):
                pass
    except tf.errors.OpError as error:  # while the dataset is built
        raise Refused("FILE", "it finds no files that it can divide") from error
    except CannotExpress as error:
        if not isinstance(error.__cause__, tf.errors.InvalidArgumentError):
            raise
        raise Refused("FILE", "it gives each worker whole files, and finds fewer of them than workers") from error


def of_worker(dataset: Any, policy: str, job: Job, *, worker: int) -> Any:
    """Returns what a strategy makes of `dataset` on the worker with this index."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return private.pipeline_of_worker(
        dataset.with_options(options),
        workers=job.workers,
        worker=worker,
        replicas=job.workers * job.replicas_per_worker,
    )


def divided_by_file(pipeline: Pipeline, workers: int, worker: int) -> Pipeline:
    """Adds the shard that TensorFlow would put before the operators that read files and those that shuffle their names.

    TensorFlow finds readers inside functions that are called directly, but not inside those that numbering wraps.
    """
    edits = []
    for name in autosharding.found(pipeline).divided_at:
        above = pipeline[pipeline[name].inputs[0]]
        while above.op == "shuffle":
            above = pipeline[above.inputs[0]]
        arguments = {"num_shards": workers, "index": worker}
        edits.append(Insert(after=above.id, op="shard", id=f"shard@{name}", arguments=arguments))
    return apply_edits(pipeline, edits)


def pipelines(pipeline: Pipeline, job: Job) -> Iterator[Pipeline]:
    """Yields the script's pipeline as each worker would build it.

    Raises:
        CannotReplay: that cannot be determined.
    """
    own = [node for node in pipeline if node.op == "shard"]
    inside = any(kernel.startswith("Shard") for node in pipeline for kernel in node.inner)
    if job.asks and (inside or not own):
        raise CannotReplay("The script asks which worker it is, and may divide the data where it cannot be followed.")
    if job.asks and any(node.argument("index") != job.own_index for node in own):
        raise CannotReplay("The script's own shard does not follow the number of the worker.")
    for worker in range(job.workers):
        edits = [SetArgument(node.id, "index", worker) for node in own] if job.asks else []
        if any(worker >= _shards(node) for node in own) and job.asks:
            raise CannotReplay(f"The script's own shard has no part for {job.workers} workers.")
        yield apply_edits(pipeline, edits)


def _shards(node: Node) -> int:
    count = node.argument("num_shards")
    return count if isinstance(count, int) else 0
