"""Runs a module in several real processes on this machine, or with a service of such, and counts the elements of each.

It confirms the counts of `pipetune`, which runs the module in a single process.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipetune.core import files
from pipetune.core.cluster import (
    MPI_VARIABLES,
    RANK_VARIABLE,
    SIZE_VARIABLE,
    TF_CONFIG,
    free_addresses,
    tf_config,
)
from pipetune.core.codec import decode, encode
from pipetune.core.distribution import Coverage, DeliveryMode
from pipetune.core.errors import PipetuneError
from pipetune.distributed.verify.counting import Expectation
from pipetune.distributed.verify.counting import running as runs_to_its_end
from pipetune.distributed.verify.coverage import covered, fetched
from pipetune.distributed.verify.emitted import emitted, loaded
from pipetune.model.coverage import worst_coverage
from pipetune.pipelines import live
from tests.processes.reading_process import COUNTS, FOUND, GO, JOB, MODULE, READY, SECONDS, Read, ReadingJob, rows
from tests.starting import search_path

WORKERS = 2
_ADDRESS = re.compile(r"dispatcher at (\S+)")

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


def run(
    module_text: str,
    expectation: Expectation,
    *,
    delivery: DeliveryMode,
    global_batch_size: int | None = None,
    full_batch: int = 1,
    most_steps: int | None = None,
) -> Coverage:
    """Returns the coverage of an epoch that several processes read concurrently.

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
        job = ReadingJob(
            delivery,
            WORKERS,
            expectation.how.counted,
            expectation.key,
            global_batch_size,
            full_batch,
            most_steps,
            tuple(map(os.path.abspath, sys.path)),
        )
        (folder / JOB).write_text(json.dumps(encode(job)))
        commands = [(*_COMMAND, name, str(index)) for index in range(WORKERS)]
        with running(folder, commands, _variables(delivery)) as started:
            started.wait_for(lambda: all((folder / READY.format(index)).exists() for index in range(WORKERS)))
            (folder / GO).touch()
            started.wait_for(started.have_ended)
        read = [decode(Read, json.loads((folder / FOUND.format(index)).read_text())) for index in range(WORKERS)]
        given = [_counts(folder, index) for index in range(WORKERS)]
    if sorted(one.worker for one in read) != list(range(WORKERS)) or any(one.workers != WORKERS for one in read):
        raise NotRun("The processes did not find one another.")
    given = [given[index] for index in sorted(range(WORKERS), key=lambda index: read[index].worker)]
    return _covered(expectation, given, sorted(read, key=lambda one: one.worker))


def _covered(expectation: Expectation, given: Sequence[Mapping[int, int]], read: Sequence[Read]) -> Coverage:
    found = worst_coverage(
        expectation.epochs[:1],
        [[counts] for counts in given],
        told_by=expectation.told_by,
        counted=expectation.how.counted,
        files=expectation.files,
        stored=expectation.stored,
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


def _variables(delivery: DeliveryMode) -> list[dict[str, str]]:
    """The additional environment variables of each process."""
    if delivery is DeliveryMode.RANKS:
        return [{RANK_VARIABLE: str(rank), SIZE_VARIABLE: str(WORKERS)} for rank in range(WORKERS)]
    addresses = free_addresses(WORKERS)
    return [{TF_CONFIG: tf_config({"worker": addresses}, "worker", index)} for index in range(WORKERS)]


def _counts(folder: Path, index: int) -> Counter[int]:
    with np.load(folder / COUNTS.format(index)) as found:
        return Counter(dict(zip(found["keys"].tolist(), found["counts"].tolist(), strict=True)))


@dataclass(frozen=True)
class Running:
    """Running processes in a folder; their output is in the file `log-INDEX` there."""

    folder: Path
    processes: tuple[subprocess.Popen[bytes], ...]

    def wait_for(self, come: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Waits until `come` is true, while no process fails.

        Raises:
            NotRun: a process failed, or the time limit was reached.
        """
        end = time.monotonic() + seconds
        while not come():
            for index, process in enumerate(self.processes):
                if process.poll():
                    lines = self.printed(index).strip().splitlines() or [""]
                    raise NotRun(f"Process {index} ended with {process.returncode}: {lines[-1]}")
            if time.monotonic() > end:
                raise NotRun("The processes took too long and were ended.")
            time.sleep(0.05)

    def have_ended(self) -> bool:
        """Whether all processes have ended successfully."""
        return all(process.poll() == 0 for process in self.processes)

    def printed(self, index: int) -> str:
        """The output of a process so far."""
        return (self.folder / f"log-{index}").read_text(errors="replace")


@contextmanager
def running(
    folder: Path, commands: Sequence[Sequence[str]], variables: Sequence[Mapping[str, str]]
) -> Iterator[Running]:
    """Starts processes with these commands; all of them have ended on exit.

    They stay in this process group, so that they are ended with it.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _OF_A_JOB}
    # The processes only read: the devices are left to the process that measures.
    kept |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": search_path(ROOT)}
    with ExitStack() as stack:
        started = []
        for index, (command, own) in enumerate(zip(commands, variables, strict=True)):
            log = stack.enter_context((folder / f"log-{index}").open("wb"))
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env={**kept, **own}
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        yield Running(folder, tuple(started))


def run_with_service(
    module_text: str, serve_text: str, expectation: Expectation, *, splits: bool, full_batch: int
) -> Coverage:
    """Returns the coverage of an epoch that this process reads from a service.

    Args:
        serve_text: the script that starts the servers.
        splits: whether the dispatcher divides the data; otherwise each worker delivers all of it.
        full_batch: rows of a full batch.

    Raises:
        NotRun: the servers did not start.
        CannotExpress: the pipeline fails in the service.
    """
    with serving(serve_text) as address:
        with emitted(module_text, delivery=DeliveryMode.SERVICE) as make:
            given = fetched(expectation.how, live.read(make(1, 0, 1)), address=address, splits=splits)
        with loaded(module_text) as module, runs_to_its_end():
            sizes = list(map(rows, module.dataset_fn(service=address)))
    found = covered(expectation, given, servers=WORKERS, times=1 if splits else WORKERS)
    short = sum(size < full_batch for size in sizes)
    return replace(found, workers=(replace(found.workers[0], batches=len(sizes), short_batches=short),))


@contextmanager
def serving(serve_text: str) -> Iterator[str]:
    """Runs a service with the script `serve_text`; yields the address of its dispatcher.

    Raises:
        NotRun: a process did not start in time.
    """
    with files.temporary_folder("service") as name:
        folder = Path(name)
        script = folder / "serve.py"
        script.write_text(serve_text, encoding="utf-8")
        command = (sys.executable, "-P", str(script))
        (folder / "dispatcher").mkdir()
        with running(folder / "dispatcher", [(*command, "dispatcher", "--port", "0")], [{}]) as dispatcher:
            dispatcher.wait_for(lambda: _ADDRESS.search(dispatcher.printed(0)) is not None)
            address = _ADDRESS.findall(dispatcher.printed(0))[0]
            to = address.partition("://")[2]
            one = (*command, "worker", "--host", "127.0.0.1", "--dispatcher", to)
            with running(folder, [one] * WORKERS, [{}] * WORKERS) as started:
                started.wait_for(lambda: all("worker of" in started.printed(index) for index in range(WORKERS)))
                yield address
