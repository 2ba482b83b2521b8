"""Functions that parse, called on batches: the same values, shapes and sparse shapes, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Move, ReplaceFunction, Safety
from pipetune.core.functions import FunctionForm, OnBatches
from pipetune.rules.batching import parses
from pipetune.tf.equality.compare import compare
from pipetune.tf.pipelines import live, on_batches

ROWS = 23

Function = Callable[..., Any]


def _example(number: int) -> bytes:
    def numbers(values: list[int]) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    features = {
        "label": numbers([number % 5]),
        "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=[number / 7, number / 3, 1.0])),
        "words": numbers(list(range(number % 4))),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"row {number}".encode()])),
        "raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes([number, 1, 2, 3])])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


EXAMPLES = [_example(number) for number in range(ROWS)]
LINES = [f"{number},{number / 8},name {number}" for number in range(ROWS)]
DENSE = {
    "label": tf.io.FixedLenFeature([], tf.int64),
    "pixels": tf.io.FixedLenFeature([3], tf.float32),
    "missing": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
}
SPARSE = {"words": tf.io.VarLenFeature(tf.int64), "label": tf.io.FixedLenFeature([], tf.int64)}
RAGGED = {"words": tf.io.RaggedFeature(tf.int64), "label": tf.io.FixedLenFeature([], tf.int64)}
RAW = {"raw": tf.io.FixedLenFeature([], tf.string)}


def _dense(line: Any) -> Any:
    return tf.io.parse_single_example(line, DENSE)


def _picture(line: Any) -> Any:
    found = tf.io.parse_single_example(line, DENSE)
    return found["pixels"] * 2.0, tf.one_hot(found["label"], 5)


def _csv(line: Any) -> Any:
    number, value, name = tf.io.decode_csv(line, [[0], [0.0], [""]])
    return {"number": number, "value": value * 2.0}, tf.strings.upper(name)


def _stacked_csv(line: Any) -> Any:
    number, value, _ = tf.io.decode_csv(line, [[0.0], [0.0], [""]])
    return tf.stack([number, value])


PARSERS: dict[str, tuple[list[Any], Function, FunctionForm]] = {
    "dense features": (EXAMPLES, _dense, FunctionForm.VECTORIZED),
    "dense features and arithmetic": (EXAMPLES, _picture, FunctionForm.VECTORIZED),
    "a lambda": (EXAMPLES, lambda line: tf.io.parse_single_example(line, DENSE)["label"], FunctionForm.VECTORIZED),
    "sparse features": (EXAMPLES, lambda line: tf.io.parse_single_example(line, SPARSE), FunctionForm.PARSING),
    "csv": (LINES, _csv, FunctionForm.ON_BATCHES),
    "csv, stacked": (LINES, _stacked_csv, FunctionForm.VECTORIZED),
    "raw bytes": (
        [bytes([number, 1, 2, 3]) for number in range(ROWS)],
        lambda line: tf.cast(tf.io.decode_raw(line, tf.uint8, fixed_length=4), tf.float32),
        FunctionForm.ON_BATCHES,
    ),
    "numbers in text": (["1.5", "2.5"] * 9, lambda line: tf.strings.to_number(line) * 2.0, FunctionForm.ON_BATCHES),
    "parts of text": (LINES, lambda line: tf.strings.substr(line, 0, 3), FunctionForm.ON_BATCHES),
    "joined text": (LINES, lambda line: tf.strings.join([line, "!"]), FunctionForm.ON_BATCHES),
    "replaced text": (LINES, lambda line: tf.strings.regex_replace(line, "[0-9]+", "#"), FunctionForm.ON_BATCHES),
}


def _asked(elements: list[Any], function: Function) -> tuple[Any, OnBatches]:
    source = live.read(tf.data.Dataset.from_tensor_slices(elements).map(function).batch(4))
    node, batch = (next(one for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    assert parses(node)
    return source, on_batches.ask(source, node, batch)


@pytest.mark.parametrize("name", PARSERS)
def test_parsing_a_batch_gives_the_same(name: str) -> None:
    elements, function, form = PARSERS[name]
    source, found = _asked(elements, function)
    assert (found.why_not, found.form, found.inexact) == ("", form, ())
    node, batch = (next(one.id for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    edits = (Move(node, batch), ReplaceFunction(node, found.form, found.digest))
    proof = compare(source, apply_edits(source.pipeline, edits), Safety.EXACT, elements=ROWS)
    assert proof.proven and [check for check in proof.checks if check.equal is not True] == []


REFUSED: dict[str, tuple[list[Any], Function]] = {
    "sparse features made dense": (
        EXAMPLES, lambda line: tf.sparse.to_dense(tf.io.parse_single_example(line, SPARSE)["words"])),
    "sparse features counted": (
        EXAMPLES, lambda line: tf.size(tf.io.parse_single_example(line, SPARSE)["words"].values)),
    "images": (EXAMPLES, lambda line: tf.io.decode_png(tf.io.parse_single_example(line, RAW)["raw"])),
    "split text": (LINES, lambda line: tf.strings.split(line, ",")),
    "tensors": (
        [tf.io.serialize_tensor(tf.range(3)).numpy()] * 9, lambda line: tf.io.parse_tensor(line, tf.int32)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert _asked(*REFUSED[name])[1].why_not


def test_the_public_name_is_what_it_was() -> None:
    before = tf.io.parse_single_example, tf.compat.v1.io.parse_single_example
    _asked(*PARSERS["sparse features"][:2])
    assert (tf.io.parse_single_example, tf.compat.v1.io.parse_single_example) == before
