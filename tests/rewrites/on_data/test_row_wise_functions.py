"""Functions on batches: which are shown to treat each row by itself, or to parse it, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.edits import Edit, Move, ReplaceFunction, Rewrite, Safety, SplitFunction
from pipetune.core.functions import BatchedCall, FunctionVariant
from pipetune.measure.variant_costs import measure_batch_costs
from pipetune.pipelines import live
from pipetune.probes import batches
from pipetune.rewrites.batch_first import is_parser
from tests.default_run import cases
from tests.rewrites.on_data.patching import check_patch, check_proven, compared, script

ROWS = 21

Function = Callable[..., Any]

_DRAW = np.random.default_rng(3)
_IMAGES = _DRAW.integers(0, 256, (ROWS, 5, 4, 3)).astype(np.uint8)
_PIXELS = np.tile(np.arange(300), (ROWS, 1)).astype(np.uint8)
_VECTORS = _DRAW.standard_normal((ROWS, 6)).astype(np.float32)
_SCALARS = _DRAW.integers(0, 5, ROWS)
_SQUARES = _DRAW.standard_normal((ROWS, 4, 4)).astype(np.float32)
_WORDS = np.array([f" Word {number} " for number in range(ROWS)])
_TABLE = tf.constant(_DRAW.standard_normal((5, 2)).astype(np.float32))
_GENERATOR = tf.random.Generator.from_seed(3)
_COUNTER = tf.Variable(0, dtype=tf.int64)


def _above_a_batch(arrays: Any, function: Function, *, drops: bool = False) -> tuple[Any, Any, Any]:
    dataset = tf.data.Dataset.from_tensor_slices(arrays).map(function).batch(4, drop_remainder=drops)
    source = live.read(dataset)
    return source, *(next(one for one in source.pipeline if one.op == op) for op in ("map", "batch"))


def _asked(arrays: Any, function: Function, *, drops: bool = False) -> tuple[Any, BatchedCall]:
    source, node, batch = _above_a_batch(arrays, function, drops=drops)
    return source, batches.probe(source, node, batch)


BY_ROW: dict[str, tuple[Any, Function]] = {
    "cast and scale": (_IMAGES, lambda x: tf.cast(x, tf.float32) / 255.0 - 0.5),
    "two components": ((_VECTORS, _SCALARS), lambda x, y: (x * 2.0, tf.one_hot(y, 5))),
    "a dictionary": ({"a": _VECTORS, "b": _SCALARS}, lambda d: {"c": d["a"] + 1.0, "d": d["b"]}),
    "resize": (_IMAGES, lambda x: tf.image.resize(x, [7, 9])),
    "looked up": (_SCALARS, lambda i: tf.gather(_TABLE, i)),
    "a cast that fits": (_VECTORS, lambda x: tf.cast(tf.clip_by_value(x * 9.0, 0.0, 255.0), tf.uint8)),
    "another traced function inside": (_VECTORS, tf.function(lambda x: x * 2.0)),
}

INEXACT: dict[str, tuple[Any, Function, str]] = {
    "exp": (_VECTORS, tf.exp, "Exp"),
    "sum of floats": (_VECTORS, lambda x: tf.reduce_sum(x, axis=-1), "Sum"),
}


_STATE = tf.Variable(2.0)

_NO_CALL = "cannot be called|calls other functions"

NOT_AS_IT_IS: dict[str, tuple[Any, Function, str]] = {
    # These run on batches without an error, but mean something else there.
    "mean over everything": (_VECTORS, lambda x: x - tf.reduce_mean(x), "would mix the rows of a batch (Mean)"),
    "first axis kept": (_SQUARES, lambda x: x - tf.reduce_max(x, axis=0), "would mix the rows of a batch (Max)"),
    "flipped image": (_IMAGES[:, :, :, 0], lambda x: x[::-1], "would mix the rows of a batch (StridedSlice)"),
    "sorted along the first axis": (_SQUARES, lambda x: tf.sort(x, axis=0), "something different|mix"),
    "running sum": (_VECTORS, lambda x: tf.cumsum(x), "would mix the rows of a batch (Cumsum)"),
    "first of the row": (_VECTORS, lambda x: x - x[0], "would mix the rows of a batch (StridedSlice)"),
    "matrix product": (_SQUARES, lambda x: tf.matmul(x, x), "not known to treat the rows"),
    "transposed": (_SQUARES, lambda x: tf.transpose(x), "shapes or dtypes|would mix"),
    "norm": (_VECTORS, lambda x: x / tf.norm(x), "would mix"),
    "a constant of the batch's rank": (_VECTORS, lambda x: x + np.ones((1, 6), np.float32), "shapes or dtypes"),
    "two components of different rank": ((_VECTORS, _VECTORS[:, 0]), lambda x, y: x * y, ""),
    "a traced function that gives whole numbers": (
        _VECTORS, tf.function(lambda x: tf.cast(tf.reduce_sum(x) * 1e6, tf.int64)), "shapes or dtypes"),
    "first length, in Python": (_VECTORS, lambda x: x * float(x.shape[0] or 7), "something different|constant"),
    "length of the first axis, in the graph": (
        _VECTORS, lambda x: x * tf.cast(tf.shape(x)[0], tf.float32), "computes with the number of rows"),
    "length of the first axis, a whole number": (
        _VECTORS, lambda x: x * tf.cast(tf.constant(x.shape[0] or 7), tf.float32), "something different"),
    "as much of a constant as the first axis is long": (
        _SQUARES, lambda x: x + tf.slice(_SQUARES[0], [0, 0], [tf.shape(x)[0], 4]), "depends on the number of rows"),
    "joined in front": (_VECTORS, lambda x: tf.concat([x, x], axis=0), "shapes or dtypes"),
    "reshaped": (_SQUARES, lambda x: tf.reshape(x, [16]), "cannot be called|shapes or dtypes"),
    "reshaped and back": (_SQUARES, lambda x: tf.reshape(tf.reshape(x, [-1]), tf.shape(x)), "mix the rows"),
    "cast that may not fit": (_VECTORS, lambda x: tf.cast(tf.abs(x) * 9.0, tf.uint8), "may not fit"),
    "cast of indices that may not fit": (
        _PIXELS, lambda x: tf.cast(tf.cast(tf.math.top_k(x, 2).indices, tf.float32), tf.uint8), "may not fit"),
    "a loop": (
        _VECTORS, lambda x: tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, x])[1],
        "calls other functions"),
    "a condition on a value": (_SCALARS, lambda i: tf.cond(i > 2, lambda: i, lambda: -i), _NO_CALL),
    "a condition that no value meets": (_VECTORS, lambda x: tf.cond(x[0] > 99.0, lambda: x[::-1], lambda: x), _NO_CALL),
    "a rounded condition": (_VECTORS, lambda x: tf.cond(tf.exp(x[0]) > 1.0, lambda: x[::-1], lambda: x), _NO_CALL),
    "sides of other shapes": (
        _VECTORS, lambda x: tf.cond(x[0] > 0.0, lambda: x[:tf.argmax(x) + 1], lambda: x), _NO_CALL),
    "a product in a branch": (_SQUARES, lambda x: tf.cond(x[0, 0] > 0.0, lambda: tf.matmul(x, x), lambda: x), _NO_CALL),
    "mapped inside": (_SQUARES, lambda x: tf.map_fn(lambda row: row * 2.0, x), ""),
    "a constant only": (_SCALARS, lambda i: tf.constant(3.0), "shapes or dtypes|once per batch"),
    "weights that no row changes": (
        _VECTORS, lambda x: tf.tensordot(x, tf.signal.linear_to_mel_weight_matrix(2, 6, 100.0, 1.0, 40.0), 1), ""),
    "a variable": (_VECTORS, lambda x: x * _STATE, "state"),
    "checked": (_VECTORS, lambda x: tf.debugging.check_numerics(x, "bad"), "checks values"),
    "Python": (_VECTORS, lambda x: tf.numpy_function(np.sort, [x], tf.float32), "state|shapes"),
    "decoded text": (_WORDS, lambda w: tf.strings.unicode_decode(w, "UTF-8"), ""),
    "split text": (_WORDS, lambda w: tf.strings.split(w), ""),
    "sparse": (_VECTORS, lambda x: tf.sparse.from_dense(x), ""),
}  # fmt: skip


NEVER = [
    "norm", "a traced function that gives whole numbers", "cast that may not fit", "a variable", "checked", "Python",
    "cast of indices that may not fit", "decoded text", "split text", "sparse", "a loop", "a rounded condition",
    "sides of other shapes", "a product in a branch",
]  # fmt: skip

VECTORIZED = [
    "flipped image", "first axis kept", "first of the row", "transposed",
    "reshaped", "two components of different rank", "a constant of the batch's rank", "joined in front",
    "a condition on a value", "a condition that no value meets",
]  # fmt: skip
VECTORIZED_INEXACTLY = ["mean over everything", "matrix product", "weights that no row changes"]


def _edits(source: Any, asked: BatchedCall) -> tuple[Edit, ...]:
    node, batch = (next(one.id for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    return Move(node, batch), ReplaceFunction(node, asked.form, asked.digest)


def _proven(source: Any, asked: BatchedCall, safety: Safety = Safety.EXACT) -> Any:
    return compared(source, _edits(source, asked), safety, elements=ROWS)


@pytest.mark.sample(3)
@pytest.mark.mission("A6.vectorized")
@pytest.mark.parametrize("name", BY_ROW)
def test_row_wise_function_is_bit_equal_on_batches(name: str) -> None:
    source, found = _asked(*BY_ROW[name])
    assert (found.why_not, found.inexact) == ("", ()) and found.digest
    check_proven(source, _edits(source, found), elements=ROWS)


@pytest.mark.parametrize(("arrays", "function", "op"), INEXACT.values(), ids=INEXACT)
def test_inexact_op_differs_only_in_the_last_bits(arrays: Any, function: Function, op: str) -> None:
    source, found = _asked(arrays, function)
    assert (found.why_not, found.inexact) == ("", (op,))
    assert _proven(source, found, Safety.APPROXIMATE).equal


@pytest.mark.parametrize(("arrays", "function", "reason"), NOT_AS_IT_IS.values(), ids=NOT_AS_IT_IS)
def test_function_that_is_not_row_wise_is_refused_on_batches(arrays: Any, function: Function, reason: str) -> None:
    found = batches.probe_variant(*_above_a_batch(arrays, function), FunctionVariant.ON_BATCHES)
    assert found.why_not and any(part in found.why_not for part in reason.split("|")), found


@pytest.mark.parametrize(
    "name", cases(sorted(NOT_AS_IT_IS.keys() - {*NEVER}), default={"sorted along the first axis", "reshaped and back"})
)
def test_vectorized_variant_is_chosen_only_where_equal(name: str) -> None:
    source, found = _asked(*NOT_AS_IT_IS[name][:2])
    assert found.why_not or found.form is FunctionVariant.VECTORIZED
    if not found.why_not:
        assert _proven(source, found, Safety.APPROXIMATE if found.inexact else Safety.EXACT).equal


def test_vectorizable_functions_are_vectorized() -> None:
    for name in (*VECTORIZED, *VECTORIZED_INEXACTLY):
        found = _asked(*NOT_AS_IT_IS[name][:2])[1]
        assert (found.form, found.why_not) == (FunctionVariant.VECTORIZED, ""), name
        assert bool(found.inexact) is (name in VECTORIZED_INEXACTLY), name


@pytest.mark.parametrize("name", NEVER)
def test_function_without_any_batched_variant_is_refused(name: str) -> None:
    assert _asked(*NOT_AS_IT_IS[name][:2])[1].why_not


def test_dropped_remainder_makes_batches_of_known_size() -> None:
    source, found = _asked(_IMAGES, BY_ROW["resize"][1], drops=True)
    assert not found.why_not and _proven(source, found).proven


def test_input_without_a_fixed_shape_is_refused() -> None:
    ragged = tf.data.Dataset.range(9).map(lambda i: tf.range(i))
    source = live.read(ragged.map(lambda x: x * 2).padded_batch(3).unbatch().batch(3))
    maps = [node for node in source.pipeline if node.op == "map"]
    assert "fixed shape" in batches.probe(source, maps[1], source.pipeline.output).why_not


def test_trace_time_randomness_is_refused() -> None:
    draws = iter(range(1, 100))
    _, found = _asked(_VECTORS, lambda x: x * float(next(draws)))
    assert "something different when" in found.why_not and "something different each time" in found.why_not


@pytest.mark.parametrize(("then", "inexact"), [
    (lambda data: data.shuffle(4, seed=1).map(lambda row: row["size"] * 2.0), ()),
    (lambda data: data.map(lambda row: row["log"] * 2.0), ("Log1p",)),
    (lambda data: data.filter(lambda row: row["log"] > 0.5).map(lambda row: row["size"]), ("Log1p",)),
    (lambda data: tf.data.Dataset.zip(data, data.map(lambda row: row["size"])), ("Log1p",)),
    (lambda data: data, ("Log1p",)),
])  # fmt: skip
def test_result_that_the_next_map_drops_need_not_be_exact(then: Any, inexact: tuple[str, ...]) -> None:
    sizes = tf.data.Dataset.from_tensor_slices(np.linspace(0, 9, 24, dtype=np.float32))
    source = live.read(then(sizes.map(lambda size: {"size": size, "log": tf.math.log1p(size)})).batch(4))
    found = batches.probe(source, source.pipeline["n1"], source.pipeline.output)
    assert (found.why_not, found.inexact) == ("", inexact)


def test_digest_equals_that_of_a_script_that_batches_first() -> None:
    source, found = _asked(*BY_ROW["resize"])
    written = live.read(tf.data.Dataset.from_tensor_slices(_IMAGES).batch(4).map(BY_ROW["resize"][1]))
    (function,) = [node.function for node in written.pipeline if node.op == "map"]
    assert function is not None and function.digest == found.digest
    assert function.digest != next(node.function.digest for node in source.pipeline if node.op == "map")


_TOKENS = _DRAW.integers(0, 90, (ROWS, 8))


def _masked(tokens: Any) -> Any:
    """As a masked language model gets its tokens: some are hidden, and the labels are those that are."""
    hidden = (tf.random.uniform(tf.shape(tokens)) < 0.3) & (tokens > 2)
    replaced = hidden & (tf.random.uniform(tf.shape(tokens)) > 0.1)
    return tf.where(replaced, tf.constant(99, tf.int64), tokens), tf.cast(hidden, tf.float32)


def _with_negatives(word: Any) -> Any:
    return tf.concat([[word], tf.random.uniform([6], 0, 900, tf.int64)], 0), tf.one_hot(0, 7)


def _reversed_half_of_the_time(x: Any) -> Any:
    if tf.random.uniform([]) < 0.5:
        x = x[::-1] * 2.0
    return x


def _one_of_three(x: Any) -> Any:
    drawn = tf.random.uniform([])
    return tf.cond(
        drawn < 0.3,
        lambda: x * 2.0,
        lambda: tf.cond(drawn < 0.6, lambda: x[::-1], lambda: tf.concat([x[3:], x[:3]], 0)),
    )


DRAWING: dict[str, tuple[Any, Function]] = {
    "masked tokens": (_TOKENS, _masked),
    "negative samples": (_SCALARS, _with_negatives),
    "noise of a layer": (_SQUARES, lambda x: x * tf.random.truncated_normal([4, 4])),
    "a window at random": (_VECTORS, lambda x: tf.gather(x, tf.random.uniform([], 0, 3, tf.int32) + tf.range(4))),
    "with a seed": (_VECTORS, lambda x: x + tf.random.uniform([6], seed=3)),
    "in a function that it calls": (_VECTORS, tf.function(lambda x: tf.nn.dropout(x, 0.4) + tf.random.normal([]))),
    "some of the row at random": (_VECTORS, lambda x: tf.gather(x, tf.math.top_k(tf.random.uniform([6]), 3).indices)),
    "nothing but draws": (_SCALARS, lambda x: tf.random.uniform([3])),
    "images turned": (_IMAGES, lambda x: tf.image.random_flip_up_down(tf.image.random_flip_left_right(x))),
    "one of three functions": (_VECTORS, _one_of_three),
    "an if of Python in a tf.function": (_VECTORS, tf.function(_reversed_half_of_the_time)),
}


@pytest.mark.parametrize("name", DRAWING)
def test_draws_are_vectorized_and_each_row_has_its_own(name: str) -> None:
    source, found = _asked(*DRAWING[name])
    assert (found.form, found.why_not, found.inexact) == (FunctionVariant.VECTORIZED, "", ())
    proof = _proven(source, found, Safety.STATISTICAL)
    assert proof.proven and next(check for check in proof.checks if check.name == "randomness").equal, proof
    assert not _proven(source, found).equal


NOT_DRAWN: dict[str, tuple[Any, Function]] = {
    "a range that depends on the element": (_SCALARS, lambda x: tf.random.uniform([], 0, x + 1, tf.int64)),
    "in a branch": (
        _VECTORS, lambda x: tf.cond(tf.random.uniform([]) < 0.5, lambda: x + tf.random.uniform([]), lambda: x)),
    "a branch that is an if of Python": (_VECTORS, _reversed_half_of_the_time),  # `vectorized_map` converts none
    "last bits that differ": (_VECTORS, lambda x: tf.exp(x) * tf.random.uniform([6])),
    "a shuffle of the element": (_VECTORS, tf.random.shuffle),
    "draws of another kind": (_VECTORS, lambda x: x + tf.random.gamma([6], 2.0)),
    "draws of a generator": (_VECTORS, lambda x: x + _GENERATOR.normal([6])),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_DRAWN)
def test_draws_without_a_proven_converter_are_refused(name: str) -> None:
    source, node, _ = _above_a_batch(*NOT_DRAWN[name])
    told = batches.annotate_batches(source, source.pipeline)[node.id].function
    assert told is not None and (told.on_batches is None or told.on_batches.why_not)


def test_draws_on_batches_as_they_are_would_be_those_of_one_row() -> None:
    above = _above_a_batch(_VECTORS, lambda x: x + tf.random.uniform([]))
    assert "draws random numbers" in batches.probe_variant(*above, FunctionVariant.ON_BATCHES).why_not


_DRAWS: dict[str, Function] = {
    "RandomStandardNormal": lambda x: tf.random.normal([4], seed=1),
    "RandomUniform": lambda x: tf.random.uniform([4], seed=1),
    "RandomUniformInt": lambda x: tf.random.uniform([4], 3, 1000, tf.int32, seed=1),
    "TruncatedNormal": lambda x: tf.random.truncated_normal([4], seed=1),
}


@pytest.mark.parametrize("op", sorted(batches.PROVEN_DRAWS))
def test_converted_draws_are_of_the_same_distribution_and_independent(op: str) -> None:
    """By the Kolmogorov-Smirnov test with 16,000 numbers each, and by the correlation of rows next to each other."""
    elements = tf.data.Dataset.range(4000)
    one = np.stack(list(elements.map(_DRAWS[op]).as_numpy_iterator())).astype(float)
    batched = elements.batch(50).map(lambda rows: tf.vectorized_map(_DRAWS[op], rows))
    rows = np.concatenate(list(batched.as_numpy_iterator())).astype(float)
    assert rows.shape == one.shape == (4000, 4)
    assert len(np.unique(rows, axis=0)) == len(np.unique(one, axis=0)) == 4000
    assert scipy.stats.ks_2samp(one.ravel(), rows.ravel()).pvalue > 0.001
    for of in (one, rows):
        assert abs(np.corrcoef(of[:-1].ravel(), of[1:].ravel())[0, 1]) < 0.03
        assert abs(np.corrcoef(of[:, 0], of[:, 1])[0, 1]) < 0.06


def test_only_functions_upstream_of_a_batch_that_do_nothing_but_draw_are_probed() -> None:
    dataset = tf.data.Dataset.range(9).map(lambda i: i * 2).map(lambda i: i + _COUNTER.assign_add(1))
    source = live.read(dataset.batch(3).map(lambda rows: rows + 1))
    told = batches.annotate_batches(source, source.pipeline)
    asked = [node.function.on_batches is not None for node in told if node.function is not None]
    assert asked == [True, False, False]
    assert told.fingerprint == source.pipeline.fingerprint


def test_function_is_probed_for_the_nearest_batch_downstream() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(_IMAGES).map(BY_ROW["resize"][1])
    source = live.read(dataset.batch(4, drop_remainder=True).unbatch().batch(3, drop_remainder=True))
    node = next(one for one in source.pipeline if one.op == "map")
    first, second = (one for one in source.pipeline if one.op == "batch")
    told = batches.annotate_batches(source, source.pipeline)[node.id].function
    assert told is not None and told.on_batches == batches.probe(source, node, first)
    assert told.on_batches != batches.probe(source, node, second)


# -- functions that parse


def _example(number: int) -> bytes:
    example = tf.train.Example()
    feature = example.features.feature
    feature["label"].int64_list.value.append(number % 5)
    feature["pixels"].float_list.value.extend([number / 7, number / 3, 1.0])
    feature["words"].int64_list.value.extend(range(number % 4))
    feature["raw"].bytes_list.value.append(bytes([number, 1, 2, 3]))
    return example.SerializeToString()


EXAMPLES = [_example(number) for number in range(23)]
LINES = [f"{number},{number / 8},name {number}" for number in range(23)]
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


RAW_NUMBERS = [bytes(range(number, number + 8)) for number in range(23)]
PARSERS: dict[str, tuple[list[Any], Function, FunctionVariant]] = {
    "dense features and arithmetic": (EXAMPLES, _picture, FunctionVariant.VECTORIZED),
    "a lambda": (EXAMPLES, lambda line: _parsed(line, DENSE)["label"], FunctionVariant.VECTORIZED),
    "sparse features": (EXAMPLES, lambda line: _parsed(line, SPARSE), FunctionVariant.PARSING),
    "csv": (LINES, _csv, FunctionVariant.ON_BATCHES),
    "raw bytes": (
        RAW_NUMBERS, lambda line: tf.cast(tf.io.decode_raw(line, tf.uint8, fixed_length=8), tf.float32),
        FunctionVariant.ON_BATCHES),
    "replaced text": (LINES, lambda line: tf.strings.regex_replace(line, "[0-9]+", "#"), FunctionVariant.ON_BATCHES),
}  # fmt: skip


def _asked_parser(elements: list[Any], function: Function) -> tuple[Any, BatchedCall]:
    source = live.read(tf.data.Dataset.from_tensor_slices(elements).map(function).batch(4))
    node, batch = (next(one for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    assert is_parser(node)
    return source, batches.probe(source, node, batch)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("elements", "function", "form"), PARSERS.values(), ids=PARSERS)
def test_parsing_a_batch_is_equal(elements: list[Any], function: Function, form: FunctionVariant) -> None:
    source, found = _asked_parser(elements, function)
    assert (found.why_not, found.form, found.inexact) == ("", form, ())
    node, batch = (next(one.id for one in source.pipeline if one.op == op) for op in ("map", "batch"))
    check_proven(source, (Move(node, batch), ReplaceFunction(node, found.form, found.digest)), elements=23)


IN_TWO: dict[str, tuple[list[Any], Function, int | None, int, tuple[str, ...]]] = {
    "raw bytes taken apart": (RAW_NUMBERS, _taken_apart, 1, 1, ()),
    "the bytes of an example": (EXAMPLES, _bytes_of_an_example, None, 3, ()),
    "products that TensorFlow makes one of, but not across the cut": (RAW_NUMBERS, _scaled_twice, 1, 1, ("Mul",)),
    "the text handed on, an op that is not bit-equal": (RAW_NUMBERS, _beside_its_text, 2, 3, ("Exp",)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", IN_TWO)
def test_parsing_head_runs_on_batches_and_tail_is_vectorized(name: str) -> None:
    elements, function, statement, handed, inexact = IN_TWO[name]
    source, found = _asked_parser(elements, function)
    assert (found.why_not, found.form, found.inexact) == ("", FunctionVariant.VECTORIZED, inexact)
    assert found.cut is not None and (found.cut.statement, found.cut.handed) == (statement, handed)
    check_proven(source, in_two(found), Safety.APPROXIMATE if inexact else Safety.EXACT, elements=23)


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
    check_patch(sample, source, rewrite, expected=expected, elements=23)


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
def test_unsuitable_parser_is_refused(name: str) -> None:
    assert _asked_parser(*REFUSED[name])[1].why_not


def test_parse_single_example_is_not_left_patched() -> None:
    before = tf.io.parse_single_example, tf.compat.v1.io.parse_single_example
    _asked_parser(*PARSERS["sparse features"][:2])
    assert (tf.io.parse_single_example, tf.compat.v1.io.parse_single_example) == before
