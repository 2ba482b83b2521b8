"""The accuracy of predictions for several processes on one machine: 1, 2 and 4 that read the same example.

One process is profiled as in an analysis. From that profile, `bench.shared_machine` predicts the combined rate of
several processes. Then that many real processes read at the same time, each with its own TensorFlow.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipetune.bench import ProgressCallback
from pipetune.bench.dataset_study import create_study, measure_facts
from pipetune.bench.examples import FOLDER, training_dataset
from pipetune.bench.resumable import ResumableResults
from pipetune.bench.shared_machine import combined_rate
from pipetune.core.figures import Claim
from pipetune.core.results import RunFailed
from pipetune.model.throughput import no_prediction_reason

PROCESSES = (1, 2, 4)
EXAMPLES, QUICK_EXAMPLES = ("csv", "table"), ("table",)
ROUNDS, QUICK_ROUNDS = 3, 1
WINDOW_SECONDS, WARMUP_SECONDS = 3.0, 1.5
_LIMIT_SECONDS = 240.0  # for all measurements of one example; then its processes are killed


@dataclass(frozen=True)
class SharingRow:
    """One example with a number of processes; rates are combined, in elements of the output per second."""

    example: str
    processes: int
    predicted: float
    measured: float  # median of the rounds
    low: float  # slowest round
    high: float  # fastest round

    @property
    def error(self) -> float:
        """The relative error: predicted / measured - 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Sharing:
    """The figure. Errors are relative: 0.1 is 10 %; None if nothing was measured."""

    runs: int  # pairs of an example and a number of processes
    mean_abs_error: float | None
    max_abs_error: float | None
    rows: tuple[SharingRow, ...] = ()
    notes: tuple[str, ...] = ()


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> Sharing:
    """Predicts and measures every example whose data exist."""
    rows: list[SharingRow] = []
    notes = []
    for name in QUICK_EXAMPLES if quick else EXAMPLES:
        folder = FOLDER / name
        if (folder / "make_data.py").exists() and not (folder / "data").exists():
            notes.append(f"{name} was left out: its data have not been generated.")
            continue
        try:
            rounds = QUICK_ROUNDS if quick else ROUNDS
            run = partial(measure_example, folder, rounds=rounds, seed=seed, progress=progress)
            rows += saved.get(tuple[SharingRow, ...], name, run)
        except RunFailed as failure:
            notes.append(f"{name} could not be run: {failure}")
    return summarize(rows, notes=tuple(notes))


def summarize(rows: Sequence[SharingRow], *, notes: tuple[str, ...] = ()) -> Sharing:
    """Returns the figure with the errors of these rows."""
    errors = [abs(row.error) for row in rows]
    mean = statistics.fmean(errors) if errors else None
    return Sharing(len(rows), mean, max(errors, default=None), tuple(rows), notes)


def claims(result: Sharing, *, quick: bool) -> Sequence[Claim]:
    """Returns the errors, and predicted and measured rates of each run; there are no targets."""
    runs = [
        Claim(
            f"{row.example}, {row.processes} process{'es' if row.processes > 1 else ''} at once",
            f"{row.predicted:.0f} batches/s predicted, {row.measured:.0f} measured ({row.low:.0f} to {row.high:.0f})",
        )
        for row in result.rows
    ]
    if result.mean_abs_error is None or result.max_abs_error is None:
        return [Claim("mean error of several processes at once", "not measured")]
    error = f"{result.mean_abs_error:.1%}, at most {result.max_abs_error:.1%}"
    return [Claim(f"mean error, {result.runs} runs", error), *runs]


def measure_example(folder: Path, *, rounds: int, seed: int, progress: ProgressCallback) -> tuple[SharingRow, ...]:
    """Profiles an example, predicts its rates, and then measures them.

    Args:
        folder: the folder of the example.
        rounds: how often each number of processes is measured.
        seed: seed of the order in each round.
        progress: called before each measurement.

    Raises:
        RunFailed: the example cannot be run, or the model cannot predict its rate.
    """
    progress(f"{folder.name}: profile")
    predicted = predict_rates(folder)
    rates: dict[int, list[float]] = {count: [] for count in PROCESSES}
    draw = random.Random(seed)
    with start_readers(folder, max(PROCESSES)) as readers:
        for number in range(rounds):
            for count in draw.sample(PROCESSES, len(PROCESSES)):
                progress(f"{folder.name}: {count} at once, round {number + 1} of {rounds}")
                rates[count].append(measure_combined_rate(readers[:count]))
    return tuple(
        SharingRow(folder.name, count, predicted[count], statistics.median(measured), min(measured), max(measured))
        for count, measured in rates.items()
    )


def predict_rates(folder: Path) -> dict[int, float]:
    """Predicts the combined rate in elements per second, by number of processes, from a profile of one process.

    Raises:
        RunFailed: the example cannot be run, or the model cannot predict its rate.
    """
    study = create_study(training_dataset(folder))
    try:
        pipeline = study.subject.source.pipeline
        profile = measure_facts(study).profile
        assert profile is not None
        if reason := no_prediction_reason(pipeline, profile):
            raise RunFailed(f"not predicted: {reason}")
        cores = study.machine.cores_granted
        return {count: combined_rate(pipeline, profile, cores, processes=count) for count in PROCESSES}
    finally:
        study.runner.close()


Reader = subprocess.Popen[str]
"""A running `bench.reading_process`."""


@contextmanager
def start_readers(folder: Path, count: int) -> Iterator[tuple[Reader, ...]]:
    """Starts processes that have built the dataset of an example and wait for requests; kills them at the end.

    Raises:
        RunFailed: a process did not start.
    """
    command = [sys.executable, "-m", "pipetune.bench.reading_process", str(folder)]
    with tempfile.TemporaryFile("w+") as errors:
        readers = tuple(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            for _ in range(count)
        )

        def kill_all() -> None:
            for reader in readers:
                reader.kill()

        limit = threading.Timer(_LIMIT_SECONDS, kill_all)  # if one hangs: killing it ends the wait for its answer
        limit.start()
        try:
            for reader in readers:
                if _read_line(reader).strip() != "ready":
                    errors.seek(0)
                    raise RunFailed(f"a process did not start: {errors.read()[-500:]}")
            yield readers
        finally:
            limit.cancel()
            kill_all()
            for reader in readers:
                reader.communicate()


def measure_combined_rate(readers: Sequence[Reader]) -> float:
    """Lets processes read at the same time and returns their combined rate in elements per second.

    Raises:
        RunFailed: a process exited without an answer.
    """
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write(f"{WARMUP_SECONDS} {WINDOW_SECONDS}\n")
        reader.stdin.flush()
    rate = 0.0
    for reader in readers:
        answer = _read_line(reader)
        if not answer:
            raise RunFailed("a process exited during a window")
        window = json.loads(answer)
        rate += window["elements"] / window["seconds"]
    return rate


def _read_line(reader: Reader) -> str:
    assert reader.stdout is not None
    return reader.stdout.readline()
