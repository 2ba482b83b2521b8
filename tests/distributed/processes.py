"""`python processes.py FOLDER SECONDS KIND...`: the elements that TensorFlow delivers in the cases of each kind.

A kind is "mirrored" (logical devices of one process) or a number of workers (that many processes, on 127.0.0.1). The
processes are forked after TensorFlow is imported and before it is initialized, and run at the same time. Each writes
the elements of its replicas as JSON, to `FOLDER/KIND-WORKER.json`. All have ended when this script ends, after SECONDS
at the latest; its exit code is 1 if one of them failed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipetune.core.cluster import free_addresses
from tests.distributed.cases import CLUSTERS, MIRRORED, Case
from tests.distributed.forks import ended

Steps = list[list[list[int]]]


def delivered(case: Case, strategy: Any, folder: Path) -> Steps:
    """The elements, by step and replica of this process."""
    names = case.write(folder)
    if case.function:
        distributed = strategy.distribute_datasets_from_function(lambda context: case.dataset(names, context))
    else:
        distributed = strategy.experimental_distribute_dataset(case.dataset(names))
    steps: Steps = []
    for value in distributed:
        steps.append([part.numpy().tolist() for part in strategy.experimental_local_results(value)])
        if len(steps) == case.steps:
            break
    return steps


def mirrored(folder: Path) -> dict[str, Any]:
    """Every case on as many logical devices as it has replicas."""
    most = max(case.replicas for case in MIRRORED)
    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * most)
    strategies = {
        replicas: tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
        for replicas in {case.replicas for case in MIRRORED}
    }
    return {str(case): {"steps": delivered(case, strategies[case.replicas], folder)} for case in MIRRORED}


def worker(workers: int, folder: Path) -> dict[str, Any]:
    """Every case as one worker of a cluster, given by `TF_CONFIG`."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    asked = 0
    reduce = strategy.reduce

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal asked
        asked += 1
        return reduce(*arguments, **keywords)

    strategy.reduce = counted
    found: dict[str, Any] = {}
    for case in CLUSTERS[workers]:
        asked = 0
        steps = delivered(case, strategy, folder)
        found[str(case)] = {"steps": steps, "messages": asked}
    reduce("SUM", tf.constant(1.0), axis=None)  # no worker exits before all are done
    return found


def forked(kind: str, index: int, configuration: str, folder: Path) -> int:
    """Forks a process for one worker of a kind; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        own = folder / f"{kind}-{index}"
        own.mkdir()
        log = os.open(own / "log", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if configuration:
            os.environ["TF_CONFIG"] = configuration
        found = worker(int(kind), own) if configuration else mirrored(own)
        written = own / "found"
        written.write_text(json.dumps(found))
        written.rename(folder / f"{kind}-{index}.json")
        while not index and configuration and len(list(folder.glob(f"{kind}-*.json"))) < int(kind):
            time.sleep(0.05)  # the first worker serves the others, which would end with it
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> int:
    folder, seconds, kinds = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    deadline = time.monotonic() + seconds
    free = free_addresses(sum(int(kind) for kind in kinds if kind != "mirrored"))
    children = set()
    for kind in kinds:
        if kind == "mirrored":
            children.add(forked(kind, 0, "", folder))
            continue
        mine = [free.pop() for _ in range(int(kind))]
        for index in range(int(kind)):
            task = {"cluster": {"worker": mine}, "task": {"type": "worker", "index": index}}
            children.add(forked(kind, index, json.dumps(task), folder))
    return 0 if ended(children, deadline) else 1


if __name__ == "__main__":
    sys.exit(main())
