"""Memory of the input of one host that feeds several replicas.

`distribute_datasets_from_function` runs the pipeline as it is, each element for one replica.
`experimental_distribute_dataset` makes every host build whole global batches and splits them, so that the memory of the
batch and of everything downstream of it grows with the replicas of the whole job; it then adds a prefetch of as many
elements as the host has replicas (`rebatch(...).prefetch(num_replicas_per_worker)` in `distribute/input_lib.py`). Both
pass elements to the devices through a buffer of one element per device (`multi_device_iterator_ops.py`).
"""

from __future__ import annotations

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.sizing import Basis, Job, Quantity
from pipetune.model.memory import by_operator

_MEBIBYTE = 2**20


def unexplained_bytes(pipeline: Pipeline, profile: Profile, *, cores: float) -> float:
    """Bytes of the measured peak of `pipeline` beyond its buffers: kernels' scratch memory, allocators' free lists."""
    if profile.peak_rss_mib is None:
        return 0.0
    return max(0.0, profile.peak_rss_mib * _MEBIBYTE - sum(by_operator(pipeline, profile, cores=cores).values()))


def per_replica(pipeline: Pipeline, profile: Profile, job: Job, *, unexplained: float = 0.0) -> Quantity | None:
    """Bytes above the baseline of the process with a separate batch per replica; None if element sizes are unknown.

    The range goes from the bytes of the buffers to these plus `unexplained` bytes. An in-memory cache holds at least
    the host's share of the files, and at most everything.
    """
    held = _held(pipeline, profile, job, grown=job.batch_examples / profile.examples_per_element)
    ahead = _ahead(profile, job, elements=job.on_one_host)
    return None if ahead is None else _range(pipeline, held, ahead, job, unexplained)


def rebatched(pipeline: Pipeline, profile: Profile, job: Job, *, unexplained: float = 0.0) -> Quantity | None:
    """The same if every host builds whole global batches and splits them; None also for a pipeline without a batch."""
    if not _batched(pipeline):
        return None
    held = _held(pipeline, profile, job, grown=job.batch_examples * job.replicas / profile.examples_per_element)
    ahead = _ahead(profile, job, elements=2 * job.on_one_host)
    return None if ahead is None else _range(pipeline, held, ahead, job, unexplained)


def _held(pipeline: Pipeline, profile: Profile, job: Job, *, grown: float) -> dict[str, float]:
    """Buffered bytes by operator; those of batches and of everything downstream are multiplied by `grown`."""
    growing = _batched(pipeline)
    held = by_operator(pipeline, profile, cores=job.host_cores)
    return {name: size * grown if name in growing else size for name, size in held.items()}


def _ahead(profile: Profile, job: Job, *, elements: int) -> float | None:
    """Bytes of `elements` elements with the batch size of one replica; None if element sizes are unknown."""
    if profile.element_bytes is None:
        return None
    return elements * profile.element_bytes * job.batch_examples / profile.examples_per_element


def _range(pipeline: Pipeline, held: dict[str, float], ahead: float, job: Job, unexplained: float) -> Quantity:
    cached = sum(held[node.id] for node in pipeline if node.op == "cache")
    most = sum(held.values()) + ahead
    return Quantity(most - cached * (1 - 1 / job.hosts), most + unexplained, Basis.PREDICTED)


def _batched(pipeline: Pipeline) -> frozenset[str]:
    """The last batching operator and everything downstream of it: their memory grows with the batch size."""
    making = [node.id for node in pipeline if facts(node.op).batches and facts(node.op).count is Count.FEWER]
    if not making:
        return frozenset()
    return frozenset({making[-1], *(node.id for node in pipeline.downstream(making[-1]))})
