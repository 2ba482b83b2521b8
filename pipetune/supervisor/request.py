"""The request and the result of `pipetune analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipetune.core.cluster import ClusterTask
from pipetune.core.messages import AnalysisFailed, Job, Mode
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.supervisor.monitoring import Timeouts
from pipetune.supervisor.process import WORKER_COMMAND
from pipetune.supervisor.target import Target

if TYPE_CHECKING:
    from pipetune.supervisor.results_folder import Results


@dataclass(frozen=True)
class AnalysisRequest:
    """What to analyze, how, and where the results go."""

    target: Target
    settings: Settings
    results: Results
    limits: Timeouts = field(default_factory=Timeouts)
    worker_command: Sequence[str] = WORKER_COMMAND
    verbose: bool = False  # show what the script prints
    resumed: str = ""  # path of the session.json whose race goes on; "": a new analysis
    resumptions: int = 0  # how often sessions went on with it, this one counted
    place: ClusterTask | None = None  # of this machine in an externally started cluster; None: there is none


@dataclass(frozen=True)
class AnalysisResult:
    """The session, the exit status and what to print at the end."""

    session: Session
    exit_code: int
    results: Results  # in the folder of this run
    traceback: str = ""  # of the user's code only
    failure: AnalysisFailed | None = None
    log_tail: str = ""  # of the log: of the lost worker, of a script that exited, or of a process that could not begin


def make_job(request: AnalysisRequest, mode: Mode) -> Job:
    """Returns the job of a worker for the script of this request."""
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
        resumed=request.resumed if mode is Mode.ANALYZE else "",
    )
