"""The stopwatch: what a step, an epoch's start, a pair and an interval are, and that it changes nothing."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.decisions import stopwatch, timed_script
from benchmarks.decisions.stopwatch import TimedPair, TimedScript, Timing, median_interval, time_scripts
from benchmarks.decisions.timed_script import StepWindows
from pipetune.core.measurement import RunFailed

FAKE = """
import json, os, signal, sys
lines, kind, seconds, script, *arguments = sys.argv[1:]
print("started", kind, *arguments, flush=True)
window = {"steps": 10, "seconds": float(open(script).read()), "starts": [0.5], "epochs": [10]}
while True:
    with open(lines, "a") as stream:
        stream.write(json.dumps(window) + "\\n")
    os.kill(os.getpid(), signal.SIGSTOP)
"""
"""Stands for a script that is timed: every window takes the seconds that its text says."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(stopwatch, "TIMED_SCRIPT", tmp_path / "fake.py")
    monkeypatch.setattr(stopwatch, "_WARM_UP_SECONDS", 0.0)


def script(folder: Path, text: str) -> TimedScript:
    path = folder / f"{text}.py"
    path.write_text(text)
    return TimedScript(path)


@pytest.mark.usefixtures("fake")
def test_ratio_is_the_time_per_step_with_its_share_of_the_epochs_start(tmp_path: Path) -> None:
    timing = time_scripts(script(tmp_path, "4.0"), script(tmp_path, "1.0"), pairs=5, starts=2)
    # 10 steps and 0.5 s to begin an epoch of 10 steps: 0.4 + 0.05 and 0.1 + 0.05 seconds a step
    assert timing.ratios == pytest.approx([3.0] * 5)
    assert timing.starts_counted and timing.start_share == pytest.approx(0.05 / 0.15)


@pytest.mark.usefixtures("fake")
def test_files_are_dropped_from_the_page_cache_before_each_window(tmp_path, monkeypatch) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"1")
    dropped: list[str] = []
    advise = lambda descriptor, *_: dropped.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: E731
    monkeypatch.setattr(os, "posix_fadvise", advise)
    cold, warm = (replace(script(tmp_path, text), cold=files) for text, files in (("4.0", (data,)), ("1.0", ())))
    time_scripts(cold, warm, pairs=3, starts=1)
    assert dropped == [str(data)] * 3


def test_waits_of_epochs_are_those_of_both_scripts() -> None:
    slow, fast = (stopwatch._Measurements(starts=starts) for starts in ([2.0, 5.0, 2.0], [1.0, 1.0, 1.0]))
    assert (slow.waits, fast.waits) == ([0.0, 3.0, 0.0], [0.0] * 3)  # 0.5 s on average
    fast.windows.append(stopwatch._Window(step_seconds=0.1, other_cores=0.0))
    assert list(fast.step_seconds(10.0, 0.5)) == pytest.approx([0.25])
    assert list(fast.step_seconds(math.inf, 0.0)) == [0.1]  # too few starts are known


@pytest.mark.usefixtures("fake")
def test_a_script_that_ends_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"words\.py ended.*could not convert string to float"):
        time_scripts(script(tmp_path, "words"), script(tmp_path, "1.0"), pairs=2)


def test_pairs_beside_others_do_not_count() -> None:
    timing = Timing((TimedPair(2.0, 0.0), TimedPair(1.0, 0.5), TimedPair(3.0, 0.1)), starts_counted=True)
    assert timing.quiet == (2.0, 3.0) and timing.ratios == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # The ranks in tables of the sign test, two-sided, 5 %.
    [(1, 1, 1), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (20, 6, 15), (60, 22, 39)],
)
def test_interval_of_the_median(count: int, low: int, high: int) -> None:
    ratios = [float(rank) for rank in range(count, 0, -1)]
    assert median_interval(ratios) == ((count + 1) / 2, low, high)


def test_steps_and_starts_of_epochs_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(timed_script.time, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(timed_script.os, "kill", lambda *sent: (signals.append(sent), clock.append(clock[-1] + 100)))
    windows = StepWindows(str(tmp_path / "windows"), 10.0)

    def steps(*ends: float, begins: float = 0.0) -> None:
        if begins:
            clock.append(begins)
            windows.epoch_begins()
        for end in ends:
            clock.append(end)
            windows.step_ends()

    steps(53.0, 54.0, 55.0, begins=50.0)  # 3 s until the first step ended, then steps of 1 s
    steps(64.0, 65.0, 66.0, begins=60.0)  # after validation, say
    assert not signals  # 10 s are over, and there were only four steps
    steps(67.0)
    assert signals == [(os.getpid(), signal.SIGSTOP)]
    steps(168.5, 169.0, 170.0, 171.0, 178.0)  # continued at 167
    first, second = map(json.loads, (tmp_path / "windows").read_text().splitlines())
    assert (first["steps"], first["seconds"], first["starts"], first["epochs"]) == (5, 5.0, [3.0, 4.0], [3])
    assert (second["steps"], second["seconds"], second["starts"]) == (5, 11.0, [])


KERAS = """
import sys
import keras, numpy as np, tensorflow as tf
dataset = tf.data.Dataset.from_tensor_slices(np.ones([40, 2], "float32")).map(lambda row: (row, row[0])).batch(4)
model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
print(next(iter(dataset))[1])
model.fit(dataset, None, None, 2, validation_data=dataset, callbacks=[keras.callbacks.ModelCheckpoint("saved.keras")])
open("finished", "w")
"""

LOOP = """
import sys, tensorflow as tf
total = tf.Variable(0)
for epoch in range(int(sys.argv[1])):
    for element in tf.data.Dataset.range(50):
        total.assign_add(int(element))
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_scripts_are_timed_as_they_are_and_save_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_WARM_UP_SECONDS", 0.0)
    fit, loop = tmp_path / "fit.py", tmp_path / "loop.py"
    fit.write_text(KERAS)
    loop.write_text(LOOP)
    both = TimedScript(fit), TimedScript(loop, ("1000000",), loop=True)
    timing = time_scripts(*both, pairs=3, starts=1, window_seconds=0.05)
    assert len(timing.pairs) == 3 and all(ratio > 0 for ratio in timing.ratios)
    assert {entry.name for entry in tmp_path.iterdir()} == {"fit.py", "loop.py"}
