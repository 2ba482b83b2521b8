"""Bytes that the input of one host holds when it feeds several replicas.

`distribute_datasets_from_function` runs the pipeline as it is made, each element for one replica.
`experimental_distribute_dataset` has every host make whole global batches and divides them, so that what stands at
the batch and behind it grows with the replicas of the whole job; behind that it puts a prefetch of as many elements as
the host has replicas (`rebatch(...).prefetch(num_replicas_per_worker)` in `distribute/input_lib.py`). Both hand over
through a buffer of one element per device (`multi_device_iterator_ops.py`).
"""

from __future__ import annotations

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.sizing import Basis, Job, Quantity
from pipetune.model.memory import by_operator

_MEBIBYTE = 2**20


def unexplained_bytes(pipeline: Pipeline, profile: Profile, *, cores: float) -> float:
    """What the measured peak of `pipeline` was above its buffers: scratch memory of kernels, allocators' free lists."""
    if profile.peak_rss_mib is None:
        return 0.0
    return max(0.0, profile.peak_rss_mib * _MEBIBYTE - sum(by_operator(pipeline, profile, cores=cores).values()))


def per_replica(pipeline: Pipeline, profile: Profile, job: Job, *, unexplained: float = 0.0) -> Quantity | None:
    """With a batch for each replica, bytes above the level of the process; None where element sizes are not known.

    From what the buffers hold to that with `unexplained` bytes more. A cache in memory holds a host's share of the
    files at least, and everything at most.
    """
    held = _held(pipeline, profile, job, grown=job.batch_examples / profile.examples_per_element)
    ahead = _ahead(profile, job, elements=job.on_one_host)
    return None if ahead is None else _range(pipeline, held, ahead, job, unexplained)


def rebatched(pipeline: Pipeline, profile: Profile, job: Job, *, unexplained: float = 0.0) -> Quantity | None:
    """With whole global batches on every host, divided there; None too for a pipeline that does not batch."""
    if not _batched(pipeline):
        return None
    held = _held(pipeline, profile, job, grown=job.batch_examples * job.replicas / profile.examples_per_element)
    ahead = _ahead(profile, job, elements=2 * job.on_one_host)
    return None if ahead is None else _range(pipeline, held, ahead, job, unexplained)


def _held(pipeline: Pipeline, profile: Profile, job: Job, *, grown: float) -> dict[str, float]:
    """Bytes by operator, those of batches `grown` times as large."""
    growing = _batched(pipeline)
    held = by_operator(pipeline, profile, cores=job.host_cores)
    return {name: size * grown if name in growing else size for name, size in held.items()}


def _ahead(profile: Profile, job: Job, *, elements: int) -> float | None:
    """Bytes of so many elements of one replica."""
    if profile.element_bytes is None:
        return None
    return elements * profile.element_bytes * job.batch_examples / profile.examples_per_element


def _range(pipeline: Pipeline, held: dict[str, float], ahead: float, job: Job, unexplained: float) -> Quantity:
    cached = sum(held[node.id] for node in pipeline if node.op == "cache")
    most = sum(held.values()) + ahead
    return Quantity(most - cached * (1 - 1 / job.hosts), most + unexplained, Basis.PREDICTED)


def _batched(pipeline: Pipeline) -> frozenset[str]:
    """The last operator that makes batches and all behind it: what they hold grows with the batch."""
    making = [node.id for node in pipeline if facts(node.op).batches and facts(node.op).count is Count.FEWER]
    if not making:
        return frozenset()
    return frozenset({making[-1], *(node.id for node in pipeline.downstream(making[-1]))})
