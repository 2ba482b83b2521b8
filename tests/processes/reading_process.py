"""`python -m tests.processes.reading_process FOLDER INDEX`: one of several processes that read a module.

Each process is set up as in training: under `MultiWorkerMirroredStrategy` in the cluster of `TF_CONFIG`, or as a rank
with the variables of `horovodrun`. It waits for its peers, reads an epoch, and saves the counts of its elements.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.codec import decode, encode
from pipetune.core.distribution import DeliveryMode, ElementIdentity
from pipetune.distributed.verify.counting import REDUCTIONS, read_epochs
from pipetune.distributed.verify.emitted import emitted, opened
from pipetune.pipelines import live

SECONDS = 90.0  # time limit for all processes
JOB, MODULE, READY, GO, COUNTS, FOUND = "job.json", "module.py", "ready-{}", "go", "counts-{}.npz", "found-{}.json"
"""Files in the shared folder of the processes; those with a number belong to one process."""


@dataclass(frozen=True)
class ReadingJob:
    """How the elements of the module are counted."""

    delivery: DeliveryMode
    workers: int
    counted: str  # a key of `counting.REDUCTIONS`
    key: ElementIdentity
    global_batch_size: int | None = None
    full_batch: int = 1  # rows of a full batch
    most_steps: int | None = None  # for infinite data; None for finite data
    path: tuple[str, ...] = ()  # search path of the user's modules


@dataclass(frozen=True)
class Read:
    """The results of one process for an epoch, except the counts of its elements."""

    worker: int  # index according to the strategy or the environment
    workers: int
    batches: int  # batches with rows
    short_batches: int


def rows(element: Any) -> int:
    """The number of rows of a batch; a scalar element counts as one row."""
    parts = [part for part in tf.nest.flatten(element) if part.shape.rank]
    return int(tf.shape(parts[0])[0]) if parts else 1


def main(folder: Path, index: int) -> None:
    """Reads the module in `folder`.

    Raises:
        TimeoutError: the peers did not start.
        PipetuneError: the module does not run.
    """
    job = decode(ReadingJob, json.loads((folder / JOB).read_text()))
    sys.path += [place for place in job.path if place not in sys.path]
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if job.delivery is DeliveryMode.PARTS else None
    text = (folder / MODULE).read_text()
    with emitted(text, global_batch_size=job.global_batch_size, delivery=job.delivery) as make:
        made: list[tuple[int, int, Any]] = []

        def dataset_fn(context: Any) -> Any:
            place = context.num_input_pipelines, context.input_pipeline_id
            made.append((*place, make(*place, context.num_replicas_in_sync)))
            return made[-1][2]

        (folder / READY.format(index)).touch()
        _wait((folder / GO).exists)
        if strategy is not None:
            read = strategy.distribute_datasets_from_function(dataset_fn)
            steps = (sum(map(rows, strategy.experimental_local_results(value))) for value in read)
        else:
            # A rank gets neither its index nor their number as arguments, and determines both by itself.
            made.append((job.workers, index, opened().dataset_fn(None)))
            steps = (rows(element) for element in made[0][2])
        sizes = [size for size in itertools.islice(steps, job.most_steps) if size]
        workers, worker, dataset = made[0]
        pipeline = live.read(dataset)
        counts = read_epochs(pipeline, REDUCTIONS[job.counted](pipeline.pipeline), 1)[0].counts(job.key)
        np.savez(folder / COUNTS.format(index), keys=list(counts), counts=list(counts.values()))
    result = Read(worker, workers, len(sizes), sum(size < job.full_batch for size in sizes))
    unfinished = folder / f"unfinished-{index}"
    unfinished.write_text(json.dumps(encode(result)))
    unfinished.rename(folder / FOUND.format(index))
    # The first task of a cluster serves the others, which would end with it.
    _wait(lambda: all((folder / FOUND.format(other)).exists() for other in range(job.workers)))


def _wait(come: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not come():
        if time.monotonic() > end:
            raise TimeoutError("the other processes did not come")
        time.sleep(0.02)


if __name__ == "__main__":
    code = 1
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
        code = 0
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the threads of a cluster would delay the exit
