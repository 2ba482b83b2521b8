"""Merges what the other tasks of a cluster measured into the chief's session.

All tasks run the same command; each writes its session below the chief's folder, if the machines share that folder.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipetune.core import sessionfile
from pipetune.core.cluster import Place
from pipetune.core.errors import PipetuneError
from pipetune.core.session import Session
from pipetune.core.skew import InputSkew, WorkerInput
from pipetune.supervisor.interrupts import Interrupts

WAIT_SECONDS = 120.0  # for the sessions of tasks that started with this one and still run
_LOOK_SECONDS = 0.5
_ROUNDS = 3
_ELSEWHERE = (
    "The other tasks of the cluster left no session below this one's folder: how far the workers' inputs are apart is "
    "not known. With --out in a folder that all machines share it would be."
)


def others_of(place: Place) -> list[str]:
    """The names of the other tasks that train, which are also the names of their folders."""
    names = [f"worker-{number}" for number in range(place.workers - place.has_chief)]
    return names if place.has_chief else names[1:]


def gathered(
    session: Session, folder: Path, place: Place, interrupts: Interrupts, *, wait_seconds: float = WAIT_SECONDS
) -> Session:
    """The chief's session with the input skew between the workers.

    Args:
        session: of the chief.
        folder: the chief's results folder, which contains those of the other tasks.
        place: the chief's position in the cluster.
        interrupts: an interrupt ends the wait.
        wait_seconds: how long to wait for tasks that have started. A task without a folder here writes its results to
            another place, and is not waited for.
    """
    tuned = session.tuned_dataset
    if tuned is None or place.workers < 2:
        return session
    names = others_of(place)
    found = _sessions([folder / name for name in names], interrupts, end=time.monotonic() + wait_seconds)
    if not any(found):
        return replace(session, notes=(*session.notes, _ELSEWHERE))
    inputs = [input_of(0, session)]
    for worker, (name, one) in enumerate(zip(names, found, strict=True), start=1):
        why = f"it left no session in the folder {name} below this one"
        inputs.append(input_of(worker, one) if one is not None else WorkerInput(worker, why=why))
    with_skew = replace(tuned, skew=InputSkew(tuple(inputs)))
    return replace(session, datasets=tuple(with_skew if one is tuned else one for one in session.datasets))


def input_of(worker: int, session: Session) -> WorkerInput:
    """The input times of one worker from its session; its task consumed the input alone."""
    tuned = session.tuned_dataset
    if tuned is None or tuned.profile is None:
        return WorkerInput(worker, why=session.status_detail or "its session holds no dataset")
    profile = tuned.profile
    whole = profile.consumer.input_seconds
    rounds = _means(profile.intervals) or ([whole] if whole else [])
    return WorkerInput(worker, tuple(rounds), profile.first_element_seconds)


def _means(intervals: Sequence[float]) -> list[float]:
    """The mean of each of `_ROUNDS` parts of a window, as many as `stages.skew` has rounds; [] if it is too short."""
    size = len(intervals) // _ROUNDS
    parts = [intervals[number * size : (number + 1) * size] for number in range(_ROUNDS)] if size else []
    return [sum(part) / len(part) for part in parts]


def _sessions(folders: Sequence[Path], interrupts: Interrupts, *, end: float) -> list[Session | None]:
    while True:
        found = [_ended(folder) for folder in folders]
        awaited = any(one is None and folder.is_dir() for one, folder in zip(found, folders, strict=True))
        left = min(_LOOK_SECONDS, end - time.monotonic())
        if not awaited or left <= 0 or interrupts.count:
            return found
        select.select([interrupts.descriptor], [], [], left)


def _ended(folder: Path) -> Session | None:
    try:
        found = sessionfile.load(folder)
    except PipetuneError:
        return None
    return None if found.status == "running" else found
