"""`python workers.py JOB...`: workers that share one import of TensorFlow and Keras.

Each job runs in its own fork, exactly as `python -m pipetune.worker` runs it, and writes its messages to the
file messages.jsonl in the folder that contains the job's; its exit status is written to the file code. No TensorFlow
code runs before the forks.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import keras  # noqa: F401
import tensorflow  # noqa: F401

from pipetune.core.messages import read_job, write_job
from pipetune.worker import __main__ as worker
from pipetune.worker import dispatch  # noqa: F401

TOGETHER = 4  # measuring takes its time, whatever share of the machine it gets


def run(path: Path) -> None:
    """Runs one job in a process of its own; does not return."""
    messages = os.open(path.parent.with_name("messages.jsonl"), os.O_WRONLY | os.O_CREAT, 0o600)
    write_job(replace(read_job(path), message_descriptor=messages), path)
    log = os.open(path.parent.with_name("script.log"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["worker", str(path)]
    sys.path.pop(0)  # the folder of this script
    code = 1
    try:
        code = worker.main()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    jobs = [Path(argument) for argument in sys.argv[1:]]
    running: dict[int, Path] = {}

    def wait() -> None:
        child, status = os.wait()
        running.pop(child).parent.with_name("code").write_text(str(os.waitstatus_to_exitcode(status)))

    for job in jobs:
        if len(running) >= TOGETHER:
            wait()
        child = os.fork()
        if child == 0:
            run(job)
        running[child] = job
    while running:
        wait()


if __name__ == "__main__":
    main()
