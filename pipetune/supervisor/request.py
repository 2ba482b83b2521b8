"""What `pipetune analyze` was asked for, and what it comes to."""

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
    """What is to be analysed, how, and where the results go."""

    target: Target
    settings: Settings
    results: Results
    limits: Limits = field(default_factory=Limits)
    worker_command: Sequence[str] = WORKER_COMMAND
    verbose: bool = False  # show what the script prints
    place: Place | None = None  # of this machine, where somebody else has started a cluster


@dataclass(frozen=True)
class Analysis:
    """The session, and what the command ends with."""

    session: Session
    exit_code: int
    results: Results  # in the folder of this run
    traceback: str = ""  # the user's own
    failed: Failed | None = None
    last_lines: str = ""  # of the log of the worker that was lost, or of the script that ended by itself


def job_of(request: Request, mode: Mode) -> Job:
    """What a worker is to do with the script that was named."""
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
