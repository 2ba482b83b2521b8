"""`python killed_command.py analyze FOLDER`: an analysis with a worker that does not import TensorFlow.

This file is the worker too: `python killed_command.py work JOB`. It repeatedly writes to FOLDER/own and records the
changes, like the real worker, and then exits as if it had measured.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LOOP_SECONDS = 0.6


def command(folder: Path) -> int:
    from pipetune.report.console import Progress
    from pipetune.supervisor.analysis import analyze
    from pipetune.supervisor.monitoring import Timeouts
    from tests.supervisor.test_analysis import request

    worker = (sys.executable, __file__, "work")
    task = request(folder / "out", str(folder / "own"), limits=Timeouts(), command=worker)
    return analyze(task, screen=Progress(quiet=True)).exit_code


def work(job_file: Path) -> None:
    from pipetune.core import file_events, files, undo
    from pipetune.core.messages import MessageWriter, Progress, SessionSaved, WorkerFinished, WorkerStarted, read_job
    from pipetune.worker.exits import exit_with_supervisor
    from tests.core.sessions import session
    from tests.files import writes

    job = read_job(job_file)
    files.set_root(str(job_file.parent))
    exit_with_supervisor(job.message_descriptor, undo=job.undo)
    writer = MessageWriter(job.message_descriptor)
    writer.send(WorkerStarted("The script runs."))
    journal = undo.UndoJournal(job.undo, ignored=[str(job_file.parent)])
    file_events.set_journal(journal)
    changes = writes.Writer(Path(job.arguments[0]), names=KINDS)
    with files.temporary_folder("work"):
        writer.send(Progress("capture", "running the script"))
        journal.confirm_training(journal.begin_generation())
        end = time.monotonic() + LOOP_SECONDS
        while time.monotonic() < end:
            for name in KINDS:
                changes.change(name)
        journal.close()
    writer.send(SessionSaved(replace(session(), patch=None)))
    writer.send(WorkerFinished(0))


KINDS = (
    "json", "append", "in place", "log opened before", "written aside and replaced", "rmtree", "folder renamed",
    "folders made", "symlink swapped", "sqlite", "rotated checkpoints", "chmod and utime",
)  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(Path(sys.argv[2]))
    else:
        sys.exit(command(Path(sys.argv[2])))
