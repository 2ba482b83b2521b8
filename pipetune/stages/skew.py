"""After the verdict, with several workers in lockstep: the input of each, alone, on its own share of the data."""

from __future__ import annotations

import statistics

from pipetune.core.measurement import RunFailed, Window
from pipetune.core.skew import InputSkew, WorkerInput
from pipetune.stages.profiling import AS_WRITTEN
from pipetune.stages.study import Study

_ROUNDS = 3
_SECONDS, _QUICK_SECONDS = 0.4, 0.1  # of a window
_WARMUP_SECONDS = 0.1


def compare_inputs(study: Study) -> None:
    """Measures the workers' inputs, one worker at a time while the rest wait; does nothing without other workers.

    Measures in rounds: with a single measurement each, workers would be compared at different moments of the machine.
    """
    team, journal = study.team, study.journal
    if team is None:
        return
    seconds = _QUICK_SECONDS if study.settings.quick else _SECONDS
    windows: list[list[Window]] = [[] for _ in range(len(team))]
    reasons = [""] * len(team)
    with journal.phase("skew", f"measuring the input of each of {len(team)} workers"):
        for _ in range(_ROUNDS):
            for worker in range(len(team)):
                if reasons[worker]:
                    continue
                try:
                    windows[worker].append(_window(study, worker, seconds))
                except RunFailed as failure:
                    reasons[worker] = str(failure)
    inputs = (_input(worker, *one) for worker, one in enumerate(zip(windows, reasons, strict=True)))
    journal.dataset(skew=InputSkew(tuple(inputs)))
    if study.elsewhere:
        return
    shared = (
        f"{len(team)} workers share the {study.cores} cores of this machine: with a machine for each, a step is "
        "shorter, and another plan may be the best."
    )
    journal.update(notes=(*journal.session.notes, shared))


def _window(study: Study, worker: int, seconds: float) -> Window:
    if worker == 0:
        return study.runner.input_window(AS_WRITTEN, seconds=seconds, warmup_seconds=_WARMUP_SECONDS)
    assert study.team is not None
    return study.team.measure_input(worker, seconds=seconds, warmup_seconds=_WARMUP_SECONDS)


def _input(worker: int, windows: list[Window], why: str) -> WorkerInput:
    if why or not windows:
        return WorkerInput(worker, why=why)
    each = tuple(window.step_seconds for window in windows)
    return WorkerInput(worker, each, statistics.median(window.first_seconds for window in windows))
