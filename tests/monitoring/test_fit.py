"""`pipetune.keras.InputMonitor`: the wait that it logs, and when there is none."""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

import keras

import pipetune
from pipetune.timing import gap_times


class Calls:
    """A function that takes its time, as one of a dataset's or a model's, and when it was called."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.times: list[tuple[float, float]] = []

    def __call__(self, value: Any) -> Any:
        def wait(value: Any) -> Any:
            began = time.perf_counter()
            time.sleep(self.seconds)
            self.times.append((began, time.perf_counter()))
            return value

        return tf.ensure_shape(tf.numpy_function(wait, [value], value.dtype), value.shape)


def dataset(count: int, seconds: float) -> Any:
    """Batches of one row that take so long each; nothing is prefetched."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    source = Calls(seconds)
    made = tf.data.Dataset.range(count).map(lambda x: (source(tf.cast(x, tf.float32)[None, None]), tf.zeros([1, 1])))
    made = made.with_options(options)
    made.calls = source
    return made


class Model(keras.Model):
    """A linear model whose training step takes so long."""

    def __init__(self, seconds: float, **settings: Any) -> None:
        super().__init__()
        self.layer, self.calls = keras.layers.Dense(1), Calls(seconds)
        self.compile("sgd", "mse", **settings)

    def call(self, x: Any) -> Any:
        return self.layer(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        return super().train_step((self.calls(x), y))


class Seen(keras.callbacks.Callback):
    """What callbacks behind the monitor get, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float | None] = []
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append(logs.get("input_wait"))
        self.ends.append(time.perf_counter())


def fit(model: Any, data: Any, *more: Any, monitor: Any = None, **arguments: Any) -> tuple[Any, list[float]]:
    """Trains with a monitor, and returns it with `input_wait` of each epoch."""
    monitor = monitor or pipetune.keras.InputMonitor(quiet=True)
    history = model.fit(data, callbacks=[monitor, *more], verbose=0, shuffle=False, **arguments)
    return monitor, history.history.get("input_wait", [])


@pytest.mark.parametrize(("slow", "body"), [(0.02, 0.002), (0.001, 0.03)])
def test_share_is_the_time_between_request_and_delivery(slow: float, body: float) -> None:
    """It is at least that in the dataset's function, and at most that from the end of a step to the start of the next.

    What asks for an element may wait for a processor before that function starts.
    """
    model, data, seen = Model(body), dataset(40, slow), Seen()
    monitor, shares = fit(model, data, seen)
    first, last = seen.ends[0], seen.ends[-1]
    least, most = 0.0, 0.0
    for source, step, before in zip(data.calls.times[1:], model.calls.times[1:], seen.ends, strict=False):
        if source[0] > first:
            least += source[1] - source[0]
            most += step[0] - before
    assert shares == [monitor.input_wait]
    assert monitor.input_wait > 0.0
    assert least / (last - first) - 0.03 < monitor.input_wait < most / (last - first) + 0.03


def test_validation_is_not_counted() -> None:
    model = Model(0.02)
    monitor, shares = fit(model, dataset(10, 0.001), validation_data=dataset(5, 0.1), epochs=2)
    assert len(shares) == 2 and max(shares) < 0.5 and monitor.input_wait < 0.5  # with it, 0.7
    assert "val_input_wait" not in model.history.history


def test_epochs_that_share_an_iterator_are_told_apart() -> None:
    data = dataset(6, 0.001).repeat()
    _, shares = fit(Model(0.02), data, validation_data=dataset(5, 0.1), epochs=2, steps_per_epoch=10)
    assert len(shares) == 2 and max(shares) < 0.5  # with validation, 0.7


def test_history_csv_steps_and_one_line_at_the_end_tell_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", 0.05)
    seen, monitor = Seen(), pipetune.keras.InputMonitor()
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    _, shares = fit(Model(0.002), dataset(12, 0.02), log, seen, monitor=monitor, epochs=2)
    assert len(shares) == 2
    out = capsys.readouterr().out
    assert out.startswith("Input wait ") and " of 21 steps: `pipetune" in out and out.count("\n") == 1
    with open(tmp_path / "log.csv") as stream:
        assert [float(row["input_wait"]) for row in csv.DictReader(stream)] == pytest.approx(shares)
    steps = [seen.steps[:12], seen.steps[12:]]
    for step, share in zip(steps, shares, strict=True):
        assert step[0] is None and step[-1] == pytest.approx(share, abs=0.1)


def test_epoch_of_one_step_has_no_number() -> None:
    monitor, shares = fit(Model(0.0), dataset(1, 0.0), epochs=2)
    assert [math.isnan(share) for share in shares] == [True, True] and monitor.input_wait is None


def test_arrays_are_measured_too() -> None:
    monitor, shares = fit(Model(0.01), np.zeros([40, 1], "float32"), y=np.zeros([40, 1]), batch_size=4, epochs=2)
    assert len(shares) == 2 and monitor.input_wait < 0.5


def test_training_that_stops_early_leaves_nothing_behind() -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 9

    model = Model(0.002)
    monitor, (share,) = fit(model, dataset(1000, 0.02), Stop())
    assert share > 0.3 and type(model.train_function).__name__ == "function"

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, dataset(1000, 0.02), Fail(), monitor=monitor)
    _, (share,) = fit(model, dataset(12, 0.02))
    assert share > 0.3 and type(model.train_function).__name__ == "function"


# -- not available


def test_several_steps_in_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    """Keras 3 requests batches ahead within a call, so a request's time is no wait."""
    model, data, seen = Model(0.01, steps_per_execution=4), dataset(8, 0.01), Seen()
    monitor, shares = fit(model, data, seen, monitor=pipetune.keras.InputMonitor(), epochs=2)
    assert shares == [] and monitor.input_wait is None and set(seen.steps) == {None}
    assert "not available: with steps_per_execution above 1" in capsys.readouterr().out
    assert any(request[0] < body[1] for request, body in zip(data.calls.times[1:], model.calls.times, strict=False))
