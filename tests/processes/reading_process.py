"""`python -m tests.processes.reading_process FOLDER INDEX`: one of several processes that read a module.

Each process is set up as in training: under `MultiWorkerMirroredStrategy` in the cluster of `TF_CONFIG`, or as a rank
with the variables of `horovodrun`. It waits for its peers, reads an epoch, and saves the counts of its elements.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipetune.core.distribution import DeliveryMode
from tests.processes.reading_job import COUNTS, GO, MODULE, PARAMETER, READY, Read, ReadingJob


def main(folder: Path, index: int) -> None:
    """Reads the module in `folder`.

    Raises:
        TimeoutError: the peers did not start.
        PipetuneError: the module does not run.
    """
    import numpy as np
    import tensorflow as tf

    from pipetune.distributed.verify.counting import REDUCTIONS, read_epochs
    from pipetune.distributed.verify.emitted import emitted, opened
    from pipetune.pipelines import live
    from tests.processes.batch_sizes import rows
    from tests.processes.order import offered, read_indices

    job = ReadingJob.read(folder)
    sys.path += [place for place in job.path if place not in sys.path]
    given = folder / PARAMETER
    parameter = tf.data.Dataset.load(str(given)).get_single_element() if given.exists() else None
    given_to_it = {} if parameter is None else {"source": parameter}
    in_step = job.delivery is DeliveryMode.PARTS
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if in_step else None
    with emitted(
        (folder / MODULE).read_text(),
        parameter=parameter,
        global_batch_size=job.global_batch_size,
        delivery=job.delivery,
    ) as make:
        made: list[tuple[int, int, Any]] = []

        def dataset_fn(context: Any) -> Any:
            place = context.num_input_pipelines, context.input_pipeline_id
            made.append((*place, make(*place, context.num_replicas_in_sync)))
            return made[-1][2]

        (folder / READY.format(index)).touch()
        _wait(lambda: (folder / GO).exists(), job.seconds)
        if strategy is not None:
            read = strategy.distribute_datasets_from_function(dataset_fn)
            steps = (sum(map(rows, strategy.experimental_local_results(value))) for value in read)
        else:
            # A rank gets neither its index nor their number as arguments, and determines both by itself.
            made.append((job.workers, index, opened().dataset_fn(None, **given_to_it)))
            steps = (rows(element) for element in made[0][2])
        sizes = list(itertools.islice(steps, job.most_steps))
        workers, worker, dataset = made[0]
        pipeline = live.read(dataset)
        counts = read_epochs(pipeline, REDUCTIONS[job.counted](pipeline.pipeline), 1)[0].counts(job.key)
        if offered(opened()):
            read_indices(
                opened(),
                folder,
                index,
                delivery=job.delivery,
                workers=workers,
                worker=worker,
                given=given_to_it,
            )
        np.savez(folder / COUNTS.format(index), keys=list(counts), counts=list(counts.values()))
    full = [size for size in sizes if size]
    short = sum(size < job.full_batch for size in full)
    Read(worker, workers, len(full), short, len(sizes)).write(folder, index)
    # The first task of a cluster serves the others, which would end with it.
    _wait(lambda: all(Read.read(folder, other) for other in range(job.workers)), job.seconds)


def _wait(come: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
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
