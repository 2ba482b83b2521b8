"""A window is closed by waiting for a value of its steps, as devices continue to work after a step has returned."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune.capture import consumption, loop_consumer
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.core.measurement import RunFailed, Window
from pipetune.timing import windows
from tests.timing.asynchronous import Device, InventedClock

Dataset = tf.data.Dataset

SECONDS, STEPS, WARM_UP = 0.02, 6, 3


def agrees(window: Window, device: Device) -> None:
    assert 0.9 * SECONDS <= window.step_seconds < 2 * device.seconds_per_step(steps=STEPS, warmup=WARM_UP)


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device(SECONDS)
    yield made
    made.close()


# -- the three consumers, on a device that takes SECONDS per step


def by_a_step(device: Device) -> Window:
    return loop_consumer.StepConsumer(device.step).window(Dataset.range(99), steps=STEPS, warmup=WARM_UP)


def by_fit(device: Device, library: Any = tf_keras) -> Window:
    """`fit` of a model that runs each training step on the device."""

    class Queueing(library.Model):
        def make_train_function(self, force: bool = False) -> Any:
            def train(iterator: Any) -> dict[str, Any]:
                next(iterator)
                return {"loss": device.step()}

            self.train_function = train
            return train

        def call(self, x: Any) -> Any:
            return x

    model = Queueing()
    model.compile("sgd", "mse")
    data = Dataset.from_tensors((np.zeros([4, 2], "float32"), np.zeros([4, 1], "float32"))).repeat(99)
    return FitConsumer(model, type(model).fit, {}).window(data, steps=STEPS, warmup=WARM_UP)


@pytest.mark.parametrize("consume", [by_a_step, by_fit, partial(by_fit, library=keras)])
def test_step_time_agrees_with_the_device(consume: Callable[[Device], Window], device: Device) -> None:
    """Without waiting, a step would take as long as it takes to queue it."""
    agrees(consume(device), device)


# -- a loop, whose step returns nothing to pipetune: a variable that it changes is read instead, or its library waits


def by_a_loop(step: Callable[[Any], Any]) -> Window:
    consumer = loop_consumer.LoopConsumer()

    def script() -> None:
        with contextlib.suppress(consumption.ScriptStopped):
            while True:
                step(consumer.next_element())

    thread = threading.Thread(target=script)
    thread.start()
    try:
        return consumer.window(Dataset.range(99), steps=STEPS, warmup=WARM_UP)
    finally:
        consumer.stop()
        thread.join()


def in_tensorflow(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "training_variables", lambda: (device,))


def in_jax(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = lambda arrays: [one.numpy() for one in arrays]  # noqa: E731
    jax = SimpleNamespace(live_arrays=lambda: [device], block_until_ready=wait)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(backends_are_initialized=lambda: True))


def in_pytorch(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=device.numpy)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))


@pytest.mark.parametrize("queue_steps", [in_tensorflow, in_jax, in_pytorch])
def test_loop_step_time_agrees_with_the_device(queue_steps, device, monkeypatch) -> None:
    queue_steps(device, monkeypatch)
    agrees(by_a_loop(device.step), device)


def test_step_time_of_a_loop_in_jax_is_that_of_its_computation() -> None:
    """On processors too, where JAX queues 32 steps: without waiting, a step takes as long as it takes to queue it."""
    jax = pytest.importorskip("jax")
    matrix = jax.numpy.ones((1000, 1000)) / 1000

    @jax.jit
    def multiply(state: Any) -> Any:
        return matrix @ (matrix @ state)

    state = multiply(matrix)
    began = time.perf_counter()
    for _ in range(STEPS):
        state = jax.block_until_ready(multiply(state))
    seconds = (time.perf_counter() - began) / STEPS

    def step(_: Any) -> None:
        nonlocal state
        state = multiply(state)

    assert by_a_loop(step).step_seconds > 0.4 * seconds


def test_libraries_that_have_queued_nothing_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking JAX for arrays, or CUDA to finish, would take memory of a GPU that the script leaves alone."""
    idle = SimpleNamespace(backends_are_initialized=lambda: False, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(live_arrays=None))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", idle)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=idle))
    assert not windows.waits_for_other_libraries()


