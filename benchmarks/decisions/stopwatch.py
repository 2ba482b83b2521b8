"""Times two training scripts against each other, without pipetune in either: what pipetune's answers are judged by.

Each script runs in a process of its own (`timed_script.py`), and the two are timed in turn, a window of training
steps each, in an order drawn for every pair; while one is timed, the other is frozen. None of this is used by what
pipetune itself measures with.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pipetune.core import files
from pipetune.core.measurement import RunFailed

TIMED_SCRIPT = Path(__file__).with_name("timed_script.py")

QUIET_CORES = 0.15
"""A pair is quiet if other processes used at most this many cores during its windows, those aside that run at a lower
priority (`nice`). By judgement: what an idle machine's services take. Two processes at `nice -n 19` that used all they
could get changed the ratio of the photos example from 1.45 to 1.41 (12 pairs), one at the same priority to 1.12."""

_WARM_UP_SECONDS = 3.0  # at least: AUTOTUNE has chosen its numbers
_FIRST_EPOCH_SECONDS = 20.0  # at most: a cache that is filled in the first epoch counts from the second one on
_FEWEST_STARTS = 3  # of epochs, for the shortest to be one that did not wait
_WINDOW_TIMEOUT_SECONDS = 180.0  # to the first step, and for a window


@dataclass(frozen=True)
class TimedScript:
    """A training script, and how it trains."""

    path: Path
    arguments: tuple[str, ...] = ()
    loop: bool = False  # it trains in a loop of its own; otherwise by `keras.Model.fit`
    cold: tuple[Path, ...] = ()  # files that are dropped from the page cache before each window


@dataclass(frozen=True)
class TimedPair:
    """One window of each script."""

    ratio: float  # time per step of the first script over that of the second: above 1, the second is faster
    other_cores: float  # cores used by other processes, in the busier of the two windows

    @property
    def quiet(self) -> bool:
        return self.other_cores <= QUIET_CORES


@dataclass(frozen=True)
class Timing:
    """All pairs of two scripts."""

    pairs: tuple[TimedPair, ...]
    starts_counted: bool  # whether the start of an epoch is part of the ratios
    start_share: float = 0.0  # the largest share of a step that is the start of an epoch, in either script

    @property
    def quiet(self) -> tuple[float, ...]:
        """The ratios of the quiet pairs."""
        return tuple(pair.ratio for pair in self.pairs if pair.quiet)

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(pair.ratio for pair in self.pairs)


def median_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median and the ends of its 95 % interval, from order statistics: no distribution is assumed.

    With fewer than six ratios, no two order statistics have that coverage; the interval is then all of them.
    """
    ordered, count = sorted(ratios), len(ratios)
    below, probability = 0, 0.5**count
    while probability <= 0.025:
        below += 1
        probability += math.comb(count, below) * 0.5**count
    first = max(0, below - 1)
    return statistics.median(ordered), ordered[first], ordered[count - 1 - first]


