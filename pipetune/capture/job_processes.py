"""Other processes that train together with this one, according to the environment of the job."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.consumption import Consumption
from pipetune.capture.distributed_input import DistributedInput
from pipetune.core import cluster
from pipetune.core.cluster import LOCAL_SIZE_VARIABLE, SIZE_VARIABLE, horovod_rank, mpi_rank
from pipetune.core.distribution import PIPELINE_PER_PROCESS, InputDistribution
from pipetune.core.files import is_library
from pipetune.lint.dataset_use import JobWorkers


@dataclass(frozen=True)
class WorkerJob:
    """The workers that the data is divided among."""

    workers: int
    policy: str = ""  # auto-shard policy of the strategy that distributes it: "AUTO", "FILE", ...; "" without one
    replicas_per_worker: int = 1
    own_index: int | None = None  # index of this process among the workers; None: unknown
    queries_index: bool = False  # whether the script queries which worker it is


_WORKER_IDENTITY = re.compile(
    r"\b(rank|local_rank|task_id|task_index|task_type|worker_index|worker_id|process_index|process_id|shard_index|"
    r"num_shards|shard_id|shard_num|input_pipeline_id|num_input_pipelines|TF_CONFIG|HOROVOD_(LOCAL_)?RANK|"
    r"OMPI_COMM_WORLD_(LOCAL_)?RANK|PMI_RANK|Get_rank)\b|\.shard\("
)
"""Names by which a script finds out which worker it is, or divides data among workers."""


def job_workers(use: Consumption) -> JobWorkers | None:
    """Returns the workers of the job; None if the environment names no job of several workers."""
    workers = workers_in_environment(os.environ, horovod="horovod" in sys.modules)
    if workers is None:
        return None
    count, by = workers
    reads_index = uses_worker_identity(_sources())
    return JobWorkers(count, by, distributed=use.sharded_across_workers, reads_worker_index=reads_index)


def handover_of(use: Consumption) -> InputDistribution | None:
    """Returns how the dataset is distributed to the replicas; None without distributed training."""
    if use.distributed_input is not None:
        return use.distributed_input.handover
    count = horovod_ranks()
    if count < 2 or use.role != "training":
        return None
    batch = tensorflow_private.inferred_batch_size(use.dataset)
    return InputDistribution("Horovod", count, PIPELINE_PER_PROCESS, count, batch)


def switching_obstacle(handed: DistributedInput | None, *, in_step: bool = False) -> str:
    """Returns why no other dataset can be distributed in the same way; '' if one can.

    Args:
        handed: how a strategy distributed the script's dataset; None if none did.
        in_step: whether the other processes that train with this one take the same steps on request.
    """
    if handed is None:
        ranks = 1 if in_step else horovod_ranks()
        return _lockstep_message(ranks, "Horovod") if ranks > 1 else ""
    facts = handed.handover
    if facts.workers > 1 and not in_step:
        return _lockstep_message(facts.workers, facts.strategy)
    if len(tensorflow_private.host_pipelines(handed.distributed)) > 1:
        return "The script's dataset function is called once per replica: one dataset cannot replace several."
    return ""


def _lockstep_message(count: int, strategy: str) -> str:
    return f"{count} processes train in lockstep under {strategy}: one process alone cannot switch to another input."


def horovod_ranks() -> int:
    """Returns how many Horovod processes train in lockstep, including this one; 1 without Horovod."""
    ranks = workers_in_environment(os.environ, horovod="horovod" in sys.modules)
    return ranks[0] if ranks is not None and ranks[1] != cluster.TF_CONFIG else 1


def local_ranks() -> int:
    """Returns how many ranks `horovodrun` has started on this machine, including this one; 1 if unknown."""
    size = os.environ.get(LOCAL_SIZE_VARIABLE, "")
    return int(size) if horovod_ranks() > 1 and size.isdecimal() else 1


def job_of(use: Consumption) -> WorkerJob | None:
    """Returns how the workers of the job divide the dataset; None if there is only one.

    Also None if a strategy calls a function of the script for each worker: its result on another worker is unknown.
    """
    known = job_workers(use)
    if known is None or known.count < 2:
        return None
    found = handover_of(use)
    if found is not None and not found.divides and found.how != PIPELINE_PER_PROCESS:
        return None
    divides = known.distributed or (found is not None and found.divides)
    return WorkerJob(
        known.count,
        policy=(found.policy if found is not None else "") or "AUTO" if divides else "",
        replicas_per_worker=found.replicas_per_worker if found is not None and divides else 1,
        own_index=own_index(os.environ),
        queries_index=known.reads_worker_index,
    )


def hypothetical_job(kind: str, dataset: Any, count: int) -> WorkerJob | None:
    """Returns a job of `count` workers that run the unchanged script; None for kinds without a division of the data.

    Args:
        kind: kind of the distributed form: "multiworker" (a strategy distributes the dataset) or "horovod" (none does).
        dataset: the script's dataset, for its sharding policy.
        count: number of workers.
    """
    if kind == "multiworker":
        policy = str(dataset.options().experimental_distribute.auto_shard_policy.name)
        return WorkerJob(count, policy, queries_index=uses_worker_identity(_sources()))
    return WorkerJob(count, queries_index=uses_worker_identity(_sources())) if kind == "horovod" else None


def own_index(environment: Mapping[str, str]) -> int | None:
    """Returns the index of this process among the workers; None if the environment does not contain it."""
    try:
        described = json.loads(environment.get(cluster.TF_CONFIG, "{}"))
        task = described.get("task", {})
        before = len(described["cluster"].get("chief", ())) if task.get("type") == "worker" else 0
        return before + int(task["index"])
    except (ValueError, AttributeError, TypeError, KeyError):
        found = horovod_rank(environment, horovod="horovod" in sys.modules)
        return found.rank if found is not None else None


def is_multi_worker(strategy: object) -> bool:
    """Whether a strategy gives each process of a job its own share of a dataset."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def workers_in_environment(environment: Mapping[str, str], *, horovod: bool) -> tuple[int, str] | None:
    """Returns how many workers the environment names, and the variable that names them; None for a single process.

    Also None with parameter servers: each worker is then meant to read all of the data.

    Args:
        environment: the environment variables.
        horovod: whether the script imports Horovod; only then `HOROVOD_SIZE` and the variables of `mpirun` count.
    """
    try:
        tasks = json.loads(environment.get(cluster.TF_CONFIG, "{}")).get("cluster", {})
        count = sum(len(tasks.get(kind, ())) for kind in ("chief", "worker"))
    except (ValueError, AttributeError, TypeError):
        return None
    if count > 1:
        return (count, cluster.TF_CONFIG) if "ps" not in tasks else None
    if not horovod:
        return None
    size = environment.get(SIZE_VARIABLE, "")  # valid without a rank, too
    if size.isdecimal():
        return (int(size), SIZE_VARIABLE) if int(size) > 1 else None
    found = mpi_rank(environment)
    return (found.size, found.size_variable) if found is not None else None


def uses_worker_identity(sources: Iterable[str]) -> bool:
    """Whether one of these texts uses names that identify a worker: it may divide the data in ways not visible here."""
    return any(_WORKER_IDENTITY.search(text) for text in sources)


def _sources() -> Iterator[str]:
    """Yields the source text of the user's modules; for an unreadable one, a text that `_WORKER_IDENTITY` matches."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not is_library(file):
            try:
                with open(file, encoding="utf-8", errors="replace") as opened:
                    yield opened.read()
            except OSError:
                yield "rank"
