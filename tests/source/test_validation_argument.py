"""A cache behind the dataset that `fit` validates on, where the calls that build it make others too."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.core.edits import Insert
from pipetune.source.emit import emit
from pipetune.source.own_place import validates_at
from tests.source.recorder import plan, recorded, shape

SPLITS = """import tensorflow as tf
def make(n):
    return tf.data.Dataset.range(n).map(abs).batch(2)
class Model:
    def fit(self, x, validation_data=None, epochs=1):
        train(x)
        if validation_data is not None:
            validate(validation_data)
data = {name: make(n) for name, n in [("train", 9), ("test", 4)]}
"""
CACHE = Insert("n2", "cache", "c", {"filename": ""})


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ('Model().fit(data["train"], validation_data=data["test"])', 'data["test"].cache()'),
        ('Model().fit(data["train"],\n  epochs=3,\n  validation_data=data["test"])', 'data["test"].cache()'),
        ('val = data["test"]\nModel().fit(data["train"], validation_data=val)', "validation_data=val.cache()"),
        ('def main():\n    Model().fit(data["train"], validation_data=data["test"])\nfor _ in range(1):\n    main()',
         'data["test"].cache()'),
        ('def run(x, y):\n    Model().fit(x, validation_data=y)\nrun(data["train"], data["test"])', "=y.cache()"),
        ('def run(x, y):\n    Model().fit(x, validation_data=y)\nrun(data["train"], data["test"])\nif not data:\n'
         '    run(data["train"], data["train"])', ""),
        ('val = data["test"]\nif not val:\n    val = val.map(len)\n'
         'Model().fit(data["train"], validation_data=val)', ""),
        ('Model().fit(data["train"], validation_data=data["test"] if data else None)', ""),
        ('val = None\nif data:\n    val = data["test"]\nModel().fit(data["train"], validation_data=val)', ""),
        ('Model().fit(data["train"], **{"validation_data": data["test"]})', ""),
        ('Model().fit(data["train"], None, 3)\nModel().fit(data["train"], data["test"])', ""),
        ('Model().fit(data["train"], validation_data=data["test"])\n'
         'Model().fit(data["train"], validation_data=data["test"])', ""),
    ],
)  # fmt: skip
def test_cache_where_fit_gets_the_dataset(tmp_path: Path, call: str, written: str) -> None:
    path, recorder = recorded(tmp_path, f"{SPLITS}{call}\n")
    pipeline, others = recorder.pipeline("validate"), [recorder.pipeline("train")]
    emission = emit(pipeline, plan(CACHE), other_pipelines=others, validated_in=str(path))
    assert bool(emission.covered) == bool(written)
    assert not emit(pipeline, plan(CACHE), other_pipelines=others).covered
    if written:
        before, after = emission.files[str(path)]
        added = set(after.splitlines()) - set(before.splitlines())
        assert len(added) == 1 and written in added.pop()
        path.write_text(after)
        again = recorded(tmp_path, after)[1]
        assert shape(again.pipeline("validate")) == [*shape(pipeline), ("cache", {})]
        assert shape(again.pipeline("train")) == shape(others[0])


def test_only_the_last_operator_is_followed_there(tmp_path: Path) -> None:
    path, recorder = recorded(tmp_path, f'{SPLITS}Model().fit(data["train"], validation_data=data["test"])\n')
    inside = Insert("n1", "cache", "c", {"filename": ""})
    others = [recorder.pipeline("train")]
    assert not emit(recorder.pipeline("validate"), plan(inside), other_pipelines=others, validated_in=str(path)).covered


WRAPPER = """import tensorflow as tf
class Data:
    def __init__(self, n):
        self.dataset = tf.data.Dataset.range(n).map(abs)
    def batch(self, size):
        self.dataset = self.dataset.batch(size)
        return self
class Model:
    def fit(self, x, validation_data=None):
        train(x)
        validate(validation_data)
def build(n):
    data = Data(n)
    return data.batch(2)
data, check = build(9), build(4)
Model().fit(data.dataset, validation_data=check.dataset)
"""


def test_object_that_holds_the_dataset_gets_no_call(tmp_path: Path) -> None:
    path, recorder = recorded(tmp_path, WRAPPER)
    others = [recorder.pipeline("train")]
    emission = emit(recorder.pipeline("validate"), plan(CACHE), other_pipelines=others, validated_in=str(path))
    assert "validation_data=check.dataset.cache())" in emission.files[str(path)][1]


@pytest.mark.parametrize(("line", "there"), [(1, False), (2, True), (4, True), (5, False)])
def test_call_that_was_seen_is_the_one_in_the_file(line: int, there: bool) -> None:
    text = "model = Model()\nmodel.fit(\n    train,\n    validation_data=val)\nmodel.fit(train, None, val)\n"
    assert validates_at("train.py", line, lambda _path: text) == there
    assert not validates_at("train.py", line, lambda _path: f"{text}model.fit(train, validation_data=val)\n")
    assert not validates_at("train.py", line, lambda _path: "model.fit(")
