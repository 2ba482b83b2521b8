"""The worker of a recorded or replayed run: pipetune's own, with what it measures answered from a file."""

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
"""Variables that name the file with the answers, or the socket that they are sent to."""

FUNCTIONS = (
    "pipetune.tf.measure.machine:read_machine",
    "pipetune.tf.measure.machine:reset_peak_rss",
    "pipetune.tf.measure.machine:peak_rss_bytes",
    "pipetune.tf.measure.machine:rss_bytes",
    "pipetune.tf.measure.believed:read_believed",
    "pipetune.tf.measure.profiler:profile_input",
    "pipetune.tf.measure.differencing:measure_costs",
    "pipetune.tf.measure.reading:observe",
    "pipetune.tf.measure.cold:residency",
    "pipetune.tf.measure.file_reads:sweep_files",
    "pipetune.tf.measure.source_reads:sweep_source",
    "pipetune.tf.measure.small_files:compare",
    "pipetune.tf.measure.growth:watch",
    "pipetune.tf.measure.transfer:measure_transfer",
    "pipetune.tf.measure.epochs:run_epochs",
    "pipetune.tf.measure.epochs:first_seconds",
    "pipetune.tf.measure.windows:input_window",
    "pipetune.tf.measure.overheads:measure_overheads",
    "pipetune.tf.measure.batch_costs:measure_batch_costs",
    "pipetune.tf.measure.cropping_costs:measure_cropping_shares",
    "pipetune.tf.measure.cropping_costs:measure_shrinking_shares",
    "pipetune.tf.measure.cutting_costs:measure_cut_costs",
    "pipetune.tf.measure.padding:measure_padding",
)
"""What is measured: modules and functions."""

WINDOWS = ("input_window", "training_window", "watch_autotune")  # of a plan


def main() -> int:
    """As `python -m pipetune.worker`."""
    from pipetune.worker import __main__ as worker

    original = worker.end_without_supervisor

    def started(*args: Any, **kwargs: Any) -> bool:
        watched = original(*args, **kwargs)
        install()
        return watched

    worker.end_without_supervisor = started
    return worker.main()


def install() -> None:
    """From now on this process measures nothing, or keeps what it measures."""
    import pipetune

    for found in pkgutil.walk_packages(pipetune.__path__, "pipetune."):
        if ".__main__" not in found.name and not found.name.startswith(("pipetune.bench", "pipetune.tf.bench")):
            importlib.import_module(found.name)
    clock = Clock()
    answers = Answers(REPLAYS in os.environ, clock)
    if answers.replays:
        answers.load(Path(os.environ[REPLAYS]))
    else:  # not into a file: what is written while it measures is put back
        connection = Client(os.environ[RECORDER])
        answers.keep = lambda asked, answer: connection.send_bytes(pickle.dumps((asked, answer)))
    for name in FUNCTIONS:
        module, _, function = name.partition(":")
        old = getattr(importlib.import_module(module), function)
        replace_everywhere("pipetune", old, answered(answers, old, function))
    from pipetune.tf.measure.load import LoadMeter
    from pipetune.tf.measure.runner import TensorFlowRunner

    LoadMeter.load = answered(answers, LoadMeter.load, "load")
    TensorFlowRunner.bound_window = answered(answers, TensorFlowRunner.bound_window, "bound_window")
    for name in WINDOWS:
        measure = getattr(TensorFlowRunner, name)
        measure = answered(answers, measure, name, asked=_plan, left=_reading, leave=_leave_reading)
        setattr(TensorFlowRunner, name, measure)
    clock.install()


def _plan(_runner: Any, plan: Any, **_: Any) -> str:
    return str(plan.key or plan.name)


def _reading(runner: Any, plan: Any, **_: Any) -> Any:
    """What a window leaves with its runner."""
    return runner.readings.get(plan.key), list(runner.notes)


def _leave_reading(left: Any, runner: Any, plan: Any, **_: Any) -> None:
    reading, notes = left
    if reading is not None:
        runner.readings[plan.key] = reading
    runner.notes[:] = notes


if __name__ == "__main__":
    sys.exit(main())
