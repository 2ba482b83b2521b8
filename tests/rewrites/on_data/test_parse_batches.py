"""Parsing functions called on batches: equal values, shapes and sparse shapes, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.edits import Edit, Move, ReplaceFunction, Rewrite, Safety, SplitFunction
from pipetune.core.functions import BatchedCall, FunctionVariant
from pipetune.measure.variant_costs import measure_batch_costs
from pipetune.pipelines import live
from pipetune.probes import batches
from pipetune.rewrites.batch_first import is_parser
from tests.rewrites.on_data.patching import check_patch, check_proven, script

ROWS = 23

Function = Callable[..., Any]


def _example(number: int) -> bytes:
    example = tf.train.Example()
    feature = example.features.feature
    feature["label"].int64_list.value.append(number % 5)
    feature["pixels"].float_list.value.extend([number / 7, number / 3, 1.0])
    feature["words"].int64_list.value.extend(range(number % 4))
    feature["raw"].bytes_list.value.append(bytes([number, 1, 2, 3]))
    return example.SerializeToString()


EXAMPLES = [_example(number) for number in range(ROWS)]
LINES = [f"{number},{number / 8},name {number}" for number in range(ROWS)]
DENSE = {
    "label": tf.io.FixedLenFeature([], tf.int64),
    "pixels": tf.io.FixedLenFeature([3], tf.float32),
    "missing": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
}
SPARSE = {"words": tf.io.VarLenFeature(tf.int64), "label": tf.io.FixedLenFeature([], tf.int64)}
RAW = {"raw": tf.io.FixedLenFeature([], tf.string)}


def _parsed(line: Any, *features: dict[str, Any]) -> Any:
    return tf.io.parse_single_example(line, {name: one for some in features for name, one in some.items()})


def _picture(line: Any) -> Any:
    found = _parsed(line, DENSE)
    return found["pixels"] * 2.0, tf.one_hot(found["label"], 5)


def _csv(line: Any) -> Any:
    number, value, name = tf.io.decode_csv(line, [[0], [0.0], [""]])
    return {"number": number, "value": value * 2.0}, tf.strings.upper(name)


def _taken_apart(record: Any) -> Any:
    numbers = tf.io.decode_raw(record, tf.uint8)
    image, rest = tf.split(numbers, [6, 2])
    return {"image": tf.reshape(image, [2, 3]), "label": rest[0]}, rest[1]


def _taken_apart_in_one_expression(record: Any) -> Any:
    return tf.reshape(tf.cast(tf.io.decode_raw(record, tf.uint8), tf.int32) + 1, [2, 4])


def _scaled_twice(record: Any) -> Any:
    numbers = tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32) * 0.3
    return tf.reshape(numbers * 0.7, [2, 4])


def _rounded(record: Any) -> Any:
    numbers = tf.exp(tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32) / 50.0)
    return tf.floor(tf.reshape(numbers, [2, 4]))


def _beside_its_text(record: Any) -> Any:
    numbers = tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32)
    size = tf.strings.length(record)
    first, _ = tf.split(numbers, [2, 6])
    return tf.exp(first), record, size


def _square(found: Any) -> Any:
    return tf.reshape(tf.io.decode_raw(found["raw"], tf.uint8), [2, 2])


def _bytes_of_an_example(line: Any) -> Any:
    found = _parsed(line, RAW, DENSE)
    return tf.cast(_square(found), tf.float32) / 255.0, found["label"], found["pixels"]


def _bytes_beside_words(line: Any) -> Any:
    found = _parsed(line, RAW, SPARSE)
    return _square(found), tf.sparse.to_dense(found["words"])


RAW_NUMBERS = [bytes(range(number, number + 8)) for number in range(ROWS)]
PARSERS: dict[str, tuple[list[Any], Function, FunctionVariant]] = {
    "dense features and arithmetic": (EXAMPLES, _picture, FunctionVariant.VECTORIZED),
    "a lambda": (EXAMPLES, lambda line: _parsed(line, DENSE)["label"], FunctionVariant.VECTORIZED),
    "sparse features": (EXAMPLES, lambda line: _parsed(line, SPARSE), FunctionVariant.PARSING),
    "csv": (LINES, _csv, FunctionVariant.ON_BATCHES),
    "csv, stacked": (
        LINES, lambda line: tf.stack(tf.io.decode_csv(line, [[0.0], [0.0], [""]])[:2]), FunctionVariant.VECTORIZED),
    "raw bytes": (
        RAW_NUMBERS, lambda line: tf.cast(tf.io.decode_raw(line, tf.uint8, fixed_length=8), tf.float32),
        FunctionVariant.ON_BATCHES),
    "numbers in text": (["1.5", "2.5"] * 9, lambda line: tf.strings.to_number(line) * 2.0, FunctionVariant.ON_BATCHES),
    "replaced text": (LINES, lambda line: tf.strings.regex_replace(line, "[0-9]+", "#"), FunctionVariant.ON_BATCHES),
}  # fmt: skip


def _asked(elements: list[Any], function: Function) -> tuple[Any, BatchedCall]:
    source = live.read(tf.data.Dataset.from_tensor_slices(elements).map(function).batch(4))
    node, batch = (next(one for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    assert is_parser(node)
    return source, batches.probe(source, node, batch)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("elements", "function", "form"), PARSERS.values(), ids=PARSERS)
def test_parsing_a_batch_is_equal(elements: list[Any], function: Function, form: FunctionVariant) -> None:
    source, found = _asked(elements, function)
    assert (found.why_not, found.form, found.inexact) == ("", form, ())
    node, batch = (next(one.id for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    check_proven(source, (Move(node, batch), ReplaceFunction(node, found.form, found.digest)), elements=ROWS)


IN_TWO: dict[str, tuple[list[Any], Function, int | None, int, tuple[str, ...]]] = {
    "raw bytes taken apart": (RAW_NUMBERS, _taken_apart, 1, 1, ()),
    "the bytes of an example": (EXAMPLES, _bytes_of_an_example, None, 3, ()),
    "in one expression": (RAW_NUMBERS, _taken_apart_in_one_expression, None, 1, ()),
    "products that TensorFlow makes one of, but not across the cut": (RAW_NUMBERS, _scaled_twice, 1, 1, ("Mul",)),
    "the text handed on, an op that is not bit-equal": (RAW_NUMBERS, _beside_its_text, 2, 3, ("Exp",)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", IN_TWO)
def test_parsing_head_runs_on_batches_and_tail_is_vectorized(name: str) -> None:
    elements, function, statement, handed, inexact = IN_TWO[name]
    source, found = _asked(elements, function)
    assert (found.why_not, found.form, found.inexact) == ("", FunctionVariant.VECTORIZED, inexact)
    assert found.cut is not None and (found.cut.statement, found.cut.handed) == (statement, handed)
    check_proven(source, in_two(found), Safety.APPROXIMATE if inexact else Safety.EXACT, elements=ROWS)


def in_two(found: BatchedCall) -> tuple[Edit, ...]:
    assert found.cut is not None
    split = SplitFunction("n1", found.cut)
    first = ReplaceFunction(split.head, found.cut.head_on_batches, found.cut.head)
    rest = ReplaceFunction("n1", found.form, found.digest)
    return (split, Move("n1", "n2"), rest, Move(split.head, "n2"), first)


def test_both_parts_are_timed_on_a_batch() -> None:
    source = live.read(tf.data.Dataset.from_tensor_slices(RAW_NUMBERS).map(_taken_apart).batch(4))
    told = batches.annotate_batches(source, source.pipeline)
    assert measure_batch_costs(source, told, seconds=60)["n1"] > 0


def test_patched_source_splits_after_parsing(tmp_path: Path) -> None:
    text = """
        RECORDS = [bytes(range(number, number + 8)) for number in range(23)]
        def split(record):
            numbers = tf.io.decode_raw(record, tf.uint8)
            image, label = tf.split(numbers, [7, 1])
            return {"image": image}, label[0]
        ds = tf.data.Dataset.from_tensor_slices(RECORDS)
        ds = ds.map(split, num_parallel_calls=2)
        ds = ds.shuffle(5, seed=1)
        ds = ds.batch(4)
        ds = ds.prefetch(1)
        """
    sample = script(tmp_path, text)
    source = live.read(sample.run().ds)
    found = batches.probe(source, source.pipeline["n1"], source.pipeline["n3"])
    assert found.cut is not None
    moved = tuple(replace(edit, after="n3") if isinstance(edit, Move) else edit for edit in in_two(found))
    rewrite = Rewrite("parse-batches", "n1", Safety.EXACT, moved, "x.")
    expected = (
        "ds = ds.batch(4)\n"
        "ds = ds.map(split_head, num_parallel_calls=2)\n"
        "ds = ds.map(lambda batch: tf.vectorized_map(split_tail, batch), num_parallel_calls=2)\n"
    )
    check_patch(sample, source, rewrite, expected=expected, elements=ROWS)


def test_first_part_that_parses_examples_parses_batches_in_the_patched_source(tmp_path: Path) -> None:
    text = f"""
        RECORDS = {EXAMPLES[:9]!r}
        FEATURES = {{"raw": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}}
        def decode(record):
            found = tf.io.parse_single_example(record, FEATURES)
            image = tf.io.decode_raw(found["raw"], tf.uint8)
            image = tf.reshape(image, [2, 2])
            return image, found["label"]
        ds = tf.data.Dataset.from_tensor_slices(RECORDS).map(decode).batch(4)
        """
    sample = script(tmp_path, text)
    source = live.read(sample.run().ds)
    found = batches.probe(source, source.pipeline["n1"], source.pipeline["n2"])
    expected = (
        "def decode_head(record):\n"
        "    found = tf.io.parse_example(record, FEATURES)\n"
        '    image = tf.io.decode_raw(found["raw"], tf.uint8)\n'
    )
    check_patch(sample, source, Rewrite("parse-batches", "n1", Safety.EXACT, in_two(found), "x."), expected=expected)


def _sized_for_nothing(line: Any) -> Any:
    numbers = tf.io.decode_raw(line, tf.uint8)
    tf.reshape(numbers, [2, 4])
    return numbers[:3]


REFUSED: dict[str, tuple[list[Any], Function]] = {
    "sparse features made dense": (EXAMPLES, lambda line: tf.sparse.to_dense(_parsed(line, SPARSE)["words"])),
    "sparse features counted": (EXAMPLES, lambda line: tf.size(_parsed(line, SPARSE)["words"].values)),
    "sparse features beside raw bytes": (EXAMPLES, _bytes_beside_words),
    "images": (EXAMPLES, lambda line: tf.io.decode_png(_parsed(line, RAW)["raw"])),
    "split text": (LINES, lambda line: tf.strings.split(line, ",")),
    "tensors": ([tf.io.serialize_tensor(tf.range(3)).numpy()] * 9, lambda line: tf.io.parse_tensor(line, tf.int32)),
    "raw bytes of any length": (RAW_NUMBERS, lambda line: tf.io.decode_raw(line, tf.uint8)[..., :3]),
    "raw bytes of any length, taken apart": (RAW_NUMBERS, lambda line: tf.io.decode_raw(line, tf.uint8)[:3]),
    "raw bytes of any length beside those of one": (
        RAW_NUMBERS, lambda line: (tf.io.decode_raw(line, tf.uint8)[:3],
                                   tf.reshape(tf.io.decode_raw(line, tf.uint8)[:4], [2, 2]))),
    "raw bytes sized by an op that does not run": (RAW_NUMBERS, _sized_for_nothing),
    "what the first part rounds decides in the second": (RAW_NUMBERS, _rounded),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unsuitable_function_is_refused(name: str) -> None:
    assert _asked(*REFUSED[name])[1].why_not


def test_parse_single_example_is_not_left_patched() -> None:
    before = tf.io.parse_single_example, tf.compat.v1.io.parse_single_example
    _asked(*PARSERS["sparse features"][:2])
    assert (tf.io.parse_single_example, tf.compat.v1.io.parse_single_example) == before
