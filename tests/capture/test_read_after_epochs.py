"""The data that a Python loop reads beside that it trains on: what its code and its variables say."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import validation
from pipetune.pipelines import call_sites

START = """
import tensorflow as tf
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
traced = tf.function(loop_over)
def deep(data):
    loop_over(data=data)
class Model:
    def evaluate(self, x, steps=None):
        pass
train, model, settings, every = Train(), Model(), {"val": val}, 5
trainer, last, look = Trainer(val), [9], lambda data: [x for x in data]
from pipetune.capture.distributed_input import DistributedInput
class Distributed:
    _pipetune_handed = DistributedInput(None, val, None, "")
    def __iter__(self):
        return iter(())
distributed = Distributed()
"""

READ = {
    "a loop of its own": "for x in val:\n        pass",
    "numbered": "for n, x in enumerate(val, 1):\n        pass",
    "by NumPy": "for x in val.as_numpy_iterator():\n        pass",
    "distributed by a strategy": "for x in distributed:\n        pass",
    "in a dict": "for x in settings['val']:\n        pass",
    "in a list": "losses = [int(x) for x in val]",
    "summed": "loss = sum(int(x) for x in val) / 3",
    "under what is known": "if val is not None:\n        loop_over(val)",
    "in a function": "loss = loop_over(val)",
    "in the function of a function": "deep(val)",
    "in a method": "trainer.evaluate_all()",
    "in a method, given": "trainer.check(val, limit=None)",
    "in a tf.function": "traced(val)",
    "in a static method": "trainer.static(val)",
    "of a table of data": "for name, data in settings.items():\n        loop_over(data)",
    "of its values": "for data in settings.values():\n        for x in data:\n            pass",
    "of several": "for data in ([1], val):\n        loop_over(data)",
    "by Keras": "loss = every or model.fitted.evaluate(val, verbose=0)",
}

NOT_READ = {
    "after the loop": "pass\nloop_over(val)",
    "some elements": "for n, x in enumerate(val):\n        if n >= every:\n            break",
    "some elements, in a method": "trainer.check(val, limit=trainer.every)",
    "some elements, of its data": "for x in val.take(3):\n        pass",
    "as many as another has": "for x, n in zip(val, range(3)):\n        pass",
    "the first element": "looks(val)",
    "until one is like that": "any(int(x) > 0 for x in val)",
    "unless it talks": "loop_over(val, verbose=True)",
    "some steps of it": "loss = every or model.fitted.evaluate(val, steps=3)",
    "unless there is no loss": "loss = looks(val)\n    if loss is None:\n        break\n    loop_over(val)",
    "another in each epoch": "val = val.skip(0)\n    loop_over(val)",
    "what is no dataset": "loop_over([1, 2])",
    "in a lambda": "look(val)",
    "of several, which it changes": "for data in [val]:\n        data = data.take(3)\n        loop_over(data)",
    "of several, until one fails": "for data in [val]:\n        if every:\n            break\n        loop_over(data)",
}


NOW_AND_THEN = {  # every 5 iterations
    "by number": "if epoch % every == 0:",
    "counted from 1": "if (epoch + 1) % trainer.every == 0:",
    "not the first": "if epoch > 0 and epoch % every == 0:",
    "not the first ones": "if epoch >= len(last) or trainer.every <= epoch and epoch % every == 0:",
    "not where it is 0": "if epoch and not epoch % 5:",
    "where it is asked for": "if val is not None and epoch % every == 0:",
    "also in the last": "if epoch % 5 == 4 or epoch == last:",
}

ONCE = {
    "where nobody asks": "if settings.get('often') and epoch % 5 == 0:",
    "where something else holds, too": "if looks(val) and epoch % 5 == 0:",
    "some day": "if epoch == 5:",
    "where it is the best": "best = True\n    if best and epoch % 5 == 0:",
    "often, as a variable of the loop says": "five = 5\n    if epoch % five == 0:",
}

STEPS = {  # the iterator is made before the loops
    "for i in range(10):\n    next(it)\n    if i % 5 == 0:\n        loop_over(val)": 5,
    "for n in range(9):\n    for i in range(10):\n        next(it)\n    loop_over(val)": 10,
    "for n in last:\n    for i in tqdm(range(4, 9)):\n        next(it)\n    if n % 2 == 0:\n        loop_over(val)": 10,
    "def go(count):\n    for i in range(count):\n        next(it)\nfor n in last:\n    go(7)\n    loop_over(val)": 7,
    "for x in it:\n    if step % 5 == 0:\n        loop_over(val)": 5,
    "for n in last:\n    for i in list(range(3)) * 5:\n        next(it)\n    loop_over(val)": None,  # how many?
    "for n in last:\n    for i, k in zip(range(9), last):\n        next(it)\n    loop_over(val)": None,
    "for i in range(10):\n    next(it)\n    loop_over(val)": None,  # each step: this is no validation
    "for n in range(9):\n    for i in it:\n        pass\n    loop_over(val)": None,  # of how many steps?
    "while True:\n    next(it)\n    if over():\n        loop_over(val)": None,
}


def found(folder: Path, text: str, *, read: bool = True) -> list[tuple[bool, int | None, int, bool]]:
    """What is found: whether it is `val`, the line in which the loop reads it, and how often.

    It is looked for when the script makes the iterator, or (`read` false) when it takes the first element.
    """
    path, results = folder / "train.py", list[tuple[bool, int | None, int, bool]]()
    path.write_text(START + text)
    val = tf.data.Dataset.range(3)

    def begin() -> None:
        frame = sys._getframe(2)
        for one in validation.in_loop(call_sites.path_from(frame) if read else (), frame):
            results.append((one.dataset is val, call_sites.span_of(one.path[0])[0], one.every, one.in_steps))

    names = {"begin": begin, "val": val, "__file__": str(path), "fitted": tf.keras.Sequential([])}
    with contextlib.suppress(SystemExit):
        exec(compile(path.read_text() + "\n", str(path), "exec"), names)
    return results


@pytest.mark.parametrize("code", [*READ, *NOT_READ])
def test_what_each_iteration_of_the_loop_reads_to_its_end(tmp_path: Path, code: str) -> None:
    text = {**READ, **NOT_READ}[code]
    script = f"model.fitted = fitted\nfor epoch in range(1):\n    for x in train:\n        pass\n    {text}\n"
    line = START.count("\n") + (6 if text.startswith(("if ", "for name", "for data")) else 5)
    assert found(tmp_path, script) == ([(True, line, 1, False)] if code in READ else [])


@pytest.mark.parametrize("code", [*NOW_AND_THEN, *ONCE])
def test_what_the_loop_reads_in_every_fifth_epoch(tmp_path: Path, code: str) -> None:
    test = {**NOW_AND_THEN, **ONCE}[code]
    script = f"for epoch in range(1):\n    for x in train:\n        pass\n    {test}\n        loop_over(val)\n"
    read = found(tmp_path, script)
    assert [one[2:] for one in read] == ([(5, False)] if code in NOW_AND_THEN else [])


@pytest.mark.parametrize("text", STEPS)
def test_what_a_loop_of_steps_reads_now_and_then(tmp_path: Path, text: str) -> None:
    head = "step, tqdm, over = 1, list, bool\nclass Steps(Train):\n    def __next__(self):\n        begin()\n"
    ends = "        raise SystemExit\n    def __iter__(self):\n        return self\nit = Steps()\n"
    read = found(tmp_path, head + ends + text, read=False)
    assert [one[2:] for one in read] == ([] if STEPS[text] is None else [(STEPS[text], True)])


def test_the_loop_around_training_may_be_in_a_function_that_calls_it(tmp_path: Path) -> None:
    one = "def one(data):\n    for x in data:\n        pass\n"
    read = found(tmp_path, f"{one}for epoch in range(1):\n    one(train)\n    loop_over(val)\n")
    assert read == [(True, START.count("\n") + 6, 1, False)]
    assert found(tmp_path, f"{one}one(train)\nloop_over(val)\n") == []


@pytest.mark.parametrize(("method", "body", "expected"), [
    ("on_epoch_end", "print(self.model.evaluate(self.data, verbose=0))", 1),
    ("on_epoch_end", "if number % 5 == 0:\n            self.model.evaluate(self.data)", 5),
    ("on_epoch_end", "print([int(x) for x in val])", 1),
    ("on_epoch_end", "print(self.model.evaluate(self.number, verbose=0))", None),
    ("on_train_batch_end", "if number and number % 7 == 0:\n            self.model.evaluate(self.data)", 7),
])  # fmt: skip
def test_a_callback_may_read_it_after_each_epoch(tmp_path: Path, method: str, body: str, expected: int | None) -> None:
    path, val = tmp_path / "train.py", tf.data.Dataset.range(3)
    path.write_text(
        "class Checks(tf.keras.callbacks.Callback):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.data, self.number = val, 3\n    def {method}(self, number, logs=None):\n        {body}\n"
    )
    names: dict[str, Any] = {"tf": tf, "val": val, "__name__": "__main__"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    here = call_sites.path_from(sys._getframe())
    read = list(validation.in_callbacks([None, tf.keras.callbacks.History(), names["Checks"]()], here))
    assert [(one.dataset, one.every) for one in read] == ([(val, expected)] if expected else [])
    assert all(one.path[0][0].co_name == method and one.path[1:] == here for one in read)
    assert all(one.in_steps == (method == "on_train_batch_end") for one in read)
