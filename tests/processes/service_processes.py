"""Runs a module for a tf.data service with a dispatcher and workers in real processes on this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.core import files
from pipetune.core.distribution import Coverage, DeliveryMode
from pipetune.distributed.verify.counting import Expectation
from pipetune.distributed.verify.counting import running as runs_to_its_end
from pipetune.distributed.verify.emitted import emitted, loaded
from pipetune.distributed.verify.service_coverage import covered, fetched
from pipetune.pipelines import live
from tests.processes.batch_sizes import sizes_of
from tests.processes.side_by_side import SECONDS, WORKERS, NotRun, Running, running

_ADDRESS = re.compile(r"dispatcher at (\S+)")


def run(
    module_text: str,
    serve_text: str,
    expectation: Expectation,
    *,
    splits: bool,
    parameter: Any = None,
    full_batch: int = 1,
    most_steps: int | None = None,
    workers: int = WORKERS,
    seconds: float = SECONDS,
) -> Coverage:
    """Returns the coverage of an epoch that this process reads from a service.

    Args:
        serve_text: the script that starts the servers.
        splits: whether the dispatcher divides the data; otherwise each worker delivers all of it.
        full_batch: rows of a full batch.
        most_steps: number of batches that are read from infinite data.

    Raises:
        NotRun: the servers did not start.
        CannotExpress: the pipeline fails in the service.
    """
    with serving(serve_text, workers, seconds=seconds) as address:
        with emitted(module_text, parameter=parameter, delivery=DeliveryMode.SERVICE) as make:
            given = fetched(expectation.how, live.read(make(1, 0, 1)), address=address, splits=splits)
        given_to_it = {} if parameter is None else {"source": parameter}
        with loaded(module_text) as module, runs_to_its_end():
            sizes = sizes_of(module.dataset_fn(**given_to_it, service=address), most_steps)
    found = covered(expectation, given, servers=workers, times=1 if splits else workers)
    share = replace(
        found.workers[0],
        batches=len(sizes),
        short_batches=sum(size < full_batch for size in sizes),
    )
    return replace(found, workers=(share,))


@contextmanager
def serving(serve_text: str, workers: int, *, seconds: float = SECONDS) -> Iterator[str]:
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
            address = _address(dispatcher, seconds)
            to = address.partition("://")[2]
            one = (*command, "worker", "--host", "127.0.0.1", "--dispatcher", to)
            with running(folder, [one] * workers, [{}] * workers) as started:
                started.wait_for(
                    lambda: all("worker of" in started.printed(index) for index in range(workers)), seconds
                )
                yield address


def _address(dispatcher: Running, seconds: float) -> str:
    dispatcher.wait_for(lambda: _ADDRESS.search(dispatcher.printed(0)) is not None, seconds)
    found = _ADDRESS.search(dispatcher.printed(0))
    if found is None:
        raise NotRun("The dispatcher did not say where it listens.")
    return found[1]
