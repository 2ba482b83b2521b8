"""The local processes of one job: workers in lockstep, their GPUs and peers, and parameter servers."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pipetune.core import cluster
from pipetune.core.cluster import TF_CONFIG, parameter_server_tasks, tf_config
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, Message, Mode
from pipetune.supervisor.process import WORKER_COMMAND, WorkerProcess, orphans_adopted, worker
from pipetune.supervisor.worker_state import MessageReader, WorkerState, describe_exit

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia(\d+)")
_NONE = "-1"
_QUERY_SECONDS = 10.0


def visible_gpus(environment: Mapping[str, str], *, devices: Iterable[str] | None = None) -> tuple[str, ...]:
    """Returns the GPUs visible to a process, as named by `CUDA_VISIBLE_DEVICES`.

    Args:
        environment: the environment of the process.
        devices: file names in /dev; None lists the nvidia* files in /dev. Not used if `CUDA_VISIBLE_DEVICES` is set.
    """
    listed = environment.get(VISIBLE_DEVICES)
    if listed is not None:
        names = [name.strip() for name in listed.split(",")]
        valid = names[: names.index(_NONE)] if _NONE in names else names  # CUDA ignores everything after an invalid id
        return tuple(name for name in valid if name)
    found = [path.name for path in Path("/dev").glob("nvidia*")] if devices is None else devices
    numbers = (match[1] for name in found if (match := _DEVICE.fullmatch(name)))
    return tuple(sorted(numbers, key=int))


def free_gpu_mib() -> float | None:
    """Returns the free memory of the fullest GPU that is visible, as `nvidia-smi` tells it; None if it does not.

    Those of all GPUs count where `CUDA_VISIBLE_DEVICES` names none that it knows: it knows no part of a GPU.
    """
    query = ("nvidia-smi", "--query-gpu=memory.free,index,uuid", "--format=csv,noheader,nounits")
    names = visible_gpus(os.environ, devices=())
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True)
        rows = [line.split(", ") for line in answer.stdout.splitlines()]
        visible = [free for free, index, uuid in rows if any(one == index or uuid.startswith(one) for one in names)]
        return min(map(float, visible or (row[0] for row in rows)), default=None)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def gpu_environment(gpus: tuple[str, ...], *, workers: int, index: int) -> dict[str, str]:
    """Returns the environment variables that give worker `index` its equal share of the GPUs.

    Hides all GPUs if there are fewer than workers; sets nothing on a machine without GPUs.

    Args:
        gpus: the GPUs of this machine, as returned by `visible_gpus`.
        workers: how many processes share the GPUs; 0 for a process that does not train, which gets none.
        index: the worker.
    """
    if not gpus:
        return {}
    each = len(gpus) // workers if workers else 0
    return {VISIBLE_DEVICES: ",".join(gpus[index * each : (index + 1) * each]) or _NONE}


_TAIL_BYTES, _TAIL_LINES = 8192, 6
_LOG_NOISE = re.compile(
    r"[IW]\d{4} \d\d:\d\d:|\d{4}-\d\d-\d\d [\d:.]+ [IW] |WARNING: All log messages before absl::"
    r"|(E\d{4} \d\d:\d\d:|\d{4}-\d\d-\d\d [\d:.]+ E )[^\]]*(/|\b)cuda_\w+\.cc:\d+\]"
)  # absl messages of level INFO and WARNING, in both formats, and the errors that a machine without a GPU gets


class PeerWorker(Protocol):
    """A worker other than the chief, on this or another machine."""

    conversation: WorkerState

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait for."""

    def receive(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Processes what arrived and returns whether the worker is lost.

        Args:
            ready: readable descriptors.
            selector: holds `descriptors`; those at end of file are unregistered.
        """


class LocalPeer:
    """A worker on this machine, and everything received from it."""

    def __init__(
        self,
        worker: int,
        running: WorkerProcess,
        *,
        log: Path,
        task: str = "",
        on_message: Callable[[Message], None] = lambda _message: None,
    ) -> None:
        self.conversation = WorkerState(worker_index=worker, task_name=task)
        self._running, self._log = running, log
        self._lines = MessageReader(self.conversation, on_message)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait for: its messages and its exit."""
        return self._running.message_descriptor, self._running.exit_descriptor

    def receive(self, ready: set[int], selector: selectors.BaseSelector) -> bool:
        """Processes its messages and its exit; returns whether it is lost: exited, failed or not in lockstep."""
        messages, ended = self.descriptors
        if messages in ready and self._lines.read(messages) == 0:
            selector.unregister(messages)
        if ended in ready:
            selector.unregister(ended)
            while self._lines.read(messages) > 0:
                pass
            self.conversation.exit_status = self._running.process.wait()
        why = loss_reason(self.conversation)
        if why:
            self.conversation.exit_reason, self.conversation.log_tail = why, log_tail(self._log)
        return bool(why)


def loss_reason(state: WorkerState) -> str:
    """Returns why its peers cannot continue with a worker in this state; "" if they can."""
    if state.lockstep_failure:
        return f"is no longer in lockstep with the others: {state.lockstep_failure}"
    if state.script_failed:  # its process is still running, but takes no steps
        return "could not continue: its script raised an exception"
    if state.finished:
        return f"ended with exit status {state.finished.exit_code}" if state.finished.exit_code else ""
    return "" if state.exit_status is None else describe_exit(state.exit_status)


def log_tail(log: Path, *, count: int = _TAIL_LINES) -> str:
    """Returns the end of a log, without information and warnings of TensorFlow's runtime; "" if there is nothing."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not _LOG_NOISE.match(line)]
    return "\n".join(lines[-count:])


@dataclass(frozen=True)
class RunningWorkers:
    """Running workers: the chief, which runs the analysis, and its peers in index order."""

    chief: WorkerProcess
    peers: tuple[PeerWorker, ...] = ()


@contextlib.contextmanager
def local_workers(
    job: Job, *, workers: int, logs: Sequence[Path], command: Sequence[str] = WORKER_COMMAND
) -> Iterator[RunningWorkers]:
    """Starts the worker processes of `job` and yields them; on exit, they and all that they started have ended.

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
            yield RunningWorkers(alone)
        return
    addresses, gpus = free_addresses(workers), visible_gpus(os.environ)
    with contextlib.ExitStack() as stack:
        stack.enter_context(orphans_adopted())
        running = []
        with contextlib.ExitStack() as ends:  # our copies: with them closed, a closed link means an exited peer
            pairs = [socket.socketpair() for _ in range(workers - 1)]
            for pair in pairs:
                for end in pair:
                    ends.enter_context(end)
            for index in range(workers):
                mine = [near for near, _ in pairs] if index == 0 else [pairs[index - 1][1]]
                task = cluster.LockstepRole(index, workers, tuple(end.fileno() for end in mine))
                one = worker(
                    replace(job, lockstep_role=task, request_descriptor=job.request_descriptor if index == 0 else -1),
                    log=logs[index],
                    command=command,
                    alone=False,
                    environment={
                        cluster.TF_CONFIG: cluster.tf_config({"worker": addresses}, "worker", index),
                        **gpu_environment(gpus, workers=workers, index=index),
                    },
                )
                running.append(stack.enter_context(one))
        others = (LocalPeer(index, running[index], log=logs[index]) for index in range(1, workers))
        yield RunningWorkers(running[0], tuple(others))


def free_addresses(count: int) -> list[str]:
    """Returns `count` free addresses of this machine, each "host:port".

    Raises:
        PipetuneError: there are not enough free ports.
    """
    try:
        return cluster.free_addresses(count)
    except OSError as error:
        raise PipetuneError(
            f"The workers need {count} free ports on {cluster.LOOPBACK}: {error.strerror or error}.",
            hint="Stop the processes that use them, or analyze a single process, without --workers.",
            exit_code=1,
        ) from error


_KINDS = {"worker": "worker", "ps": "parameter server"}


@contextlib.contextmanager
def workers_with_servers(
    job: Job, *, workers: int, servers: int, logs: Sequence[Path], command: Sequence[str] = WORKER_COMMAND
) -> Iterator[RunningWorkers]:
    """Starts the processes, each with its `TF_CONFIG`, and yields them; on exit, they and all they started have ended.

    Args:
        job: the task of the chief; all others run the same script without measuring, to serve the chief.
        workers: number of worker processes, the chief not included.
        servers: number of parameter servers.
        logs: one file per process for what the script prints, in the order of `core.cluster.parameter_server_tasks`.
        command: starts a process; the path of the job file is appended.

    Raises:
        PipetuneError: no process can be started, or there are no free ports.
    """
    tasks = parameter_server_tasks(workers=workers, servers=servers)
    free, gpus = iter(free_addresses(len(tasks))), visible_gpus(os.environ)
    cluster: dict[str, list[str]] = {}
    for kind, _ in tasks:
        cluster.setdefault(kind, []).append(next(free))
    with contextlib.ExitStack() as stack:
        stack.enter_context(orphans_adopted())
        running = [
            stack.enter_context(
                worker(
                    job if kind == "chief" else replace(job, mode=Mode.SERVE, request_descriptor=-1),
                    log=log,
                    command=command,
                    alone=False,
                    environment={
                        TF_CONFIG: tf_config(cluster, kind, index),
                        **gpu_environment(gpus, workers=workers if kind == "worker" else 0, index=index),
                    },
                )
            )
            for (kind, index), log in zip(tasks, logs, strict=True)
        ]
        others = (
            LocalPeer(number, one, log=log, task=f"{_KINDS[kind]} {index}")
            for number, ((kind, index), one, log) in enumerate(zip(tasks, running, logs, strict=True))
            if kind != "chief"
        )
        yield RunningWorkers(running[0], tuple(others))
