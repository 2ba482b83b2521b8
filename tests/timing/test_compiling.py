"""Compile time is kept out of windows, and detected where a new shape compiles within one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune import tensorflow_private
from pipetune.capture import loop_consumer
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.timing import windows

Dataset = tf.data.Dataset


def rows(count: int, *, batch: int = 4) -> Any:
    return Dataset.from_tensor_slices((np.ones([count, 8], "float32"), np.zeros([count, 1], "float32"))).batch(batch)


def counting_consumer() -> tuple[FitConsumer, list[int]]:
    """A consumer of a compiled model, and the steps of each of its calls of `fit`."""
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    calls: list[int] = []

    def fit(model: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["steps_per_epoch"])
        return type(model).fit(model, **kwargs)

    return FitConsumer(model, fit, {}), calls


def test_first_window_of_a_compiled_model_has_no_compile_time() -> None:
    consumer, _ = counting_consumer()
    before, started = tensorflow_private.tracing_seconds(), time.perf_counter()
    window = consumer.window(rows(400), steps=5, warmup=2)
    outside = time.perf_counter() - started - window.wall_seconds
    assert tensorflow_private.tracing_seconds() > before
    assert window.compile_seconds == 0
    assert window.wall_seconds < outside  # five small steps, and XLA's compiling outside of them


def test_smaller_last_batch_is_compiled_in_the_warm_up() -> None:
    consumer, calls = counting_consumer()
    window = consumer.window(rows(22), steps=8, warmup=2)  # five batches of four, one of two
    assert calls[0] == 6 + 8 + 1 and window.steps == 8 and window.compile_seconds == 0
    consumer.window(rows(22), steps=8, warmup=2)
    assert calls[-1] == 2 + 8 + 1  # all shapes are compiled already


def test_window_with_an_unexpected_shape_is_repeated() -> None:
    # Batches of 4, then of 3: the cardinality is unknown to TensorFlow.
    data = rows(48).filter(lambda x, y: tf.constant(True)).concatenate(rows(30, batch=3))
    consumer, calls = counting_consumer()
    window = consumer.window(data, steps=18, warmup=2)
    assert calls == [21, 21] and window.compile_seconds == 0


# -- a step that the user compiles


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_window_in_which_a_step_compiles_is_repeated(drop_remainder: bool) -> None:
    """A smaller last batch compiles; where it is dropped, all are of one shape."""
    taken: list[int] = []
    step = tf.function(lambda x: tf.reduce_sum(tf.tanh(x) @ tf.transpose(x)), jit_compile=True)

    def counted(x: Any) -> Any:
        taken.append(int(x.shape[0]))
        return step(x)

    data = Dataset.range(22).map(lambda x: tf.fill([8], tf.cast(x, tf.float32))).batch(4, drop_remainder=drop_remainder)
    window = loop_consumer.StepConsumer(counted).window(data, steps=8, warmup=2)
    assert window.steps == 8 and window.compile_seconds == 0
    assert len(taken) == 2 + 8 + 1 + (0 if drop_remainder else 8 + 1)
    assert drop_remainder or 2 in taken[3:11]


def test_step_that_always_retraces_has_compile_time() -> None:
    step = lambda x: tf.function(lambda x: x + 1)(x)  # noqa: E731 - traced again in each step
    window = loop_consumer.StepConsumer(step).window(Dataset.range(9), steps=3, warmup=1)
    assert 0 < window.compile_seconds <= window.wall_seconds * 1.05


# -- what counts as compiling


@pytest.mark.parametrize(("step_seconds", "new_shapes", "expected"), [
    ([0.001] * 9, True, 0.0),
    ([0.001] * 8 + [0.5], True, 0.499),
    ([0.001] * 8 + [0.5], False, 0.0),  # another cause
    ([0.001] * 8 + [0.015], True, 0.0),  # too short for compiling
    ([0.1] * 8 + [0.5], True, 0.0),  # not an outlier
    ([0.001, 0.5], True, 0.0),  # nothing to compare with
])  # fmt: skip
def test_outlier_among_steps_with_new_shapes_is_compile_time(step_seconds, new_shapes, expected) -> None:
    found = windows.WindowTimer().compile_seconds(step_seconds, new_shapes=new_shapes)
    assert found == pytest.approx(expected)


def test_varying_shapes_and_signatures() -> None:
    assert windows.shapes_vary(rows(9).element_spec)
    assert not windows.shapes_vary(Dataset.range(9).batch(3, drop_remainder=True).element_spec)
    assert windows.signature((tf.zeros([2, 3]), {"a": tf.constant("x")})) == ((2, 3), ())
