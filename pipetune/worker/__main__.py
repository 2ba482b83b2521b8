"""`python -m pipetune.worker JOB`: runs the job of a job file and reports to the supervisor over its pipe."""

from __future__ import annotations

import sys
from pathlib import Path

from pipetune.core import file_events, files
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import AnalysisFailed, MessageWriter, Mode, WorkerFinished, read_job
from pipetune.worker.exits import exit_with_supervisor


def main() -> int:
    """Runs the job named by the first argument and returns the exit code, which is also in the last message.

    Does not return if a script was stopped: the process has then exited (`exits`).
    """
    path = Path(sys.argv[1]).absolute()
    job = read_job(path)
    files.set_root(str(path.parent))  # the command removes this folder, however this process ends
    writer = MessageWriter(job.message_descriptor)
    exit_with_supervisor(job.message_descriptor, undo=job.undo)
    try:
        if job.mode is Mode.SERVE:  # nothing is measured, so only what the script itself imports is loaded
            from pipetune.worker import exits, lockstep

            code = lockstep.run_server_task(job, writer)
            exits.exit_process(code, writer, file_events.current_journal())
        else:
            from pipetune.worker import dispatch

            code = dispatch.run_job(job, writer)
    except PipetuneError as error:
        writer.send(AnalysisFailed(error.message, error.hint, error.exit_code))
        code = error.exit_code
    writer.send(WorkerFinished(code))
    return code


if __name__ == "__main__":
    sys.exit(main())
