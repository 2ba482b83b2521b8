"""How well the rate of several processes on one machine is predicted: 1, 2 and 4 that run an example's input at once.

The example is profiled alone, as `analyze` does; `bench.shared_machine` predicts from that what so many processes
deliver together; then so many real ones run at the same time, each with a TensorFlow of its own.
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
from pathlib import Path

from pipetune.bench import Say
from pipetune.bench.alone import facts_of, study_of
from pipetune.bench.examples import training_dataset
from pipetune.bench.shared_machine import combined_rate
from pipetune.core.accuracy import Claim
from pipetune.core.benchmarks import FOLDER
from pipetune.core.results import RunFailed
from pipetune.model.throughput import no_prediction_reason

PROCESSES = (1, 2, 4)
EXAMPLES, QUICK_EXAMPLES = ("csv", "table"), ("table",)
ROUNDS, QUICK_ROUNDS = 3, 1
WINDOW_SECONDS, WARMUP_SECONDS = 3.0, 1.5
_LIMIT_SECONDS = 240.0  # for all that one example's processes do


@dataclass(frozen=True)
class SharingRow:
    """So many processes of one example; rates in elements of the output per second, all processes together."""

    example: str
    processes: int
    predicted: float
    measured: float  # the median of the rounds
    low: float
    high: float

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Sharing:
    """The figure."""

    runs: int
    mean_abs_error: float | None
    max_abs_error: float | None
    rows: tuple[SharingRow, ...] = ()
    notes: tuple[str, ...] = ()


def measure(*, quick: bool, seed: int, say: Say) -> Sharing:
    """Predicts and measures every example whose data are there."""
    rows: list[SharingRow] = []
    notes = []
    for name in QUICK_EXAMPLES if quick else EXAMPLES:
        folder = FOLDER / name
        if (folder / "make_data.py").exists() and not (folder / "data").exists():
            notes.append(f"{name} was left out: its data were not made.")
            continue
        try:
            rows += rows_of(folder, rounds=QUICK_ROUNDS if quick else ROUNDS, seed=seed, say=say)
        except RunFailed as failure:
            notes.append(f"{name} could not be run: {failure}")
    return judge(rows, notes=tuple(notes))


def judge(rows: Sequence[SharingRow], *, notes: tuple[str, ...] = ()) -> Sharing:
    """The figure of these rows."""
    errors = [abs(row.error) for row in rows]
    mean = statistics.fmean(errors) if errors else None
    return Sharing(len(rows), mean, max(errors, default=None), tuple(rows), notes)


def claims(found: Sharing, *, quick: bool) -> Sequence[Claim]:
    """Each run, predicted beside measured; nothing is promised."""
    others = [
        Claim(
            f"{row.example}, {row.processes} process{'es' if row.processes > 1 else ''} at once",
            f"{row.predicted:.0f} batches/s predicted, {row.measured:.0f} measured ({row.low:.0f} to {row.high:.0f})",
        )
        for row in found.rows
    ]
    if found.mean_abs_error is None or found.max_abs_error is None:
        return [Claim("mean error of several processes at once", "not measured")]
    error = f"{found.mean_abs_error:.1%}, at most {found.max_abs_error:.1%}"
    return [Claim(f"mean error, {found.runs} runs", error), *others]


def rows_of(folder: Path, *, rounds: int, seed: int, say: Say) -> tuple[SharingRow, ...]:
    """One example: profiled and predicted first, then run.

    Raises:
        RunFailed: it cannot be run, or the model does not predict it.
    """
    say(f"{folder.name}: profile")
    predicted = predictions(folder)
    rates: dict[int, list[float]] = {count: [] for count in PROCESSES}
    draw = random.Random(seed)
    with readers(folder, max(PROCESSES)) as all_of_them:
        for done in range(rounds):
            for count in draw.sample(PROCESSES, len(PROCESSES)):
                say(f"{folder.name}: {count} at once, round {done + 1} of {rounds}")
                rates[count].append(together(all_of_them[:count]))
    return tuple(
        SharingRow(folder.name, count, predicted[count], statistics.median(found), min(found), max(found))
        for count, found in rates.items()
    )


def predictions(folder: Path) -> dict[int, float]:
    """Elements per second by the number of processes, from a profile of one.

    Raises:
        RunFailed: it cannot be run, or the model says that it cannot tell.
    """
    study = study_of(training_dataset(folder))
    try:
        pipeline = study.subject.source.pipeline
        profile = facts_of(study).profile
        assert profile is not None
        if reason := no_prediction_reason(pipeline, profile):
            raise RunFailed(f"not predicted: {reason}")
        cores = study.machine.cores_granted
        return {count: combined_rate(pipeline, profile, cores, processes=count) for count in PROCESSES}
    finally:
        study.runner.close()


Reader = subprocess.Popen[str]


@contextmanager
def readers(folder: Path, count: int) -> Iterator[tuple[Reader, ...]]:
    """So many processes that have built the example's input and wait; all are ended.

    Raises:
        RunFailed: one did not get ready.
    """
    command = [sys.executable, "-m", "pipetune.bench.reading_process", str(folder)]
    with tempfile.TemporaryFile("w+") as errors:
        started = tuple(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            for _ in range(count)
        )

        def end() -> None:
            for one in started:
                one.kill()

        limit = threading.Timer(_LIMIT_SECONDS, end)  # whatever hangs: a killed process ends the wait for its answer
        limit.start()
        try:
            for one in started:
                if _line(one).strip() != "ready":
                    errors.seek(0)
                    raise RunFailed(f"a process did not start: {errors.read()[-500:]}")
            yield started
        finally:
            limit.cancel()
            end()
            for one in started:
                one.communicate()


def together(running: Sequence[Reader]) -> float:
    """Elements per second of these processes, all told to read at the same moment.

    Raises:
        RunFailed: one ended without an answer.
    """
    for one in running:
        assert one.stdin is not None
        one.stdin.write(f"{WARMUP_SECONDS} {WINDOW_SECONDS}\n")
        one.stdin.flush()
    rate = 0.0
    for one in running:
        answer = _line(one)
        if not answer:
            raise RunFailed("a process ended in the middle of a window")
        found = json.loads(answer)
        rate += found["elements"] / found["seconds"]
    return rate


def _line(one: Reader) -> str:
    assert one.stdout is not None
    return one.stdout.readline()
