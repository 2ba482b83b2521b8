"""`pipetune analyze` in an existing cluster: if all tasks connect, the first coordinates and the others are agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipetune.core.cluster import Place
from pipetune.core.json_lines import JsonLines
from pipetune.core.messages import Failed, Mode
from pipetune.core.session import Session
from pipetune.core.version import VERSION
from pipetune.supervisor import meeting
from pipetune.supervisor.display import Screen
from pipetune.supervisor.elsewhere import Tasks
from pipetune.supervisor.following import Follower
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.meeting import Invitation
from pipetune.supervisor.request import Analysis, Request, job_of
from pipetune.supervisor.user_files import UserFiles

_NOT_MET = (
    "The tasks of the cluster have not found each other within {:.0f} s: each measures its own input alone. To try "
    "plans together, start all of them at once, with --out in a folder that their machines share and the first one "
    "reachable from the others."
)
_ALONE = (
    "Rank {0.index} of {0.workers} measures its own input alone, and no plan is tried in a training step. That needs "
    "ranks that can be started again together: those of horovodrun with Gloo (--gloo), their number fixed."
)


def analyze(
    request: Request,
    screen: Screen,
    interrupts: Interrupts,
    private: Path,
    *,
    run: Callable[[Tasks | None, tuple[str, ...]], Analysis],
) -> Analysis:
    """Analyze together with the other tasks if all have connected, else this task alone.

    Args:
        request: what to analyze; its `place` is set.
        screen: shows the progress.
        interrupts: Ctrl-C and other signals, as something to wait for.
        private: a folder that nobody else reads.
        run: runs the analysis as the coordinator of these tasks, or alone if None, with these notes for the report.
    """
    place, wait_seconds = request.place, request.limits.meeting
    assert place is not None
    if not place.in_step:
        return _alone(place, screen, run)
    screen.update("cluster", f"{place}: looking for the other tasks")
    if place.first:
        with meeting.called(request.results.root, place, interrupts, wait_seconds=wait_seconds) as others:
            if others is not None:
                tasks = Tasks(*others, rendezvous_host=place.host if place.by_rendezvous else "")
                analysis = run(tasks, ())
                tasks.dismiss(analysis.exit_code, analysis.session.status_detail if analysis.exit_code else "")
                return analysis
    else:
        with meeting.joined(request.results.root.parent, place, interrupts, wait_seconds=wait_seconds) as first:
            if first is not None:
                return _follow(request, place, screen, interrupts, private, first)
    not_met = _NOT_MET.format(wait_seconds)
    screen.warn(not_met)
    return run(None, (not_met,))


def _alone(
    place: Place, screen: Screen, run: Callable[[Tasks | None, tuple[str, ...]], Analysis]
) -> Analysis:
    """Analyze this task alone, as its peers cannot be coordinated; for a rank of Horovod, warn with the reason."""
    if not place.of_ranks:
        return run(None, ())
    why = _ALONE.format(place)
    screen.warn(why)
    return run(None, (why,))


def _follow(
    request: Request,
    place: Place,
    screen: Screen,
    interrupts: Interrupts,
    private: Path,
    first: tuple[Invitation, JsonLines],
) -> Analysis:
    """Run as the agent of a task other than the first; it has no results of its own."""
    where = request.results.root.parent
    screen.update("following", f"{place} does what the first task says; the results will be in {where}")
    request.results.show()  # only the log
    follower = Follower(
        own=job_of(request, Mode.ANALYZE),
        place=place,
        invitation=first[0],
        lines=first[1],
        interrupts=interrupts,
        log=request.results.log,
        private=private,
        command=request.worker_command,
        files=UserFiles(screen, where),
    )
    over = follower.follow()
    if over.exit_code:
        hint = f"What is known is in {where}; what the script printed here, in {request.results.log}."
        session = Session(VERSION, command={}, status="failed", status_detail=over.why)
        return Analysis(session, over.exit_code, request.results, failed=Failed(over.why, hint, over.exit_code))
    detail = f"Followed the first task; the results are in {where}."
    screen.say(detail)
    return Analysis(Session(VERSION, command={}, status="done", status_detail=detail), 0, request.results)
