"""`python -m pipetune.worker JOB`: runs the job of a job file and reports to the supervisor over its pipe."""

from __future__ import annotations

import sys
from pathlib import Path

from pipetune.core import file_events, scratch
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Failed, Finished, MessageWriter, Mode, read_job
from pipetune.worker.orphaned import end_without_supervisor


def main() -> int:
    """Runs the job named by the first argument and returns the exit code, which is also in the last message.

    Does not return if a script was stopped: the process has then exited (`shutdown`).
    """
    path = Path(sys.argv[1]).absolute()
    job = read_job(path)
    scratch.use(str(path.parent))  # the command removes this folder, however this process ends
    writer = MessageWriter(job.message_descriptor)
    end_without_supervisor(job.message_descriptor, undo=job.undo)
    try:
        if job.mode is Mode.SERVE:  # nothing is measured, so only what the script itself imports is loaded
            from pipetune.worker import serving, shutdown

            code = serving.serve(job, writer)
            shutdown.end(code, writer, file_events.journal())
        else:
            from pipetune.worker import work

            code = work.do(job, writer)
    except PipetuneError as error:
        writer.send(Failed(error.message, error.hint, error.exit_code))
        code = error.exit_code
    writer.send(Finished(code))
    return code


if __name__ == "__main__":
    sys.exit(main())