def test_asynchronous_eager_execution_is_waited_for() -> None:
    weight, done = tf.Variable(0.0), list[int]()

    def slow(value: Any) -> Any:
        threading.Event().wait(SECONDS)
        done.append(1)
        return value

    @tf.function
    def train_step() -> None:
        weight.assign_add(tf.py_function(slow, [1.0], tf.float32))

    train_step()
    tf.config.experimental.set_synchronous_execution(False)
    try:
        for close in (lambda: windows.wait_for_device(variables=[weight]), windows.wait_for_device):
            done.clear()
            for _ in range(4):
                train_step()
            close()
            assert len(done) == 4
    finally:
        tf.config.experimental.set_synchronous_execution(True)


# -- the emulated accelerator of --step-time, on a fake clock


class SlowInput:
    """A fake dataset each of whose elements takes `seconds` of the fake clock."""

    element_spec = tf.TensorSpec([2])

    def __init__(self, clock: InventedClock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def cardinality(self) -> int:
        return int(tf.data.INFINITE_CARDINALITY)

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.clock.spend(self.seconds)
            yield tf.zeros([2])


@pytest.mark.parametrize(("input_ms", "step_ms", "expected_ms"), [(2, 10, 10), (10, 2, 10)])
def test_emulated_accelerator_overlaps_with_the_input(input_ms, step_ms, expected_ms, monkeypatch) -> None:
    clock = InventedClock(monkeypatch)
    consumer = loop_consumer.EmulatedConsumer(step_ms / 1000)
    assert f" {step_ms} ms" in consumer.description and consumer.kind == "emulated"
    window = consumer.window(SlowInput(clock, input_ms / 1000), steps=12, warmup=4)
    assert 1000 * window.step_seconds == pytest.approx(expected_ms, rel=1e-6)


def test_emulated_accelerator_queues_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = InventedClock(monkeypatch)
    accelerator = loop_consumer.EmulatedAccelerator(1.0)
    started = clock.now
    first, second = accelerator(), accelerator()
    assert clock.now == started and not first.done
    third = accelerator()
    assert clock.now == started + 1.0 and first.done and not second.done
    third.block_until_ready()
    assert clock.now == started + 3.0
    clock.spend(10.0)
    accelerator().block_until_ready()
    assert clock.now == started + 14.0  # idle time is not credited to later steps


# -- the values that are waited for


class Counting:
    """Records how it was read."""

    def __init__(self, **methods: Any) -> None:
        self.read: list[str] = []
        for name in methods:
            setattr(self, name, lambda name=name: [self.read.append(name), self][1])


@pytest.mark.parametrize(("methods", "read"), [
    (("block_until_ready", "numpy"), ["block_until_ready"]),
    (("detach", "cpu", "numpy"), ["detach", "cpu"]),
    (("numpy",), ["numpy"]),
    ((), []),
])  # fmt: skip
def test_values_of_other_libraries_are_waited_for(methods: tuple[str, ...], read: list[str]) -> None:
    value = Counting(**dict.fromkeys(methods, None))
    windows.wait_for_device({"logs": [(value,), 3, None, "text"]})
    assert value.read == read


def test_tensors_of_every_kind_can_be_waited_for() -> None:
    dense = [*map(tf.zeros, ([], [0, 3], [100, 100])), tf.constant("text"), tf.Variable(1.0), np.zeros(3)]
    ragged, sparse = tf.ragged.constant([[1], [2, 3]]), tf.SparseTensor([[0, 0]], [1.0], [2, 2])
    variant = tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.float32)
    windows.wait_for_device([*dense, ragged, sparse, variant])


def test_error_of_queued_work_fails_the_window() -> None:
    failing = SimpleNamespace(numpy=Mock(side_effect=ZeroDivisionError("queued")))
    with pytest.raises(RunFailed, match="queued"):
        loop_consumer.StepConsumer(lambda _x: failing).window(Dataset.range(9), steps=2, warmup=1)


def test_variables_waited_for_are_trainable_and_small() -> None:
    kept = [tf.Variable(tf.zeros([size])) for size in (3000, 1, 2, 3, 4, 5)]
    frozen = tf.Variable(0.0, trainable=False)
    found = windows.training_variables()
    assert 0 < len(found) <= windows._VARIABLES_READ * len(tf.config.list_logical_devices())
    assert all(one is not frozen and one is not kept[0] for one in found)
    sizes = [one.shape.num_elements() for one in found]
    assert sizes == sorted(sizes)
