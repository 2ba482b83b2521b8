"""`python -m benchmarks.accuracy JOB`: measures the figures of accuracy.json that a job names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from benchmarks import ProgressCallback
from benchmarks.accuracy.results import AccuracyFigure
from benchmarks.measuring_process import run_job
from benchmarks.resumable import ResumableResults
from pipetune.core.codec import encode
from pipetune.core.machine import Machine
from pipetune.core.messages import Job
from pipetune.core.version import VERSION


def figure_module(name: str) -> ModuleType:
    """Imports the module that measures a figure."""
    return importlib.import_module(f"benchmarks.accuracy.{name}")


def read_machine() -> Machine:
    """Returns this machine as TensorFlow sees it."""
    from pipetune.measure import machine  # imports TensorFlow

    return machine.read_machine()


def measure(name: str, job: Job, progress: ProgressCallback) -> tuple[AccuracyFigure, Machine]:
    """Measures one figure, and continues where an interrupted run of the same kind stopped."""
    module = figure_module(name)
    quick, seed = job.settings.quick, job.settings.seed
    condition = f"{VERSION}, seed {seed}, {'quick' if quick else 'whole'}"
    saved = ResumableResults(Path(job.out) / f".{name}.part.json", condition=condition)
    result = module.measure(quick=quick, seed=seed, progress=progress, saved=saved)
    values = encode(result)
    assert isinstance(values, dict)
    notes = tuple(str(note) for note in values.pop("notes", ()))
    figure = AccuracyFigure(values, claims=tuple(module.claims(result, quick=quick)), notes=notes)
    saved.delete()
    return figure, read_machine()


if __name__ == "__main__":
    sys.exit(run_job(measure))
