"""Where a training job stops scaling: each limit as the number of replicas up to which every one is fed.

Limits of one host (cores, threads, network) are replicas on that host: hosts more do not reach them. Limits of the
whole job (storage, files, data) are replicas in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.core import amounts
from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import INFINITE, Pipeline
from pipetune.core.profile import Profile
from pipetune.core.sizing import PER_HOST, Basis, Ceiling, Feed, FilesNeeded, Job, Limit, Quantity, Rung

_HALVINGS = 6
"""The table begins at the job's replicas halved so often, and ends at twice as many."""


def ceilings(
    job: Job, feed: Feed, *, files: FilesNeeded, epoch_examples: int | None, read_bytes: Quantity | None
) -> tuple[Ceiling, ...]:
    """Every limit that is known, by the replicas of the job at which it would be reached, the lowest first.

    Args:
        read_bytes: from storage per example.
    """
    found = []
    if feed.host_rate is not None:
        fed = feed.host_rate.times(1 / job.replica_rate)
        found.append(_ceiling(job, feed.host_limit, fed, feed.host_node))
    if feed.most_rate is not None and feed.host_limit is Limit.CORES:
        found.append(_ceiling(job, Limit.THREADS, feed.most_rate.times(1 / job.replica_rate), feed.most_node))
    read = read_bytes.high if read_bytes is not None else 0.0
    if job.network_bytes_per_second is not None and read > 0:
        found.append(_ceiling(job, Limit.NETWORK, _given(job.network_bytes_per_second / (read * job.replica_rate))))
    if job.storage_bytes_per_second is not None and read > 0:
        found.append(_ceiling(job, Limit.STORAGE, _given(job.storage_bytes_per_second / (read * job.replica_rate))))
    if files.files:
        exact = float(files.files * job.per_host)
        found.append(_ceiling(job, Limit.FILES, Quantity(exact, exact, Basis.MEASURED)))
    if epoch_examples is not None:
        most = epoch_examples / job.batch_examples
        found.append(_ceiling(job, Limit.DATA, Quantity(most, most, Basis.MEASURED)))
    return tuple(sorted(found, key=lambda one: (not one.reached and one.limit in PER_HOST, one.replicas.low)))


def rungs(job: Job, limits: Sequence[Ceiling], *, known: bool) -> tuple[Rung, ...]:
    """The job from some replicas to twice as many, and what its input delivers there.

    Args:
        known: whether the rate of a host is; else nothing can be said of what is delivered.
    """
    sizes = {-(-job.replicas // 2**power) for power in range(_HALVINGS + 1)} | {2 * job.replicas}
    return tuple(_rung(job, replicas, limits, known=known) for replicas in sorted(sizes))


def _rung(job: Job, replicas: int, limits: Sequence[Ceiling], *, known: bool) -> Rung:
    hosts = -(-replicas // job.per_host)
    on_full = min(replicas, job.per_host)
    fed = float(replicas)
    held_by: Limit | None = None
    for one in limits:
        if one.limit is Limit.DATA:
            continue  # a question of steps, not of a rate
        if one.limit in PER_HOST:
            most = replicas * min(1.0, one.replicas.low / on_full)  # all wait for the replicas of a full host
        else:
            most = min(float(replicas), one.replicas.low)
        if most < fed:
            fed, held_by = most, one.limit
    if held_by is None and any(one.limit is Limit.DATA and one.replicas.low < replicas for one in limits):
        held_by = Limit.DATA
    return Rung(replicas, hosts, replicas * job.replica_rate, fed * job.replica_rate if known else None, held_by)


def epoch_examples(pipeline: Pipeline, profile: Profile) -> int | None:
    """Examples in an epoch, at most: as counted in front of `repeat`; None where that is not known.

    Only operators that hand on each of their elements, or put them into batches, are looked through.
    """
    node, per_element, found = pipeline.output, profile.examples_per_element, None
    while True:
        count = amounts.elements_at_most(pipeline, profile, node.id)
        if count is not None and count != INFINITE:
            found = round(count * per_element)
        operator = facts(node.op)
        if node.op == "repeat":
            found = None  # of several epochs
        elif operator.batches and operator.count is Count.FEWER:
            per_element /= amounts.whole(node.argument("batch_size"), 0) or per_element
        elif operator.count is not Count.ONE_TO_ONE:
            return found
        if len(node.inputs) != 1:
            return found
        node = pipeline[node.inputs[0]]


def _ceiling(job: Job, limit: Limit, replicas: Quantity, node: str | None = None) -> Ceiling:
    asked = job.on_one_host if limit in PER_HOST else job.replicas
    return Ceiling(limit, replicas, node, reached=replicas.low < asked)


def _given(replicas: float) -> Quantity:
    return Quantity(replicas, replicas, Basis.GIVEN)
