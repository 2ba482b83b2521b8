"""Where a training job stops scaling: each limit as the number of replicas up to which all of them are fed.

Limits of one host (cores, threads, network) are numbers of replicas on that host: adding hosts does not reach them.
Limits of the whole job (storage, files, data) are total numbers of replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.core import amounts
from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import INFINITE, Pipeline
from pipetune.core.profile import Profile
from pipetune.core.sizing import PER_HOST, Basis, Ceiling, Feed, FilesNeeded, Job, Limit, Quantity, Rung

_HALVINGS = 6
"""The table starts at the job's number of replicas halved this many times, and ends at twice that number."""


def ceilings(
    job: Job, feed: Feed, *, files: FilesNeeded, epoch_examples: int | None, read_bytes: Quantity | None
) -> tuple[Ceiling, ...]:
    """All known limits, by the number of replicas at which the job would reach them, the lowest first.

    Args:
        job: the training job.
        feed: what its input needs and delivers.
        files: the files that the hosts divide among them.
        epoch_examples: examples in an epoch; None if unknown.
        read_bytes: bytes read from storage per example; None if unknown.
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
    """The job at several sizes, up to twice as many replicas, and the rate that its input delivers there.

    Args:
        job: the training job.
        limits: its limits, as from `ceilings`.
        known: whether the rate of a host is known; if not, the delivered rate is not known either.
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
            continue  # limits the number of steps, not the rate
        if one.limit in PER_HOST:
            most = replicas * min(1.0, one.replicas.low / on_full)  # all replicas wait for those of a full host
        else:
            most = min(float(replicas), one.replicas.low)
        if most < fed:
            fed, held_by = most, one.limit
    if held_by is None and any(one.limit is Limit.DATA and one.replicas.low < replicas for one in limits):
        held_by = Limit.DATA
    return Rung(replicas, hosts, replicas * job.replica_rate, fed * job.replica_rate if known else None, held_by)


def epoch_examples(pipeline: Pipeline, profile: Profile) -> int | None:
    """The most examples in an epoch, counted upstream of `repeat`; None if unknown.

    Walks upstream only through operators that pass every element on, or put elements into batches.
    """
    node, per_element, found = pipeline.output, profile.examples_per_element, None
    while True:
        count = amounts.elements_at_most(pipeline, profile, node.id)
        if count is not None and count != INFINITE:
            found = round(count * per_element)
        operator = facts(node.op)
        if node.op == "repeat":
            found = None  # it counted several epochs
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