def time_scripts(
    first: TimedScript,
    second: TimedScript,
    *,
    pairs: int,
    starts: int = 4,
    window_seconds: float = 1.0,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Timing:
    """Times two scripts in turn.

    Args:
        first: the script as written.
        second: the changed script; ratios say how many times as fast it trains.
        pairs: number of pairs of windows.
        starts: how often both processes are started again; the pairs are divided among them. AUTOTUNE may choose other
            numbers in each process, and keep them.
        window_seconds: the least length of a window.
        seed: of the order in each pair.
        say: called with what is being done.

    Raises:
        RunFailed: a script ended, or took no training step in time.
    """
    draw = random.Random(seed)
    original, changed = both = _Measurements(), _Measurements()
    for start in range(starts):
        with _process(first, window_seconds, original) as one, _process(second, window_seconds, changed) as other:
            for process in (one, other):
                say(f"to the first training steps of {process.script.path.name}")
                process.warm_up()
            while len(original.windows) < pairs * (start + 1) // starts:
                say(f"pair {len(original.windows) + 1} of {pairs}")
                for process in draw.sample((one, other), 2):
                    process.found.windows.append(process.next_window())
    epochs = original.epochs + changed.epochs
    counted = bool(epochs) and min(len(original.starts), len(changed.starts)) >= _FEWEST_STARTS
    wait = statistics.fmean(original.waits + changed.waits) if counted else 0.0
    epoch = statistics.median(epochs) if counted else math.inf
    start_share = max(one.start_seconds(epoch, wait) / statistics.median(one.step_seconds(epoch, wait)) for one in both)
    return Timing(
        tuple(
            TimedPair(slow / fast, max(left.other_cores, right.other_cores))
            for slow, fast, left, right in zip(
                original.step_seconds(epoch, wait),
                changed.step_seconds(epoch, wait),
                original.windows,
                changed.windows,
                strict=True,
            )
        ),
        counted,
        start_share,
    )


@dataclass(frozen=True)
class _Window:
    step_seconds: float
    other_cores: float


@dataclass
class _Measurements:
    """What was measured of a script, in all its processes."""

    windows: list[_Window] = field(default_factory=list)  # after the warm-up
    starts: list[float] = field(default_factory=list)  # seconds to the end of an epoch's first step
    epochs: list[int] = field(default_factory=list)  # their lengths in steps

    @property
    def waits(self) -> list[float]:
        """How much longer than the shortest the starts of epochs took.

        They wait until AUTOTUNE's thread for the last epoch has ended: 0 to 2 s at random on the photos, whatever the
        input. A few such waits say little about one script, so that those of both are taken together.
        """
        return [start - min(self.starts) for start in self.starts]

    def start_seconds(self, epoch: float, wait: float) -> float:
        """Returns the share of each step in the start of its epoch, in seconds."""
        return (min(self.starts) + wait) / epoch if math.isfinite(epoch) else 0.0

    def step_seconds(self, epoch: float, wait: float) -> Iterator[float]:
        """Yields the time per step of each window, the start of an epoch shared out among the epoch's steps."""
        start = self.start_seconds(epoch, wait)
        for window in self.windows:
            yield window.step_seconds + start


@dataclass
class _Process:
    """A running script, frozen except within `next_window`."""

    script: TimedScript
    process: subprocess.Popen[bytes]
    lines: Path  # a line per window
    log: Path
    found: _Measurements
    read: int = 0  # characters of `lines` that were read
    epochs: int = 0  # that have ended

    def warm_up(self) -> None:
        """Trains until AUTOTUNE has had its time and, if epochs are short enough, for a whole epoch."""
        known = len(self.found.starts)
        self._wait()  # the first window begins with the first epoch
        del self.found.starts[known : known + 1]  # the very first step is traced
        began = time.monotonic()
        while (spent := time.monotonic() - began) < _WARM_UP_SECONDS or (
            not self.epochs and spent < _FIRST_EPOCH_SECONDS
        ):
            self.next_window()

    def next_window(self) -> _Window:
        """Continues the process until it has stopped itself again."""
        _drop_from_page_cache(self.script.cold)
        before, own_before, began = _busy_seconds(), self._own_seconds(), time.monotonic()
        self.process.send_signal(signal.SIGCONT)
        line = self._wait()
        others = (_busy_seconds() - before) - (self._own_seconds() - own_before)
        return _Window(line["seconds"] / line["steps"], max(0.0, others) / (time.monotonic() - began))

    def _wait(self) -> dict[str, Any]:
        """Waits until the process is stopped, and returns what it wrote about its window."""
        deadline = time.monotonic() + _WINDOW_TIMEOUT_SECONDS
        while True:
            ended, status = os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)
            if ended and os.WIFSTOPPED(status):
                break
            if ended:
                self.process.returncode = os.waitstatus_to_exitcode(status)
            if ended or time.monotonic() > deadline:
                last = self.log.read_text(errors="replace").strip().splitlines()[-4:]
                how = "ended" if ended else "trained for too few steps"
                raise RunFailed(f"{self.script.path} {how} while it was timed: {' / '.join(last)}")
            time.sleep(0.01)
        text = self.lines.read_text(encoding="utf-8")
        window: dict[str, Any] = json.loads(text[self.read :])
        self.read = len(text)
        self.found.starts += window["starts"]
        self.found.epochs += window["epochs"]
        self.epochs += len(window["epochs"])
        return window

    def _own_seconds(self) -> float:
        used = psutil.Process(self.process.pid).cpu_times()
        return float(used.user + used.system)


def _drop_from_page_cache(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _busy_seconds() -> float:
    """Processor seconds that all processes of normal priority have used on this machine."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice - times.nice)


@contextmanager
def _process(script: TimedScript, window_seconds: float, found: _Measurements) -> Iterator[_Process]:
    """Starts a script; it is killed at the end."""
    with files.temporary_folder("stopwatch") as name:
        lines, log = Path(name, "windows.jsonl"), Path(name, "log")
        kind = "loop" if script.loop else "fit"
        command = (TIMED_SCRIPT, lines, kind, f"{window_seconds:g}", script.path, *script.arguments)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                (sys.executable, "-P", *map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=script.path.parent,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
        try:
            yield _Process(script, process, lines, log, found)
        finally:
            process.kill()
            process.wait()
