"""Datasets that a loop rebuilds in each iteration: found in real scripts, from where they are created and read.

Also whether the running call of `fit`, or loop, is the only one of the script; where that is uncertain, it is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.capture import rebuilding
from pipetune.capture.consumption import Consumption
from pipetune.core.profile import Finding
from pipetune.pipelines import call_sites, live

START = """import tensorflow as tf
def make(n=9):
    return tf.data.Dataset.range(n).map(lambda x: x + 1)
class Data:
    def __init__(self):
        self.size = 9
    def batches(self):
        return make(self.size).batch(3)
    @property
    def train(self):
        return make(self.size).cache()
data, sizes, files = Data(), iter([3, 4, 5]), [6, 7]
"""
FIRST = START.count("\n") + 1  # the line on which what follows begins


def found(folder: Path, text: str) -> list[Finding]:
    """The findings at the last `read(dataset)` of a script."""
    use = last_use(folder, text)
    return rebuilding.find(live.read(use.dataset), use)


def rebuilt_operators(source: live.LivePipeline, use: Consumption, *, epochs: int | None = None) -> frozenset[str]:
    return rebuilding.rebuilt_operators(source.pipeline, rebuilding.rebuild_loops(source, use), epochs=epochs)


def last_use(folder: Path, text: str) -> Consumption:
    path = folder / "train.py"
    path.write_text(START + text)
    uses: list[Consumption] = []

    def read(dataset: Any, *_more: Any, frames: int = 1) -> None:
        path = call_sites.path_from(sys._getframe(frames))
        uses.append(Consumption(dataset, "", "training", "a loop", call_path=path))

    class Read:
        """Records what a loop reads, as it begins."""

        def __init__(self, dataset: Any) -> None:
            self.dataset = dataset

        def __iter__(self) -> Iterator[int]:
            read(self.dataset, frames=2)
            return iter([1, 2])

    with call_sites.Recorder():
        names = {"read": read, "Read": Read, "__name__": "__main__"}
        exec(compile(path.read_text(), str(path), "exec"), names)
    return uses[-1]


FIRES = [
    ("for epoch in range(2):\n    read(tf.data.Dataset.range(9).batch(3))\n", 2),
    ("for epoch in range(2):\n    print(epoch)\n    ds = make()\n    ds = ds.batch(3)\n    read(ds)\n", 3),
    ("for epoch in range(2):\n    read(make(), epoch)\n", 2),  # fit(make(), initial_epoch=epoch)
    ("for epoch in range(2):\n    if data:\n        read(data.batches().prefetch(1))\n", 3),
    ("def run():\n    ds = make()\n    read(ds)\nfor epoch in range(2):\n    run()\n", 5),
    ("for k in (8, 9):\n    for epoch in range(2):\n        read(make(k))\n", 3),
    ("def run():\n    for epoch in range(2):\n        for _ in 'a': pass\n        read(make())\nrun()\n", 4),
    ("turn = 0\nwhile turn < 2:\n    read(make())\n    turn += 1\n", 3),
    ("[read(make()) for _ in range(2)]\n", 1),
    ("def run(left):\n    if left:\n        read(make())\n        run(left - 1)\nrun(2)\n", 3),
    ("def run():\n    ds = make()\n    return read(ds)\nprint({epoch: run() for epoch in range(2) if data})\n", 4),
    ("for epoch in range(2):\n    with tf.name_scope('a'):\n        read(\n            make()\n    .batch(3))\n", 4),
]


@pytest.mark.parametrize(("text", "line"), FIRES)
def test_dataset_rebuilt_in_a_loop_is_found(tmp_path: Path, text: str, line: int) -> None:
    (finding,) = found(tmp_path, text)
    assert (finding.code, finding.line) == ("rebuilt-dataset", FIRST + line - 1)
    assert finding.file == str(tmp_path / "train.py")
    assert "retraced." in finding.message or ("make" not in text and "set up again." in finding.message)
    assert "before the loop" in finding.hint


def test_property_that_rebuilds_a_cached_dataset_is_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "for epoch in range(2):\n    read(data.train.batch(3))\n")
    assert f"the loop in line {FIRST} rebuilds the dataset (data.train)" in finding.message
    assert "its cache starts empty" in finding.message
    assert finding.hint == "Each access evaluates train again; functools.cached_property does it once."


def test_cache_rebuilt_over_a_dataset_built_once_is_found(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "ds = make()\nfor epoch in range(2):\n    read(ds.cache().batch(3))\n")
    assert "its cache starts empty" in finding.message and finding.line == FIRST + 2


SILENT = [
    "ds = make()\nfor epoch in range(2):\n    read(ds)\n",
    "read(make())\n",
    "def run():\n    read(make())\nrun()\n",
    "ds = make().cache()\nfor epoch in range(2):\n    read(ds.take(3))\n",  # forgets nothing
    "ds = make()\nfor epoch in range(2):\n    read(ds.shuffle(9, seed=epoch))\n",
    "for fold in range(2, 4):\n    read(make(fold))\n",
    "for fold in range(2, 4):\n    size = fold + 1\n    read(make(size))\n",
    "for fold in range(2, 4):\n    data.size = fold\n    read(data.batches())\n",
    "for fold in range(2, 4):\n    setattr(data, 'size', fold)\n    read(data.batches())\n",
    "for fold in range(2, 4):\n    data.__init__()\n    data.__setattr__('size', fold)\n    read(data.batches())\n",
    "for epoch in range(2):\n    read(make().shuffle(9, seed=epoch))\n",
    "size = 3\nfor _ in range(2):\n    read(make(size))\n    size += 1\n",
    "more = [3, 4]\nfor _ in range(2):\n    read(make(more[0]))\n    more = more[1:]\n",
    "for _ in range(2):\n    read(make(next(sizes)))\n",
    "for _ in range(2):\n    size = files.pop()\n    read(make(size))\n",
    "def run(fold):\n    read(make(fold))\nfor fold in range(2, 4):\n    run(fold)\n",
    "for epoch in range(2):\n    for size in (3, 4):\n        read(make(size))\n",
    "size = 3\nwhile size < 5:\n    read(make(size))\n    size += 1\n",
    "while (size := next(sizes)) < 5:\n    read(make(size))\n",
    "[read(make(k)) for k in range(2, 4)]\n",
    "def run(left):\n    if left:\n        read(make(left))\n        run(left - 1)\nrun(2)\n",
    "class Model:\n    def fit(self):\n        read(make())\n        self.net.fit()\nread.fit = print\n"
    "model = Model()\nmodel.net = read\nmodel.fit()\n",
    "[read(one) for one in (make(), make())]\n",
    "ds = [make() for _ in range(2)]\nfor one in ds:\n    read(one)\n",
    "for one in (make(), make()):\n    read(one)\n",
    "for role in ('train', 'test'):\n    ds = make(9 if role == 'train' else 3)\n    read(ds)\n",
    "for epoch in range(2):\n    def run():\n        ds = make()\n        read(ds)\nrun()\n",
]


@pytest.mark.parametrize("text", SILENT)
def test_dataset_that_differs_or_is_built_once_has_no_finding(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_dataset_without_a_recorded_call_site_has_no_finding(tmp_path: Path) -> None:
    source = live.read(tf.data.Dataset.range(3))
    assert rebuilding.find(source, Consumption(source.dataset, "", "training", "a loop")) == []


@pytest.mark.parametrize(("text", "epochs", "rebuilt"), [
    ("for k in (3, 4):\n    read(make(k).shuffle(9, seed=k))\n", None, ["range", "map", "shuffle"]),
    ("def run(k):\n    ds = make(k)\n    read(ds)\nfor k in (3, 4):\n    run(k)\n", None, ["range", "map"]),
    ("ds = make()\nfor k in (3, 4):\n    read(ds.shuffle(k))\n", None, ["shuffle"]),
    ("for k in (3, 4):\n    ds = make(k)\n    for n in (2, 3):\n        ds = ds.shuffle(n)\n    read(ds)\n", None,
     ["range", "map", "shuffle", "shuffle"]),
    ("for k in (3, 4):\n    for x in Read(make(k).batch(k)):\n        abs(x)\n", None, ["range", "map", "batch"]),
    ("all(read(make(k)) is None for k in (3, 4))\n", None, ["range", "map"]),
    ("for k in (3, 4):\n    read(make(k))\n", 1, ["range", "map"]),
    ("for k in (3, 4):\n    read(make(k))\n", 5, []),  # fit(..., epochs=5)
    ("for k in (3, 4):\n    ds = make(k)\n    for epoch in range(2):\n        read(ds)\n", None, []),
    ("def run(ds):\n    for epoch in range(2):\n        read(ds)\nfor k in (3, 4):\n    run(make(k))\n", None, []),
    ("ds = make()\nfor epoch in range(2):\n    read(ds)\n", None, []),
    ("for k in (3, 4):\n    ds = make(k)\n    if k:\n        ds = ds.batch(2)\n    read(ds)\n", None,
     ["range", "map", "batch"]),
])  # fmt: skip
def test_what_each_iteration_builds(tmp_path: Path, text: str, epochs: int | None, rebuilt: list[str]) -> None:
    use = last_use(tmp_path, text)
    source = live.read(use.dataset)
    found = rebuilt_operators(source, use, epochs=epochs)
    assert [source.pipeline[name].op for name in sorted(found)] == rebuilt


FIRST_TIME = {
    "if None": ("ds = None\n", "if ds is None:\n        ds = make()\n    read(ds)"),
    "if it is time": ("", "if epoch % 5 == 0:\n        ds = make(3 + epoch)\n    read(ds)"),
    "unless kept": ("kept = {}\ndef get(k):\n    if k not in kept:\n        kept[k] = make(k)\n    return kept[k]\n",
        "read(get(3))"),
    "unless found": (
        "kept = {}\ndef get(k):\n    try:\n        return kept[k]\n    except KeyError:\n"
        "        kept[k] = make(k)\n        return kept[k]\n",
        "read(get(3))",
    ),
    "attribute": (
        "class Lazy:\n    def get(self):\n        if not hasattr(self, 'made'):\n            self.made = make()\n"
        "        return self.made\nlazy = Lazy()\n",
        "read(lazy.get())",
    ),
    "cached function": ("@functools.lru_cache\ndef get():\n    return make()\n", "read(get())"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "body"), FIRST_TIME.values(), ids=FIRST_TIME)
def test_what_only_the_first_iteration_builds_is_not_rebuilt(tmp_path: Path, before: str, body: str) -> None:
    use = last_use(tmp_path, f"import functools\n{before}for epoch in range(2):\n    {body}\n")
    source = live.read(use.dataset)
    assert rebuilding.find(source, use) == [] and rebuilt_operators(source, use) == frozenset()


def test_function_that_counts_its_calls_keeps_nothing(tmp_path: Path) -> None:
    counting = "n = [0]\ndef get():\n    n[0] += 1\n    if n[0] > 9:\n        raise ValueError\n    return make()\n"
    assert found(tmp_path, f"{counting}for epoch in range(2):\n    read(get())\n")


def first_answer(text: str, **names: Any) -> bool:
    """Whether the script reads its data once, as answered when it first calls `fit` or begins to loop over the data."""
    answers: list[bool] = []

    class Model:
        def fit(self, data: Any) -> None:
            answers.append(rebuilding.is_read_once(sys._getframe(1), method="fit", dataset=data))

        def evaluate(self, _data: Any) -> None:
            pass

    class Data:
        def __iter__(self) -> Iterator[int]:
            answers.append(rebuilding.is_read_once(sys._getframe(1), dataset=self))
            return iter([1, 2, 3])

    space = {"model": Model(), "data": Data(), "__name__": "__main__", **names}
    exec(compile(text, "train.py", "exec"), space)
    return answers[0]


TRAINER = "class T:\n    def __init__(self, data):\n        self.data = data\n"
ONCE = [
    "for x in range(3):\n    pass\nmodel.fit(data)\nfor y in range(2):\n    pass",
    "class Trainer:\n    def train(self):\n        model.fit(data)\nTrainer().train()",
    "def train(data):\n    model.fit(data)\ndef main():\n    train(data)\nmain()",
    "with open(__import__('os').devnull):\n    model.fit(data)",
    "model.fit(data)\nmodel.evaluate([2])",
    "while True:\n    model.fit(data)\n    break",
    # loops over the data
    "for x in data:\n    pass",
    "left = iter(data)\nfor step in range(2):\n    next(left)",
    "def train(data):\n    for x in data:\n        pass\ntrain(data)",
    f"{TRAINER}    def train(self):\n        for x in self.data:\n            pass\nT(data).train()",
]
AGAIN = [
    "for epoch in range(2):\n    model.fit(data)",
    "left = 2\nwhile left:\n    left -= 1\n    model.fit(data)",
    "model.fit(data)\nmodel.fit(data)",
    "model.fit(data)\nmodel.evaluate(data)",
    "def train():\n    model.fit(data)\ntrain()\ntrain()",
    "def train():\n    model.fit(data)\nfor _ in range(2):\n    train()",
    "def train():\n    model.fit(data)\ndef tune():\n    model.fit(data)\ntrain()\ntune()",
    "[model.fit(data) for _ in range(2)]",
    "list(map(lambda one: model.fit(one), [data, data]))",
    "class Trainer:\n    def __init__(self):\n        model.fit(data)\nTrainer()\nTrainer()",
    # loops over the data
    "for epoch in range(2):\n    for x in data:\n        pass",
    "for x in data:\n    pass\nfor x in data:\n    pass",
    "held = {'a': data}\nfor x in held['a']:\n    pass\nfor x in held['a']:\n    pass",
    "def a(d):\n    for x in d:\n        pass\ndef b(d):\n    for x in d:\n        pass\na(data)\nb(data)",
    "def one():\n    for x in data:\n        pass\ndef two():\n    for x in data:\n        pass\none()\ntwo()",
    f"{TRAINER}    def one(self):\n        list(self.data)\n    def two(self):\n        list(self.data)\n"
    "t = T(data)\nt.one()\nt.two()",
]


@pytest.mark.parametrize(("text", "once"), [*((text, True) for text in ONCE), *((text, False) for text in AGAIN)])
def test_data_that_are_read_once_are_recognized(text: str, once: bool) -> None:
    assert first_answer(text) is once


@pytest.mark.parametrize(("again", "once"), [
    ("", True),
    ("def again(*what):\n    train(*what)\n", False),
    ("    model.fit(data)\n", False),
])  # fmt: skip
def test_call_in_a_module_counts_what_all_files_name(tmp_path, monkeypatch, again, once) -> None:
    (tmp_path / "helper_of_test.py").write_text(f"def train(model, data):\n    model.fit(data)\n{again}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helper_of_test", raising=False)
    rebuilding._compiled.cache_clear()
    assert first_answer("import helper_of_test as h\nh.train(model, [1])", __name__="x") is once
