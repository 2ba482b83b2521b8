"""Starts and ends the local workers of a job that trains in lockstep, each with its own `TF_CONFIG`."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core import cluster as tasks
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job
from pipetune.supervisor import accelerators
from pipetune.supervisor.offspring import adopted
from pipetune.supervisor.others import Beside, Other
from pipetune.supervisor.process import WORKER_COMMAND, WorkerProcess, worker


@dataclass(frozen=True)
class Cluster:
    """Running workers: the chief, which runs the analysis, and its peers in index order."""

    chief: WorkerProcess
    others: tuple[Beside, ...] = ()


@contextlib.contextmanager
def started(
    job: Job, *, workers: int, logs: Sequence[Path], command: Sequence[str] = WORKER_COMMAND
) -> Iterator[Cluster]:
    """Start the worker processes of `job`; on exit, they and everything they started have ended.

    Args:
        job: the task of the chief; the other workers run the same script and follow the chief's orders.
        workers: 1 starts a single process without `TF_CONFIG`, for a script without a cluster.
        logs: one file per worker, for what its script prints.
        command: starts a worker; the path of the job file is appended.

    Raises:
        PipetuneError: no process can be started, or there are no free ports.
    """
    if workers == 1:
        with worker(job, log=logs[0], command=command) as alone:
            yield Cluster(alone)
        return
    addresses, gpus = free_addresses(workers), accelerators.gpus(os.environ)
    with contextlib.ExitStack() as stack:
        stack.enter_context(adopted())
        running = []
        with contextlib.ExitStack() as ends:  # our copies: with them closed, a closed link means an exited peer
            pairs = [socket.socketpair() for _ in range(workers - 1)]
            for pair in pairs:
                for end in pair:
                    ends.enter_context(end)
            for index in range(workers):
                mine = [near for near, _ in pairs] if index == 0 else [pairs[index - 1][1]]
                task = tasks.Task(index, workers, tuple(end.fileno() for end in mine))
                one = worker(
                    replace(job, task=task, orders=job.orders if index == 0 else -1),
                    log=logs[index],
                    command=command,
                    alone=False,
                    environment={
                        tasks.VARIABLE: tasks.configuration(addresses, index),
                        **accelerators.share(gpus, workers=workers, index=index),
                    },
                )
                running.append(stack.enter_context(one))
        others = (Other(index, running[index], log=logs[index]) for index in range(1, workers))
        yield Cluster(running[0], tuple(others))


def free_addresses(count: int) -> list[str]:
    """Returns `count` free addresses of this machine, each "host:port".

    Raises:
        PipetuneError: there are not enough free ports.
    """
    try:
        return tasks.free_addresses(count)
    except OSError as error:
        raise PipetuneError(
            f"There are no {count} free ports on {tasks.LOOPBACK} for the workers: {error.strerror or error}.",
            hint="End what holds them, or analyse one process, without --workers.",
            exit_code=1,
        ) from error
