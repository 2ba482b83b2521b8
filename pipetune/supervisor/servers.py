"""Runs a parameter server job on this machine: the chief, which is analyzed, workers and parameter servers.

Source: "Parameter server training with ParameterServerStrategy" (guide), "Clusters in the real world".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipetune.core.cluster import VARIABLE, task_configuration, with_servers
from pipetune.core.messages import Job, Mode
from pipetune.supervisor import accelerators
from pipetune.supervisor.cluster import Cluster, free_addresses
from pipetune.supervisor.offspring import adopted
from pipetune.supervisor.others import Other
from pipetune.supervisor.process import WORKER_COMMAND, worker

_KINDS = {"worker": "worker", "ps": "parameter server"}


@contextlib.contextmanager
def started_with_servers(
    job: Job, *, workers: int, servers: int, logs: Sequence[Path], command: Sequence[str] = WORKER_COMMAND
) -> Iterator[Cluster]:
    """Start the processes, each with its `TF_CONFIG`; on exit, they and everything they started have ended.

    Args:
        job: the task of the chief; all others run the same script without measuring, to serve the chief.
        workers: number of worker processes, the chief not included.
        servers: number of parameter servers.
        logs: one file per process for what the script prints, in the order of `core.cluster.with_servers`.
        command: starts a process; the path of the job file is appended.

    Raises:
        PipetuneError: no process can be started, or there are no free ports.
    """
    tasks = with_servers(workers=workers, servers=servers)
    free, gpus = iter(free_addresses(len(tasks))), accelerators.gpus(os.environ)
    cluster: dict[str, list[str]] = {}
    for kind, _ in tasks:
        cluster.setdefault(kind, []).append(next(free))
    with contextlib.ExitStack() as stack:
        stack.enter_context(adopted())
        running = [
            stack.enter_context(
                worker(
                    job if kind == "chief" else replace(job, mode=Mode.SERVE, orders=-1),
                    log=log,
                    command=command,
                    alone=False,
                    environment={
                        VARIABLE: task_configuration(cluster, kind, index),
                        **accelerators.share(gpus, workers=workers if kind == "worker" else 0, index=index),
                    },
                )
            )
            for (kind, index), log in zip(tasks, logs, strict=True)
        ]
        others = (
            Other(number, one, log=log, task=f"{_KINDS[kind]} {index}")
            for number, ((kind, index), one, log) in enumerate(zip(tasks, running, logs, strict=True))
            if kind != "chief"
        )
        yield Cluster(running[0], tuple(others))
