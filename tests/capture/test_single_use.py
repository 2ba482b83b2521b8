"""Whether the running call of `fit`, or loop, is the only one of the script; where that is uncertain, it is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import rebuilding
from pipetune.capture.rebuilding import is_read_once


class _Model:
    """Records the answer for each call of `fit`."""

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def fit(self, _data: Any) -> None:
        self.answers.append(is_read_once(sys._getframe(1), method="fit", data="data"))

    def evaluate(self, _data: Any) -> None:
        pass


def _first_answer(text: str) -> bool:
    model = _Model()
    exec(compile(text, "train.py", "exec"), {"model": model, "data": [1], "__name__": "__main__"})
    return model.answers[0]


def _loops_once(text: str) -> bool:
    class Data:
        def __iter__(self) -> Iterator[int]:
            answers.append(is_read_once(sys._getframe(1), data="data"))
            return iter([1, 2, 3])

    answers: list[bool] = []
    exec(compile(text, "train.py", "exec"), {"data": Data(), "Data": Data, "__name__": "__main__"})
    return answers[0]


ONCE = [
    "model.fit(data)",
    "for x in range(3):\n    pass\nmodel.fit(data)\nfor y in range(2):\n    pass",
    "class Trainer:\n    def train(self):\n        model.fit(data)\nTrainer().train()",
    "def train(data):\n    model.fit(data)\ndef main():\n    train(data)\nmain()",
    "with open(__import__('os').devnull):\n    model.fit(data)",
    "model.fit(data)\nmodel.evaluate([2])",
    "while True:\n    model.fit(data)\n    break",
]
AGAIN = [
    "for epoch in range(2):\n    model.fit(data)",
    "left = 2\nwhile left:\n    left -= 1\n    model.fit(data)",
    "model.fit(data)\nmodel.fit(data)",
    "model.fit(data)\nmodel.evaluate(data)",
    "def train():\n    model.fit(data)\ntrain()\ntrain()",
    "def train():\n    model.fit(data)\nfor _ in range(2):\n    train()",
    "def train():\n    model.fit(data)\ndef tune():\n    model.fit(data)\ntrain()\ntune()",
    "def train():\n    for _ in range(2):\n        one()\ndef one():\n    model.fit(data)\ntrain()",
    "def train(rounds):\n    model.fit(data)\n    if rounds:\n        train(rounds - 1)\ntrain(1)",
    "[model.fit(data) for _ in range(2)]",
    "list(map(lambda one: model.fit(one), [data, data]))",
    "sorted([1, 2], key=lambda _: model.fit(data) or 0)",
    "class Trainer:\n    def __init__(self):\n        model.fit(data)\nTrainer()\nTrainer()",
    "import functools\n@functools.lru_cache\ndef train():\n    model.fit(data)\ntrain()\ntrain()",
]  # fmt: skip


@pytest.mark.parametrize("text", ONCE)
def test_single_call_is_recognized(text: str) -> None:
    assert _first_answer(text)


@pytest.mark.parametrize("text", AGAIN)
def test_call_that_may_repeat_is_not_a_single_call(text: str) -> None:
    assert not _first_answer(text)


@pytest.mark.parametrize(
    ("helper", "once"),
    [
        ("def train(model, data):\n    model.fit(data)\n", True),
        ("def train(model, data):\n    model.fit(data)\ndef again(*what):\n    train(*what)\n", False),
        ("def train(model, data):\n    model.fit(data)\n    model.fit(data)\n", False),
        ("def train(model, data):\n    for _ in range(2):\n        model.fit(data)\n", False),
    ],
)
def test_call_in_a_module_counts_what_all_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str, once: bool
) -> None:
    (tmp_path / "helper_of_test.py").write_text(helper)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helper_of_test", raising=False)
    rebuilding._compiled.cache_clear()
    model = _Model()
    exec(
        compile("import helper_of_test as h\nh.train(model, [1])", "train.py", "exec"),
        {"model": model, "__name__": "x"},
    )
    assert model.answers[0] is once


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("for x in data:\n    pass", True),
        ("for number, x in enumerate(data):\n    pass", True),
        ("left = iter(data)\nfor step in range(2):\n    next(left)", True),
        ("def train(data):\n    for x in data:\n        pass\ntrain(data)", True),
        ("for epoch in range(2):\n    for x in data:\n        pass", False),
        ("for epoch in range(2):\n    left = iter(data)\n    next(left)", False),
        ("for x in data:\n    pass\nfor x in data:\n    pass", False),
        ("def train():\n    for x in data:\n        pass\nfor epoch in range(2):\n    train()", False),
        ("def train():\n    for x in data:\n        pass\ntrain()\ntrain()", False),
    ],
)
def test_only_loop_over_the_data_is_recognized(text: str, once: bool) -> None:
    assert _loops_once(text) is once
