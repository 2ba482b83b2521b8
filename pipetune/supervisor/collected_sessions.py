"""The input skew between the tasks of a cluster that each measured alone, from the sessions that they wrote."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipetune.core import session_file
from pipetune.core.cluster import ClusterTask
from pipetune.core.distribution import InputSkew, WorkerInput
from pipetune.core.errors import PipetuneError
from pipetune.core.session import Session
from pipetune.supervisor.monitoring import Interrupts

WAIT_SECONDS = 120.0  # for the sessions of tasks that started with this one and still run
_POLL_SECONDS = 0.5  # by judgement: shorter loads a shared file system, longer delays the end
_ROUNDS = 3  # parts of a window: as many as the rounds in which an analysis in lockstep measures input skew
_NO_PEER_SESSIONS = (
    "The other tasks of the cluster wrote no session below this task's results folder, so the input skew "
    "between the workers is unknown. To measure it, use --out with a folder that all machines share."
)


def peer_names(place: ClusterTask) -> list[str]:
    """Returns the names of the other tasks that train, which are also the names of their folders."""
    names = [f"worker-{number}" for number in range(place.workers - place.has_chief)]
    return names if place.has_chief else names[1:]


def with_input_skew(
    session: Session, folder: Path, place: ClusterTask, interrupts: Interrupts, *, wait_seconds: float = WAIT_SECONDS
) -> Session:
    """Returns the chief's session with the input skew between the workers.

    Args:
        session: of the chief.
        folder: the chief's results folder, which contains those of the other tasks.
        place: the chief's position in the cluster.
        interrupts: an interrupt ends the wait.
        wait_seconds: how long to wait for tasks that have started. A task without a folder here writes its results to
            another place, and is not waited for.
    """
    tuned = session.main_dataset
    if tuned is None or place.workers < 2:
        return session
    names = peer_names(place)
    found = _sessions([folder / name for name in names], interrupts, end=time.monotonic() + wait_seconds)
    if not any(found):
        return replace(session, notes=(*session.notes, _NO_PEER_SESSIONS))
    inputs = [worker_input(0, session)]
    for index, (name, one) in enumerate(zip(names, found, strict=True), start=1):
        why = f"it wrote no session to the subfolder {name}"
        inputs.append(worker_input(index, one) if one is not None else WorkerInput(index, why=why))
    with_skew = replace(tuned, skew=InputSkew(tuple(inputs)))
    return replace(session, datasets=tuple(with_skew if one is tuned else one for one in session.datasets))


def worker_input(worker: int, session: Session) -> WorkerInput:
    """Returns the input times of one worker from its session; its task consumed the input alone."""
    tuned = session.main_dataset
    if tuned is None or tuned.profile is None:
        return WorkerInput(worker, why=session.status_detail or "its session has no dataset")
    profile = tuned.profile
    whole = profile.consumer.input_seconds
    rounds = _part_means(profile.intervals) or ([whole] if whole else [])
    return WorkerInput(worker, tuple(rounds), profile.first_element_seconds)


def _part_means(intervals: Sequence[float]) -> list[float]:
    """The mean of each of `_ROUNDS` parts of a window, as many as `compare_inputs` measures; [] if it is too short."""
    size = len(intervals) // _ROUNDS
    parts = [intervals[number * size : (number + 1) * size] for number in range(_ROUNDS)] if size else []
    return [sum(part) / len(part) for part in parts]


def _sessions(folders: Sequence[Path], interrupts: Interrupts, *, end: float) -> list[Session | None]:
    while True:
        found = [_finished_session(folder) for folder in folders]
        awaited = any(one is None and folder.is_dir() for one, folder in zip(found, folders, strict=True))
        left = min(_POLL_SECONDS, end - time.monotonic())
        if not awaited or left <= 0 or interrupts.count:
            return found
        select.select([interrupts.descriptor], [], [], left)


def _finished_session(folder: Path) -> Session | None:
    try:
        found = session_file.load(folder)
    except PipetuneError:
        return None
    return None if found.status == "running" else found
