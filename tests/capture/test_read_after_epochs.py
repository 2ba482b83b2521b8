"""The data that a Python loop reads after each epoch, beside that it trains on: what its code and its variables say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import validation
from pipetune.pipelines import call_sites

START = """
class Train:
    def __iter__(self):
        begin()
        return iter([1])
class Trainer:
    def __init__(self, data):
        self.data, self.every = data, 5
    def evaluate_all(self):
        return sum(int(x) for x in [x for x in self.data])
    def check(self, data, limit=None):
        for n, x in enumerate(data):
            if limit is not None and n >= limit:
                break
    @staticmethod
    def static(data):
        for x in data:
            pass
def loop_over(data, verbose=False):
    if verbose:
        return
    with open(__file__):
        for x in data:
            pass
def looks(data):
    for x in data:
        return x
def deep(data):
    loop_over(data=data)
class Model:
    def evaluate(self, x, steps=None):
        pass
train, model, settings, every = Train(), Model(), {"val": val}, 5
trainer = Trainer(val)
"""

READ = {
    "a loop of its own": "for x in val:\n        pass",
    "numbered": "for n, x in enumerate(val, 1):\n        pass",
    "by NumPy": "for x in val.as_numpy_iterator():\n        pass",
    "in a dict": "for x in settings['val']:\n        pass",
    "in a list": "losses = [int(x) for x in val]",
    "under what is known": "if val is not None:\n        loop_over(val)",
    "in a function": "loss = loop_over(val)",
    "in the function of a function": "deep(val)",
    "in a method": "trainer.evaluate_all()",
    "in a method, given": "trainer.check(val, limit=None)",
    "in a static method": "trainer.static(val)",
    "by Keras": "loss = every or model.fitted.evaluate(val, verbose=0)",
}

NOT_READ = {
    "now and then": "if epoch % every == 0:\n        loop_over(val)",
    "after the loop": "pass\nloop_over(val)",
    "some elements": "for n, x in enumerate(val):\n        if n >= every:\n            break",
    "some elements, in a method": "trainer.check(val, limit=trainer.every)",
    "some elements, of its data": "for x in val.take(3):\n        pass",
    "as many as another has": "for x, n in zip(val, range(3)):\n        pass",
    "the first element": "looks(val)",
    "unless it talks": "loop_over(val, verbose=True)",
    "some steps of it": "loss = every or model.fitted.evaluate(val, steps=3)",
    "another in each epoch": "val = val.skip(0)\n    loop_over(val)",
    "what is no dataset": "loop_over([1, 2])",
}


def found(folder: Path, text: str) -> list[tuple[bool, int | None]]:
    """Whether what is found is the dataset `val`, and the line of the script in which the loop reads it."""
    path, results = folder / "train.py", list[tuple[bool, int | None]]()
    path.write_text(START + text)
    val = tf.data.Dataset.range(3)

    def begin() -> None:
        frame = sys._getframe(2)
        for dataset, read in validation.in_loop(call_sites.path_from(frame), frame):
            results.append((dataset is val, call_sites.span_of(read[0])[0]))

    names = {"begin": begin, "val": val, "__file__": str(path), "fitted": tf.keras.Sequential([])}
    exec(compile(path.read_text() + "\n", str(path), "exec"), names)
    return results


@pytest.mark.parametrize("code", [*READ, *NOT_READ])
def test_what_each_iteration_of_the_loop_reads_to_its_end(tmp_path: Path, code: str) -> None:
    text = {**READ, **NOT_READ}[code]
    script = f"model.fitted = fitted\nfor epoch in range(1):\n    for x in train:\n        pass\n    {text}\n"
    line = START.count("\n") + (6 if code == "under what is known" else 5)
    assert found(tmp_path, script) == ([(True, line)] if code in READ else [])


def test_the_loop_around_training_may_be_in_a_function_that_calls_it(tmp_path: Path) -> None:
    text = (
        "def one(data):\n    for x in data:\n        pass\nfor epoch in range(1):\n    one(train)\n    loop_over(val)\n"
    )
    assert found(tmp_path, text) == [(True, START.count("\n") + 6)]
    assert found(tmp_path, "def once(data):\n    for x in data:\n        pass\nonce(train)\nloop_over(val)\n") == []


def test_a_callback_may_read_it_after_each_epoch() -> None:
    val = tf.data.Dataset.range(3)

    class Checks(tf.keras.callbacks.Callback):
        def __init__(self, data: object) -> None:
            super().__init__()
            self.data = data

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            print(self.model.evaluate(self.data, verbose=0))

    class Sometimes(Checks):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            if epoch % 5 == 0:
                self.model.evaluate(self.data)

    class Closure(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            print([int(x) for x in val])

    here = call_sites.path_from(sys._getframe())
    for callback, expected in ((Checks(val), [val]), (Sometimes(val), []), (Closure(), [val]), (Checks(3), [])):
        read = list(validation.in_callbacks([None, tf.keras.callbacks.History(), callback], here))
        assert [dataset for dataset, _ in read] == expected
        assert all(path[0][0].co_name == "on_epoch_end" and path[1:] == here for _, path in read)
