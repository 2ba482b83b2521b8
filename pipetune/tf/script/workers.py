"""Other processes that train together with this one, as far as the environment of the job tells."""

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
"""Names by which a script finds out which worker it is, or divides data over them."""


def of(use: Consumption) -> Workers | None:
    """The workers of the job; None where the script trains alone."""
    told = told_by(os.environ, horovod="horovod" in sys.modules)
    if told is None:
        return None
    count, by = told
    return Workers(count, by, distributed=use.across_workers, asked=asks(_sources()))


def handover(use: Consumption) -> Handover | None:
    """How the dataset comes to the replicas that train on it; None where the script trains alone."""
    if use.handed is not None:
        return use.handed.facts()
    count = ranks()
    if count < 2 or use.role != "training":
        return None
    return Handover("Horovod", count, OWN_PIPELINES, count, private.batch_size_seen(use.dataset))


def ranks() -> int:
    """How many processes of Horovod train in step, this one among them; 1 where the script trains without."""
    told = told_by(os.environ, horovod="horovod" in sys.modules)
    return told[0] if told is not None and told[1] != cluster.VARIABLE else 1


def ranks_here() -> int:
    """How many of them `horovodrun` has started on this machine, this one among them; 1 where nothing tells."""
    told = os.environ.get(LOCAL_RANKS, "")
    return int(told) if ranks() > 1 and told.isdecimal() else 1


def job(use: Consumption) -> Job | None:
    """How the workers of the job divide the dataset; None where the script trains alone.

    None too where a strategy calls a function of the script for each worker: what it would make for another one is
    not to be seen here.
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
    """The job of so many workers that would run the script as it is; None for kinds that divide nothing between them.

    Args:
        kind: as of a distributed form: "multiworker" has the dataset handed over to the strategy, "horovod" has not.
    """
    if kind == "multiworker":
        policy = str(dataset.options().experimental_distribute.auto_shard_policy.name)
        return Job(count, policy, asks=asks(_sources()))
    return Job(count, asks=asks(_sources())) if kind == "horovod" else None


def own_index(environment: Mapping[str, str]) -> int | None:
    """Which of the workers this process is; None where the environment does not tell."""
    try:
        described = json.loads(environment.get(cluster.VARIABLE, "{}"))
        task = described.get("task", {})
        before = len(described["cluster"].get("chief", ())) if task.get("type") == "worker" else 0
        return before + int(task["index"])
    except (ValueError, AttributeError, TypeError, KeyError):
        found = rank_in(environment, horovod="horovod" in sys.modules)
        return found.rank if found is not None else None


def across(strategy: object) -> bool:
    """Whether a strategy gives each process of a job its share of a dataset."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def told_by(environment: Mapping[str, str], *, horovod: bool) -> tuple[int, str] | None:
    """How many workers the environment names, and the variable that does; None without one.

    With parameter servers each worker reads all of the data, as it is meant there.

    Args:
        horovod: whether the script imports it: only then `HOROVOD_SIZE`, or what `mpirun` tells, is about it.
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
    size = environment.get(RANKS, "")  # without a rank it tells as much
    if size.isdecimal():
        return (int(size), RANKS) if int(size) > 1 else None
    found = rank_by_mpi(environment)
    return (found.ranks, found.number_told_by) if found is not None else None


def asks(sources: Iterable[str]) -> bool:
    """Whether one of these texts names what tells workers apart: it may divide the data in ways nobody sees."""
    return any(_ASKS.search(text) for text in sources)


def _sources() -> Iterator[str]:
    """The texts of the user's modules; what cannot be read counts as one that asks."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not capture.is_library(file):
            try:
                with open(file, encoding="utf-8", errors="replace") as opened:
                    yield opened.read()
            except OSError:
                yield "rank"
