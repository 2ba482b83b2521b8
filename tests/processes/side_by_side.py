"""Runs a stand-alone module in several real processes on this machine, and counts the elements of each.

It confirms the counts of `pipetune`, which runs the module in a single process.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core import files
from pipetune.core.cluster import (
    MPI_VARIABLES,
    RANK_VARIABLE,
    SIZE_VARIABLE,
    TF_CONFIG,
    free_addresses,
    worker_tf_config,
)
from pipetune.core.distribution import Coverage, DeliveryMode
from pipetune.core.errors import PipetuneError
from pipetune.distributed.verify.counting import Expectation
from pipetune.distributed.verify.emitted import emitted, opened
from pipetune.model.coverage import worst_coverage
from tests.processes.order import restored
from tests.processes.reading_job import COUNTS, GO, MODULE, PARAMETER, READY, Read, ReadingJob
from tests.starting import search_path

WORKERS = 2
SECONDS = 90.0  # time limit for all processes
MOST_PARAMETER_BYTES = 256 * 2**20

ROOT = Path(__file__).resolve().parents[2]
_COMMAND = (sys.executable, "-P", "-m", "tests.processes.reading_process")
_OF_A_JOB = (
    TF_CONFIG,
    RANK_VARIABLE,
    SIZE_VARIABLE,
    "HOROVOD_LOCAL_RANK",
    "TF_DATA_SERVICE",
    *itertools.chain(*MPI_VARIABLES),
)


class NotRun(PipetuneError):
    """The processes did not finish; the message has the reason."""


@dataclass(frozen=True)
class Ran:
    """The result of real processes."""

    coverage: Coverage
    in_order: bool | None = None  # whether the data's order was restored; None if the module has no indices


def run(
    module_text: str,
    expectation: Expectation,
    *,
    delivery: DeliveryMode,
    parameter: Any = None,
    global_batch_size: int | None = None,
    full_batch: int = 1,
    most_steps: int | None = None,
    workers: int = WORKERS,
    seconds: float = SECONDS,
) -> Ran:
    """Returns the result of an epoch that several processes read concurrently.

    Args:
        delivery: PARTS for processes in lockstep under a strategy, RANKS for processes as of horovodrun.
        full_batch: rows of a full batch of one worker.
        most_steps: number of steps for infinite data.

    Raises:
        NotRun: a process could not be started or failed, or they took too long.
    """
    with files.temporary_folder("workers") as name:
        folder = Path(name)
        (folder / MODULE).write_text(module_text, encoding="utf-8")
        _write_parameter(parameter, folder)
        job = ReadingJob(
            delivery,
            workers,
            expectation.how.counted,
            expectation.expected.key,
            global_batch_size,
            full_batch,
            most_steps,
            seconds,
            tuple(map(os.path.abspath, sys.path)),
        )
        job.write(folder)
        with running(folder, [(*_COMMAND, name, str(index)) for index in range(workers)], _variables(job)) as started:
            started.wait_for(lambda: all((folder / READY.format(index)).exists() for index in range(workers)), seconds)
            (folder / GO).touch()
            started.wait_until_done(seconds)
        found = [Read.read(folder, index) for index in range(workers)]
        given = [_counts(folder, index) for index in range(workers)]
        with emitted(module_text):
            in_order = restored(opened(), folder, range(workers))
    read = [one for one in found if one is not None]
    if sorted(one.worker for one in read) != list(range(workers)) or any(one.workers != workers for one in read):
        raise NotRun("The processes did not find one another.")
    given = [given[index] for index in sorted(range(workers), key=lambda index: read[index].worker)]
    return Ran(_covered(expectation, given, sorted(read, key=lambda one: one.worker)), in_order)


def _covered(expectation: Expectation, given: Sequence[Mapping[int, int]], read: Sequence[Read]) -> Coverage:
    found = worst_coverage(
        expectation.expected.epochs[:1],
        [[counts] for counts in given],
        told_by=expectation.expected.told_by,
        counted=expectation.how.counted,
        files=expectation.expected.files,
        stored=expectation.expected.stored,
        reads_all=expectation.reads_all,
    )
    workers = tuple(
        replace(
            share,
            batches=one.batches,
            short_batches=one.short_batches,
            read=found.elements if expectation.reads_all else share.elements,
        )
        for share, one in zip(found.workers, read, strict=True)
    )
    return replace(found, workers=workers)


def _variables(job: ReadingJob) -> list[dict[str, str]]:
    """The additional environment variables of each process."""
    if job.delivery is DeliveryMode.RANKS:
        return [{RANK_VARIABLE: str(rank), SIZE_VARIABLE: str(job.workers)} for rank in range(job.workers)]
    addresses = free_addresses(job.workers)
    return [{TF_CONFIG: worker_tf_config(addresses, index)} for index in range(job.workers)]


def _write_parameter(parameter: Any, folder: Path) -> None:
    if parameter is None:
        return
    if sum(np.asarray(part).nbytes for part in tf.nest.flatten(parameter)) > MOST_PARAMETER_BYTES:
        raise NotRun("The arrays that the module is given are too large to be handed to other processes here.")
    tf.data.Dataset.from_tensors(parameter).save(str(folder / PARAMETER))


def _counts(folder: Path, index: int) -> Counter[int]:
    with np.load(folder / COUNTS.format(index)) as found:
        return Counter(dict(zip(found["keys"].tolist(), found["counts"].tolist(), strict=True)))


@dataclass(frozen=True)
class Running:
    """Running processes in a folder; their output is in the file `log-INDEX` there."""

    folder: Path
    processes: tuple[subprocess.Popen[bytes], ...]

    def wait_for(self, come: Callable[[], bool], seconds: float) -> None:
        """Waits until `come` is true, while all processes keep running.

        Raises:
            NotRun: a process ended before, or the time limit was reached.
        """
        end = time.monotonic() + seconds
        while not come():
            ended = [index for index, one in enumerate(self.processes) if one.poll() is not None]
            if ended:
                raise self._failed(ended[0])
            self._pause(end)

    def wait_until_done(self, seconds: float) -> None:
        """Waits until all processes have ended successfully.

        Raises:
            NotRun: a process failed, or the time limit was reached.
        """
        end = time.monotonic() + seconds
        while any(one.poll() is None for one in self.processes):
            failed = [index for index, one in enumerate(self.processes) if one.poll()]
            if failed:
                raise self._failed(failed[0])
            self._pause(end)
        for index, one in enumerate(self.processes):
            if one.poll():
                raise self._failed(index)

    def printed(self, index: int) -> str:
        """The output of a process so far."""
        return (self.folder / f"log-{index}").read_text(errors="replace")

    def _pause(self, end: float) -> None:
        if time.monotonic() > end:
            raise NotRun("The processes took too long and were ended.")
        time.sleep(0.05)

    def _failed(self, index: int) -> NotRun:
        lines = self.printed(index).strip().splitlines()
        return NotRun(f"Process {index} ended with {self.processes[index].returncode}: {lines[-1] if lines else ''}")


@contextmanager
def running(
    folder: Path, commands: Sequence[Sequence[str]], variables: Sequence[Mapping[str, str]]
) -> Iterator[Running]:
    """Starts processes with these commands; all of them have ended on exit.

    They stay in this process group, so that they are ended with it.

    Raises:
        NotRun: a process cannot be started.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _OF_A_JOB}
    # The processes only read: the devices are left to the process that measures.
    kept |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": search_path(ROOT)}
    with ExitStack() as stack:
        started = []
        for index, (command, own) in enumerate(zip(commands, variables, strict=True)):
            log = stack.enter_context((folder / f"log-{index}").open("wb"))
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env={**kept, **own}
                )
            except OSError as error:
                raise NotRun(f"A process cannot be started: {error}.") from error
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        yield Running(folder, tuple(started))
