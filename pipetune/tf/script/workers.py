"""Other processes that train together with this one, according to the environment of the job."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from pipetune.core import cluster
from pipetune.core.handover import OWN_PIPELINES, Handover
from pipetune.core.ranks import LOCAL_RANKS, RANKS, rank_by_mpi, rank_in
from pipetune.mistakes.use import Workers
from pipetune.tf import private
from pipetune.tf.measure.worker_pipelines import Job
from pipetune.tf.script import capture
from pipetune.tf.script.consumption import Consumption

_ASKS = re.compile(
    r"\b(rank|local_rank|task_id|task_index|task_type|worker_index|worker_id|process_index|process_id|shard_index|"
    r"num_shards|shard_id|shard_num|input_pipeline_id|num_input_pipelines|TF_CONFIG|HOROVOD_(LOCAL_)?RANK|"
    r"OMPI_COMM_WORLD_(LOCAL_)?RANK|PMI_RANK|Get_rank)\b|\.shard\("
)
"""Names by which a script finds out which worker it is, or divides data among workers."""


def of(use: Consumption) -> Workers | None:
    """Returns the workers of the job; None if the environment names no job of several workers."""
    told = told_by(os.environ, horovod="horovod" in sys.modules)
    if told is None:
        return None
    count, by = told
    return Workers(count, by, distributed=use.across_workers, asked=asks(_sources()))


def handover(use: Consumption) -> Handover | None:
    """Returns how the dataset is distributed to the replicas; None without distributed training."""
    if use.handed is not None:
        return use.handed.facts()
    count = ranks()
    if count < 2 or use.role != "training":
        return None
    return Handover("Horovod", count, OWN_PIPELINES, count, private.batch_size_seen(use.dataset))


def ranks() -> int:
    """Returns how many Horovod processes train in lockstep, including this one; 1 without Horovod."""
    told = told_by(os.environ, horovod="horovod" in sys.modules)
    return told[0] if told is not None and told[1] != cluster.VARIABLE else 1


def ranks_here() -> int:
    """Returns how many ranks `horovodrun` has started on this machine, including this one; 1 if unknown."""
    told = os.environ.get(LOCAL_RANKS, "")
    return int(told) if ranks() > 1 and told.isdecimal() else 1


def job(use: Consumption) -> Job | None:
    """Returns how the workers of the job divide the dataset; None if there is only one.

    Also None if a strategy calls a function of the script for each worker: what it would return on another worker
    cannot be seen here.
    """
    known = of(use)
    if known is None or known.count < 2:
        return None
    found = handover(use)
    if found is not None and not found.divides and found.how != OWN_PIPELINES:
        return None
    divides = known.distributed or (found is not None and found.divides)
    return Job(
        known.count,
        policy=(found.policy if found is not None else "") or "AUTO" if divides else "",
        replicas_per_worker=found.replicas_per_worker if found is not None and divides else 1,
        own_index=own_index(os.environ),
        asks=known.asked,
    )


def imagined(kind: str, dataset: Any, count: int) -> Job | None:
    """Returns a job of `count` workers that run the unchanged script; None for kinds without a division of the data.

    Args:
        kind: of the distributed form: "multiworker" (the strategy distributes the dataset) or "horovod" (it does not).
        dataset: the script's dataset, for its sharding policy.
        count: number of workers.
    """
    if kind == "multiworker":
        policy = str(dataset.options().experimental_distribute.auto_shard_policy.name)
        return Job(count, policy, asks=asks(_sources()))
    return Job(count, asks=asks(_sources())) if kind == "horovod" else None


def own_index(environment: Mapping[str, str]) -> int | None:
    """Returns the index of this process among the workers; None if the environment does not tell."""
    try:
        described = json.loads(environment.get(cluster.VARIABLE, "{}"))
        task = described.get("task", {})
        before = len(described["cluster"].get("chief", ())) if task.get("type") == "worker" else 0
        return before + int(task["index"])
    except (ValueError, AttributeError, TypeError, KeyError):
        found = rank_in(environment, horovod="horovod" in sys.modules)
        return found.rank if found is not None else None


def across(strategy: object) -> bool:
    """Whether a strategy gives each process of a job its own share of a dataset."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def told_by(environment: Mapping[str, str], *, horovod: bool) -> tuple[int, str] | None:
    """Returns how many workers the environment names, and the variable that names them; None for a single process.

    Also None with parameter servers: there each worker is meant to read all of the data.

    Args:
        environment: the environment variables.
        horovod: whether the script imports it: only then do `HOROVOD_SIZE` and the variables of `mpirun` refer to it.
    """
    try:
        tasks = json.loads(environment.get(cluster.VARIABLE, "{}")).get("cluster", {})
        count = sum(len(tasks.get(kind, ())) for kind in ("chief", "worker"))
    except (ValueError, AttributeError, TypeError):
        return None
    if count > 1:
        return (count, cluster.VARIABLE) if "ps" not in tasks else None
    if not horovod:
        return None
    size = environment.get(RANKS, "")  # valid without a rank, too
    if size.isdecimal():
        return (int(size), RANKS) if int(size) > 1 else None
    found = rank_by_mpi(environment)
    return (found.ranks, found.number_told_by) if found is not None else None


def asks(sources: Iterable[str]) -> bool:
    """Whether one of these texts uses names that identify a worker: it may divide the data in ways not visible here."""
    return any(_ASKS.search(text) for text in sources)


def _sources() -> Iterator[str]:
    """Yields the source text of the user's modules; for an unreadable one, a text that `asks` matches."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not capture.is_library(file):
            try:
                with open(file, encoding="utf-8", errors="replace") as opened:
                    yield opened.read()
            except OSError:
                yield "rank"
