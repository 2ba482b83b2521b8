"""`import pipetune` in the user's own process."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipetune
from pipetune import api
from pipetune.core.measurement import RunFailed
from pipetune.core.settings import Settings

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

OPERATORS = ["range", "map", "map", "batch"]


def wait(number: Any) -> Any:
    time.sleep(0.002)
    return number


def make_dataset(last: Callable[[Any], Any], size: int = 2) -> Any:
    slow = tf.data.Dataset.range(40).map(lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.int64), []))
    return slow.map(last).batch(size)


def twice(number: Any) -> Any:
    return number * 2


@pytest.fixture(scope="module")
def tuned() -> tuple[Any, Any, dict[str, list[float]]]:
    """A dataset, its session, and the values of a variable before and after."""
    total, steps = tf.Variable(5.0), tf.Variable(0)
    values = {"before": [float(total), float(steps)]}

    def step(batch: Any) -> None:
        total.assign_add(tf.cast(tf.reduce_sum(batch), tf.float32))
        steps.assign_add(1)

    with pipetune.record():
        dataset = make_dataset(twice)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "Settings", functools.partial(Settings, quick=True))  # the same, but shorter
        session = pipetune.tune(dataset, step=step, budget=4, allow=["statistical", "python-parallel"])
    values["after"] = [float(total), float(steps)]
    return dataset, session, values


def test_tune_restores_variables(tuned: Any) -> None:
    _, session, values = tuned
    assert values["before"] == values["after"] == [5.0, 0.0]
    assert session.session.status == "done" and session.session.complete
    consumer = session.session.main_dataset.profile.consumer
    assert consumer.kind == "step" and consumer.real_seconds > consumer.bound_seconds


def test_plan_is_applied_from_the_session_and_from_a_file(tuned: Any, tmp_path: Path) -> None:
    dataset, session, _ = tuned
    session.save_plan(tmp_path / "plan.json")
    wanted = [batch.tolist() for batch in dataset.as_numpy_iterator()]
    for plan in (session.plan, str(tmp_path / "plan.json"), tmp_path, session):
        applied = pipetune.apply_plan(dataset, plan)
        assert [batch.tolist() for batch in applied.as_numpy_iterator()] == wanted
        assert applied.element_spec == dataset.element_spec
        assert pipetune.apply_plan(make_dataset(twice), plan) is not None, "the same code, built again"


def test_session_is_saved_loaded_and_reported(tuned: Any, tmp_path: Path) -> None:
    _, session, _ = tuned
    session.save(tmp_path / "session.json")
    again = pipetune.load(tmp_path / "session.json")
    assert again.session == session.session == pipetune.load(tmp_path).session
    again.report(tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()
    frame, lines = again.to_frame(), Path(__file__).read_text().splitlines()
    assert list(frame["operator"]) == OPERATORS
    for operator, place in zip(OPERATORS, frame["source"], strict=True):
        file, _, line = place.rpartition(":")
        assert file == __file__ and f".{operator}(" in lines[int(line) - 1]


def test_failing_dataset_raises_its_own_error() -> None:
    def fail(number: Any) -> Any:
        raise KeyError("of the user")

    dataset = tf.data.Dataset.range(4).map(lambda x: tf.numpy_function(fail, [x], tf.int64))
    with pytest.raises(RunFailed, match="KeyError") as raised:
        pipetune.profile(dataset)
    assert isinstance(raised.value.__cause__, tf.errors.OpError), "the cause is TensorFlow's own"


def test_import_does_not_import_tensorflow() -> None:
    code = "import sys, pipetune; pipetune.tune; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("call", "good"), [(pipetune.profile, 0), (functools.partial(pipetune.tune, budget=4), 30)])
def test_failing_step_raises_step_failed_with_its_traceback(monkeypatch, call, good) -> None:
    """B8: the session used to complete, with the ZeroDivisionError in its notes."""
    monkeypatch.setattr(api, "Settings", functools.partial(Settings, quick=True))
    total, taken = tf.Variable(5.0), 0

    def step(batch: Any) -> None:
        nonlocal taken
        taken += 1
        total.assign_add(1.0)
        if taken > good:
            _ = 1 / 0

    with pytest.raises(pipetune.StepFailed, match="The step raised ZeroDivisionError: division by zero") as raised:
        call(tf.data.Dataset.range(40).batch(2), step=step)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert traceback.extract_tb(raised.value.__cause__.__traceback__)[-1].line == "_ = 1 / 0"
    assert float(total) == 5.0, "put back before it is raised"


class Batches(tf.keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return np.zeros((2, 3))


def numbers() -> Any:
    yield 1


@pytest.mark.parametrize(("value", "given", "advice"), [
    ([1, 2, 3], "a list", "from_tensor_slices"),
    (np.arange(3), "a ndarray", "from_tensor_slices"),
    ("train.tfrecord", "a str", "TFRecordDataset"),
    (numbers, "a generator function", "from_generator"),
    (twice, "a function", "call it"),
    (iter(tf.data.Dataset.range(3)), "an OwnedIterator", "without iter()"),
    (Batches(), "a Batches", "Keras runs it in Python"),
    (None, "a NoneType", ""),
])  # fmt: skip
def test_wrong_type_of_dataset_is_a_type_error_with_advice(value: Any, given: str, advice: str) -> None:
    for call in (pipetune.tune, pipetune.profile, functools.partial(pipetune.apply_plan, plan=None)):
        with pytest.raises(TypeError, match=f"takes a tf.data.Dataset, not {given}") as raised:
            call(value)
        assert advice in str(raised.value)


def test_invalid_allow_and_step_are_refused_at_once() -> None:
    dataset = tf.data.Dataset.range(3)
    with pytest.raises(ValueError, match=r"'reorders' is not one of statistical, .*Did you mean reorder\?"):
        pipetune.tune(dataset, allow=["reorders"])
    with pytest.raises(TypeError, match="step must be a function that is called with each element, not a int"):
        pipetune.tune(dataset, step=3)  # type: ignore[arg-type]
