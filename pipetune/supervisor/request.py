"""The request and the result of `pipetune analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipetune.core.cluster import Place
from pipetune.core.messages import Failed, Job, Mode
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.supervisor.limits import Limits
from pipetune.supervisor.process import WORKER_COMMAND
from pipetune.supervisor.results import Results
from pipetune.supervisor.target import Target


@dataclass(frozen=True)
class Request:
    """What to analyze, how, and where the results go."""

    target: Target
    settings: Settings
    results: Results
    limits: Limits = field(default_factory=Limits)
    worker_command: Sequence[str] = WORKER_COMMAND
    verbose: bool = False  # show what the script prints
    place: Place | None = None  # of this machine in an externally started cluster; None: there is none


@dataclass(frozen=True)
class Analysis:
    """The session, the exit status and what to print at the end."""

    session: Session
    exit_code: int
    results: Results  # in the folder of this run
    traceback: str = ""  # of the user's code only
    failed: Failed | None = None
    last_lines: str = ""  # of the log: of the lost worker, or of a script that exited by itself


def job_of(request: Request, mode: Mode) -> Job:
    """The job of a worker for the script of this request."""
    target = request.target
    return Job(
        mode=mode,
        message_descriptor=-1,
        settings=request.settings,
        script=target.script,
        module=target.module,
        arguments=target.arguments,
        directory=target.directory,
        out=str(request.results.folder),
    )
