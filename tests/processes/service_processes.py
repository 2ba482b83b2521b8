"""Runs a module for a tf.data service with a dispatcher and workers in real processes on this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipetune.core import files
from pipetune.core.distribution import Coverage, DeliveryMode
from pipetune.distributed.verify.counting import Expectation
from pipetune.distributed.verify.counting import running as runs_to_its_end
from pipetune.distributed.verify.emitted import emitted, loaded
from pipetune.distributed.verify.service_coverage import covered, fetched
from pipetune.pipelines import live
from tests.processes.reading_process import SECONDS, rows
from tests.processes.side_by_side import WORKERS, running

_ADDRESS = re.compile(r"dispatcher at (\S+)")


def run(module_text: str, serve_text: str, expectation: Expectation, *, splits: bool, full_batch: int) -> Coverage:
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
            dispatcher.wait_for(lambda: _ADDRESS.search(dispatcher.printed(0)) is not None, SECONDS)
            address = _ADDRESS.findall(dispatcher.printed(0))[0]
            to = address.partition("://")[2]
            one = (*command, "worker", "--host", "127.0.0.1", "--dispatcher", to)
            with running(folder, [one] * WORKERS, [{}] * WORKERS) as started:
                started.wait_for(
                    lambda: all("worker of" in started.printed(index) for index in range(WORKERS)), SECONDS
                )
                yield address
