"""The worker of a recorded or replayed run: pipetune's own, with recorded measurements."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import sys
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from tests.recorded.answers import Answers, Clock, answered, replace_everywhere

REPLAYS, RECORDER = "PIPETUNE_TESTS_REPLAYS", "PIPETUNE_TESTS_RECORDER"
"""Environment variables with the file of answers, or with the socket to send them to."""

FUNCTIONS = {
    "measure.caches": ("seconds_per_element",),
    "measure.differencing": ("measure_costs",),
    "measure.epochs": ("measure_transfer", "measure_next", "run_epochs", "first_seconds", "measure_overheads"),
    "measure.files": ("residency", "sweep_files", "compare"),
    "measure.machine": ("read_machine", "reset_peak_rss", "peak_rss_bytes", "rss_bytes", "detect_resources"),
    "measure.memory": ("sample_memory", "measure_padding"),
    "measure.profiler": ("profile_input",),
    "measure.source_reads": ("observe", "sweep_source"),
    "measure.variant_costs": ("measure_batch_costs", "measure_shares"),
    "timing.windows": ("input_window",),
}
"""The functions that measure, by module."""

WINDOWS = ("bound_window", "input_window", "training_window", "watch_autotune")  # of a plan, but for the first


def main() -> int:
    """Like `python -m pipetune.worker`."""
    from pipetune.worker import __main__ as worker

    original = worker.exit_with_supervisor

    def started(*args: Any, **kwargs: Any) -> bool:
        watched = original(*args, **kwargs)
        install()
        return watched

    worker.exit_with_supervisor = started
    return worker.main()


def install() -> None:
    """Replaces all measurements of this process by recorded ones, or records them."""
    import pipetune

    for found in pkgutil.walk_packages(pipetune.__path__, "pipetune."):
        if ".__main__" not in found.name:
            importlib.import_module(found.name)
    clock = Clock()
    answers = Answers(REPLAYS in os.environ, clock)
    if answers.replays:
        answers.load(Path(os.environ[REPLAYS]))
    else:  # not to a file, because files written while measuring are restored
        connection = Client(os.environ[RECORDER])
        answers.keep = lambda asked, answer: connection.send_bytes(pickle.dumps((asked, answer)))
    for module, functions in FUNCTIONS.items():
        for function in functions:
            old = getattr(importlib.import_module(f"pipetune.{module}"), function)
            replace_everywhere("pipetune", old, answered(answers, old, function))
    from pipetune.measure.runner import TensorFlowRunner
    from pipetune.timing.cpu_load import LoadMeter

    LoadMeter.load = answered(answers, LoadMeter.load, "load")
    for name in WINDOWS:
        measure = getattr(TensorFlowRunner, name)
        setattr(TensorFlowRunner, name, answered(answers, measure, name, asked=_asked, left=_left, leave=_leave))
    clock.install()


def _asked(_runner: Any, plan: Any = None, **_: Any) -> str:
    return "" if plan is None else str(plan.key or plan.name)


def _left(runner: Any, plan: Any = None, **_: Any) -> Any:
    """What a window stores in its runner: the parameter reading, notes, and how long windows take besides."""
    reading = runner.autotune_readings.get(plan.key) if plan is not None else None
    return reading, list(runner.notes), {unit: list(seconds) for unit, seconds in runner.seconds_around.items()}


def _leave(left: Any, runner: Any, plan: Any = None, **_: Any) -> None:
    reading, notes, seconds_around = left
    if reading is not None:
        runner.autotune_readings[plan.key] = reading
    runner.notes[:] = notes
    runner.seconds_around.update(seconds_around)


if __name__ == "__main__":
    sys.exit(main())
