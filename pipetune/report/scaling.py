"""Where a job stops scaling, in words: every limit as a number of replicas, and the job at other sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipetune.core.session import DatasetResult
from pipetune.core.sizing import (
    PER_HOST_LIMITS,
    JobSize,
    QuantityRange,
    ReplicaLimit,
    ScalingLimit,
    Sizing,
    TrainingJob,
)
from pipetune.report import words
from pipetune.report.places import Places

_HELD_BY = {
    ScalingLimit.CORES: "cores of a host",
    ScalingLimit.THREADS: "threads of the input",
    ScalingLimit.NETWORK: "network of a host",
    ScalingLimit.STORAGE: "storage",
    ScalingLimit.FILES: "too few files",
    ScalingLimit.DATA: "less than a step of data",
    ScalingLimit.INPUT: "input of a host",
}


@dataclass(frozen=True)
class LimitRow:
    """One limit."""

    label: str
    sentence: str
    reached: bool


@dataclass(frozen=True)
class RungRow:
    """The job at one size."""

    replicas: str
    hosts: str
    needed: str
    delivered: str
    held_by: str
    requested: bool  # it is the size in question


@dataclass(frozen=True)
class ScalingView:
    """The first limit in a sentence, then all of them, then the table."""

    sentence: str
    limits: tuple[LimitRow, ...]
    rungs: tuple[RungRow, ...]


def scaling_view(sizing: Sizing, result: DatasetResult, places: Places) -> ScalingView:
    """The limits of a sizing of `result`."""
    limits = tuple(
        LimitRow(_HELD_BY[one.limit], _sentence(one, sizing, result, places), one.reached) for one in sizing.ceilings
    )
    first = sizing.first_ceiling
    return ScalingView(_first(first, sizing.job), limits, tuple(_rung(one, sizing) for one in sizing.rungs))


def named(node_id: str | None, result: DatasetResult, places: Places) -> str:
    """An operator and where it stands: "map (train.py:32)"."""
    pipeline = result.tuned if result.tuned is not None and node_id in result.tuned else result.pipeline
    if node_id is None or node_id not in pipeline:
        return "one thread"
    title = words.clean(pipeline[node_id].title)
    where = places.node(node_id, result.tuned, result.pipeline)
    return f"{title} ({where})" if where else title


def _first(first: ReplicaLimit | None, job: TrainingJob) -> str:
    """Where it stops, and at what."""
    size = words.count(job.replicas, "replica")
    if first is None:
        return f"Nothing that is known stops it at {size}, or at more on as many hosts more."
    replicas, why = whole_replicas(first.replicas), _HELD_BY[first.limit]
    if first.limit in PER_HOST_LIMITS:
        return f"It stops on every host, at {replicas} of {job.replicas_on_full_host:,}: {why}."
    if first.reached:
        return f"It stops at {replicas} of {job.replicas:,}: {why}."
    return f"Nothing that is known stops it at {size}; the first limit comes at {replicas}: {why}."


def whole_replicas(quantity: QuantityRange) -> str:
    """Replicas that are fed in full: "23 replicas", "23 to 25 replicas", "less than one replica"."""
    low, high = math.floor(quantity.low), math.floor(quantity.high)
    if high < 1:
        return "less than one replica"
    numbers = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{numbers} replica{'' if high == 1 else 's'}"


def _sentence(one: ReplicaLimit, sizing: Sizing, result: DatasetResult, places: Places) -> str:
    job, replicas = sizing.job, whole_replicas(one.replicas)
    match one.limit:
        case ScalingLimit.CORES:
            return f"{words.plain(job.host_cores)} cores feed {replicas} on a host."
        case ScalingLimit.THREADS:
            cores = "" if sizing.best_requirements.host_limit is ScalingLimit.THREADS else ", whatever its cores"
            return f"{words.sentence(named(one.node, result, places)).rstrip('.')} feeds {replicas} on a host{cores}."
        case ScalingLimit.INPUT:
            return f"As measured it feeds {replicas} on a host."
        case ScalingLimit.NETWORK:
            return f"It carries what {replicas} on a host read, where storage is reached over it."
        case ScalingLimit.STORAGE:
            return f"It delivers what {replicas} read."
        case ScalingLimit.FILES:
            files = words.count(sizing.files.files or 0, "file")
            return (
                f"{files} divide over as many hosts, {replicas}: a host more gets none, or each reads everything and "
                "keeps its share."
            )
        case ScalingLimit.DATA:
            examples = f"{sizing.epoch_examples:,}" if sizing.epoch_examples is not None else "its"
            return f"An epoch of {examples} examples is one step of {replicas}."


def _rung(one: JobSize, sizing: Sizing) -> RungRow:
    return RungRow(
        replicas=f"{one.replicas:,}",
        hosts=f"{one.hosts:,}",
        needed=words.rate(one.needed),
        delivered="-" if one.delivered is None else words.rate(one.delivered),
        held_by=_HELD_BY[one.held_by] if one.held_by is not None else "",
        requested=one.replicas == sizing.job.replicas,
    )
