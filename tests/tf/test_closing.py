"""A window is closed by a value its steps produced: on devices that work on after a step has returned."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune.core.measurement import Window
from pipetune.tf.measure import closing
from pipetune.tf.script import consumers, fit_consumer, loop_consumer, step_consumers
from tests.tf.asynchronous import Device, InventedClock

Dataset = tf.data.Dataset

SECONDS, STEPS, WARM_UP = 0.02, 6, 3

original_close = closing.close


def truth(device: Device) -> float:
    return device.seconds_per_step(steps=STEPS, warmup=WARM_UP)


def returned_at_once(produced: Any = None, *, variables: Any = ()) -> None:
    """The mistake the closer is there against."""


class OnlyAt:
    """Closes at the beginning of a window only, or at its end only."""

    def __init__(self, which: int) -> None:
        self.which, self.calls = which, 0

    def __call__(self, produced: Any = None, *, variables: Any = ()) -> None:
        self.calls += 1
        if self.calls == self.which:
            original_close(produced, variables=variables)


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device(SECONDS)
    yield made
    made.close()


# -- the three consumers, each on a device that takes SECONDS a step


def by_a_step(device: Device) -> Window:
    return step_consumers.StepConsumer(device.step).window(Dataset.range(99), steps=STEPS, warmup=WARM_UP)


def by_fit(device: Device, library: Any = tf_keras) -> Window:
    """`fit` of a model whose every training step is handed to the device."""

    class Queueing(library.Model):  # type: ignore[misc]
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
    consumer = fit_consumer.FitConsumer(model, type(model).fit, {}, library.callbacks.CallbackList)
    data = Dataset.from_tensors((np.zeros([4, 2], "float32"), np.zeros([4, 1], "float32"))).repeat(99)
    return consumer.window(data, steps=STEPS, warmup=WARM_UP)


def by_fit_of_keras_3(device: Device) -> Window:
    return by_fit(device, keras)


CONSUMERS: list[Callable[[Device], Window]] = [by_a_step, by_fit]


@pytest.mark.parametrize("consume", [*CONSUMERS, by_fit_of_keras_3])
def test_the_clock_agrees_with_the_device(consume: Callable[[Device], Window], device: Device) -> None:
    window = consume(device)
    assert 0.9 * SECONDS <= window.step_seconds < 2 * truth(device)


@pytest.mark.parametrize("consume", CONSUMERS)
def test_without_the_closer_it_does_not(
    consume: Callable[[Device], Window], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "close", returned_at_once)
    assert consume(device).step_seconds < 0.5 * SECONDS


def test_what_the_warm_up_queued_is_not_counted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "close", OnlyAt(2))
    assert by_a_step(device).step_seconds > 1.3 * truth(device)


def test_what_the_window_queued_is_counted(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "close", OnlyAt(1))
    assert by_a_step(device).step_seconds < 0.5 * SECONDS


# -- a loop, whose step hands nothing out that can be seen: a variable it changes is read


def by_a_loop(device: Device, monkeypatch: pytest.MonkeyPatch) -> Window:
    monkeypatch.setattr(closing, "training_variables", lambda: (device,))
    consumer = loop_consumer.LoopConsumer()

    def script() -> None:
        with contextlib.suppress(consumers.ScriptStopped):
            while True:
                device.step(consumer.next_element())

    thread = threading.Thread(target=script)
    thread.start()
    try:
        return consumer.window(Dataset.range(99), steps=STEPS, warmup=WARM_UP)
    finally:
        consumer.stop()
        thread.join()


def test_a_loop_agrees_with_the_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    window = by_a_loop(device, monkeypatch)
    assert 0.9 * SECONDS <= window.step_seconds < 2 * truth(device)


def test_a_loop_without_the_closer_does_not(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "close", returned_at_once)
    assert by_a_loop(device, monkeypatch).step_seconds < 0.5 * SECONDS


def test_what_tensorflow_itself_runs_asynchronously_is_waited_for() -> None:
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
        for close in (lambda: closing.close(variables=[weight]), closing.close):
            done.clear()
            for _ in range(4):
                train_step()
            close()
            assert len(done) == 4
    finally:
        tf.config.experimental.set_synchronous_execution(True)


# -- the emulated accelerator of --step-time, on an invented clock


class SlowInput:
    """A dataset's stand-in whose every element takes `seconds` of the invented clock."""

    def __init__(self, clock: InventedClock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.element_spec = tf.TensorSpec([2])

    def cardinality(self) -> int:
        return int(tf.data.INFINITE_CARDINALITY)

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.clock.spend(self.seconds)
            yield tf.zeros([2])


@pytest.mark.parametrize(("input_ms", "step_ms", "expected_ms"), [(2, 10, 10), (10, 2, 10), (4, 4, 4), (30, 1, 30)])
def test_an_emulated_accelerator_works_while_the_input_is_fetched(
    input_ms: int, step_ms: int, expected_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = InventedClock(monkeypatch)
    consumer = step_consumers.EmulatedConsumer(step_ms / 1000)
    window = consumer.window(SlowInput(clock, input_ms / 1000), steps=12, warmup=4)
    assert 1000 * window.step_seconds == pytest.approx(expected_ms, rel=1e-6)


def test_the_emulated_accelerator_goes_through_the_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = InventedClock(monkeypatch)
    monkeypatch.setattr(closing, "close", returned_at_once)
    window = step_consumers.EmulatedConsumer(0.5).window(SlowInput(clock, 0.001), steps=3, warmup=0)
    assert window.wall_seconds < 3 * 0.5


def test_an_emulated_accelerator_holds_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = InventedClock(monkeypatch)
    accelerator = step_consumers.EmulatedAccelerator(1.0)
    started = clock.now
    first, second = accelerator(), accelerator()
    assert clock.now == started and not first.done
    third = accelerator()
    assert clock.now == started + 1.0 and first.done and not second.done
    third.block_until_ready()
    assert clock.now == started + 3.0
    clock.spend(10.0)
    accelerator().block_until_ready()
    assert clock.now == started + 14.0  # an idle accelerator saves nothing up


# -- what is read


class Counting:
    """Says how it was read."""

    def __init__(self, **methods: Any) -> None:
        self.read: list[str] = []
        for name in methods:
            setattr(self, name, lambda name=name: [self.read.append(name), self][1])


@pytest.mark.parametrize(
    ("methods", "read"),
    [
        (("block_until_ready", "numpy"), ["block_until_ready"]),
        (("detach", "cpu", "numpy"), ["detach", "cpu"]),
        (("numpy",), ["numpy"]),
        ((), []),
    ],
)
def test_values_of_other_libraries_are_waited_for(methods: tuple[str, ...], read: list[str]) -> None:
    value = Counting(**dict.fromkeys(methods, None))
    closing.close({"logs": [(value,), 3, None, "text"]})
    assert value.read == read


def test_tensors_of_every_kind_are_read() -> None:
    values = [
        tf.zeros([]),
        tf.zeros([0, 3]),
        tf.zeros([100, 100]),
        tf.constant("text"),
        tf.ragged.constant([[1], [2, 3]]),
        tf.SparseTensor([[0, 0]], [1.0], [2, 2]),
        tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.float32),
        tf.Variable(1.0),
        np.zeros(3),
    ]
    closing.close(values)


def test_what_the_queued_work_raises_ends_the_window() -> None:
    class Failing:
        def numpy(self) -> None:
            raise ZeroDivisionError("queued")

    from pipetune.core.measurement import RunFailed

    with pytest.raises(RunFailed, match="queued"):
        step_consumers.StepConsumer(lambda _x: Failing()).window(Dataset.range(9), steps=2, warmup=1)


def test_the_variables_read_are_trainable_and_small() -> None:
    kept = [tf.Variable(tf.zeros([size])) for size in (3000, 1, 2, 3, 4, 5)]
    frozen = tf.Variable(0.0, trainable=False)
    found = closing.training_variables()
    assert 0 < len(found) <= closing._READ * len(tf.config.list_logical_devices())
    assert all(one is not frozen and one is not kept[0] for one in found)
    sizes = [one.shape.num_elements() for one in found]
    assert sizes == sorted(sizes)
