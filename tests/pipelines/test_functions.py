"""Facts read from a traced function: each flag where it must be set, and where it must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.functions import FunctionFacts
from pipetune.pipelines import functions, live
from pipetune.rewrites.rule import is_stateless


def mapped(function: Callable[..., Any], source: Any = None) -> FunctionFacts:
    dataset = tf.data.Dataset.range(4) if source is None else source
    return functions.read_facts(dataset.map(function)._map_func)


def flags(facts: FunctionFacts) -> set[str]:
    names = ("random", "seeded", "random_python", "python", "reads_variables", "writes_variables", "mutable_tables",
             "side_effects", "reads_files", "can_raise")  # fmt: skip
    return {name for name in names if getattr(facts, name)}


@tf.function
def nested(x: Any) -> Any:
    return tf.cond(x > 2, lambda: tf.random.uniform([]), lambda: 0.0)


def static_table() -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4], tf.int64, tf.int64), 0)


TABLE, TABLES = static_table(), {}

FUNCTIONS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "arithmetic": (lambda x: x * 2 + 1, set()),
    "control flow": (lambda x: tf.cond(x > 1, lambda: x, lambda: -x), set()),
    "random, stateless": (lambda x: tf.random.stateless_uniform([], seed=(1, 2)), set()),
    "static table": (lambda x: TABLE.lookup(tf.cast(x, tf.int64)), set()),
    "parsing": (lambda x: tf.strings.to_number(tf.strings.as_string(x)), set()),
    "decoding": (lambda x: tf.io.decode_png(tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8))), set()),
    "uniform": (lambda x: tf.random.uniform([]), {"random"}),
    "uniform with a seed": (lambda x: tf.random.uniform([], seed=3), {"random", "seeded"}),
    "one of two seeded": (lambda x: tf.random.uniform([]) + tf.random.uniform([], seed=3), {"random"}),
    "shuffle of a tensor": (lambda x: tf.random.shuffle([x, x]), {"random"}),
    "random in a branch of a tf.function": (nested, {"random"}),
    "py_function": (lambda x: tf.py_function(lambda y: y, [x], tf.int64), {"python"}),
    "numpy_function": (lambda x: tf.numpy_function(lambda y: y, [x], tf.int64), {"python"}),
    "print": (lambda x: [x, tf.print(x)][0], {"side_effects"}),
    "write_file": (lambda x: [x, tf.io.write_file("f", "x")][0], {"side_effects"}),
    "read_file": (lambda x: tf.io.read_file("f"), {"reads_files"}),
    "assert": (lambda x: [x, tf.debugging.assert_positive(x)][0], {"can_raise"}),
    "ensure_shape": (lambda x: tf.ensure_shape(x, []), {"can_raise"}),
    "check_numerics": (lambda x: tf.debugging.check_numerics(tf.cast(x, tf.float32), "m"), {"can_raise"}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_sets_exactly_its_flags(name: str) -> None:
    function, expected = FUNCTIONS[name]
    facts = mapped(function)
    assert flags(facts) == expected
    if not expected & {"reads_files", "can_raise"}:
        assert facts.stateless is not bool(expected)


def test_random_generator_cannot_be_pinned() -> None:
    generator = tf.random.Generator.from_seed(3)
    facts = mapped(lambda x: generator.uniform([]))
    assert facts.random and facts.random_python and not facts.seeded


def test_keras_layers_and_random_ops() -> None:
    import keras

    own = keras.random.SeedGenerator(3, name="own")
    flip, dense = keras.layers.RandomFlip(), keras.layers.Dense(2)
    dense.build([None, 4])
    for function in (
        lambda x: flip(tf.zeros([1, 4, 4, 3]), training=True),
        lambda x: keras.random.uniform([]),
        lambda x: keras.random.uniform([], seed=own),
    ):
        facts = mapped(function)
        assert facts.random and facts.random_python and facts.writes_variables
    facts = mapped(lambda x: dense(tf.zeros([1, 4])))
    assert flags(facts) == {"reads_variables"} and len(facts.reads_variables) == 2


def test_variables_read_and_written() -> None:
    variable = tf.Variable(3, name="counted", dtype=tf.int64)
    assert mapped(lambda x: x + variable).reads_variables == ("counted:0",)
    written = mapped(lambda x: variable.assign_add(x))
    assert written.writes_variables and written.reads_variables
    assert mapped(lambda x: tf.function(lambda y: variable.assign(y))(x)).writes_variables
    several = tf.Variable([1, 2], dtype=tf.int64)
    assert mapped(lambda x: several[:1].assign([x])).writes_variables
    assert mapped(lambda x: several.scatter_max(tf.IndexedSlices([x], [0]))).writes_variables
    handle = variable.handle
    unnamed = mapped(lambda x: x + tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64))
    assert unnamed.writes_variables and not unnamed.stateless and not unnamed.only_draws
    embedding = tf.Variable(tf.zeros([4, 2]), name="embedding")
    assert mapped(lambda x: tf.gather(embedding, x)).reads_variables == ("embedding:0",)


def test_mutable_tables_are_distinguished_from_static_ones() -> None:
    mutable = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2)
    for table in (mutable, dense):
        assert flags(mapped(lambda x, table=table: table.lookup(x))) == {"mutable_tables"}
        assert "mutable_tables" in flags(mapped(lambda x, table=table: [x, table.insert(x, x)][0]))
        handle = table.resource_handle
        imported = mapped(
            lambda x, to=handle: [x, tf.raw_ops.LookupTableImportV2(table_handle=to, keys=[x], values=[x])][0]
        )
        assert "mutable_tables" in flags(imported)
    filled_at_each_call = mapped(lambda x: TABLES.setdefault(0, static_table()).lookup(x))
    assert "LookupTableImportV2" in filled_at_each_call.operations and flags(filled_at_each_call) == set()


def test_inner_datasets_are_part_of_the_function() -> None:
    numbers = tf.data.Dataset.range(4)

    def inner(function: Callable[..., Any]) -> FunctionFacts:
        return functions.read_facts(numbers.interleave(function)._map_func)

    assert flags(inner(lambda x: tf.data.Dataset.range(x))) == set()
    assert flags(inner(lambda x: tf.data.Dataset.range(x).shuffle(2))) == {"random"}
    assert flags(inner(lambda x: tf.data.Dataset.random().take(2))) == {"random"}
    assert flags(inner(lambda x: tf.data.Dataset.sample_from_datasets([numbers, numbers]))) == {"random"}
    assert flags(inner(lambda x: numbers.map(lambda y: tf.random.uniform([])))) == {"random"}
    assert flags(inner(lambda x: tf.data.Dataset.list_files("*"))) == {"random", "reads_files", "can_raise"}
    assert inner(lambda x: tf.data.Dataset.range(x).filter(lambda y: y > 0)).operations.count("FilterDataset") == 1
    windows = numbers.window(2)
    for reading in (lambda w: w.batch(2).get_single_element(), lambda w: w.reduce(tf.constant(0, tf.int64), tf.add)):
        assert is_stateless(live.read(windows.map(reading)).pipeline.output)
    shuffled = windows.map(lambda w: w.shuffle(2).batch(2).get_single_element())
    assert flags(functions.read_facts(shuffled._map_func)) == {"random"}
    for in_order in (None, True, False):
        given = {"num_parallel_calls": 2, "deterministic": in_order}
        facts = inner(lambda x, given=given: tf.data.Dataset.range(x).map(lambda y: y, **given))
        assert facts.unordered is (in_order is False)


def test_inner_operators_are_listed_sources_first() -> None:
    files = tf.data.Dataset.from_tensor_slices(["a"])

    def inner(function: Callable[..., Any]) -> tuple[str, ...]:
        return functions.inner_operators(files.interleave(function)._map_func)

    assert inner(tf.data.TFRecordDataset) == ("TFRecordDataset",)
    assert inner(lambda name: tf.data.TFRecordDataset([name, name], num_parallel_reads=2)) == ("TFRecordDataset",)
    assert inner(lambda name: tf.data.TextLineDataset(name).skip(1)) == ("TextLineDataset", "SkipDataset")
    assert inner(lambda name: tf.data.FixedLengthRecordDataset(name, 4)) == ("FixedLengthRecordDatasetV2",)
    chain = inner(lambda name: tf.data.TFRecordDataset(name).map(tf.strings.length).take(3))
    assert chain == ("TFRecordDataset", "MapDataset", "TakeDataset")

    def twice(name: Any) -> Any:
        names = tf.data.Dataset.from_tensor_slices([name])
        return tf.data.TFRecordDataset(names).concatenate(tf.data.TFRecordDataset(names))

    assert inner(twice) == ("TFRecordDataset", "TFRecordDataset", "ConcatenateDataset")


def test_size_counts_called_functions() -> None:
    small, large = mapped(lambda x: x + 1), mapped(lambda x: tf.function(lambda y: y * y + y * y * y)(x))
    assert large.size > small.size >= 2 and "Mul" in large.operations


def test_unreadable_function_sets_every_warning_flag() -> None:
    facts = functions.read_facts(object())
    assert facts.python and facts.side_effects and not facts.stateless


def digest(function: Callable[..., Any]) -> str:
    return mapped(function).digest


STABLE: dict[str, Callable[[], Callable[..., Any]]] = {
    "branches": lambda: lambda x: tf.cond(x > 1, lambda: x, lambda: -x),
    "switch": lambda: lambda x: tf.switch_case(tf.cast(x, tf.int32), [lambda: x, lambda: x + 1]),
    "loop": lambda: lambda x: tf.while_loop(lambda i: i < x, lambda i: (i + 1,), (tf.constant(0, tf.int64),)),
    "Python token": lambda: lambda x: tf.numpy_function(lambda y: y, [x], tf.int64),
    "variable": lambda: (lambda v: lambda x: x + v)(tf.Variable(1, dtype=tf.int64)),
    "static table": lambda: lambda x: TABLE.lookup(tf.cast(x, tf.int64)),
}


@pytest.mark.parametrize("name", STABLE)
def test_digest_is_stable_across_traces(name: str) -> None:
    first = digest(STABLE[name]())
    for _ in range(3):  # the names of graphs count up
        tf.data.Dataset.range(2).map(lambda x: tf.cond(x > 0, lambda: x, lambda: x + 1))
    assert digest(STABLE[name]()) == first


def test_digest_ignores_seeds_file_names_and_large_constants() -> None:
    assert digest(lambda x: tf.random.uniform([], seed=1)) == digest(lambda x: tf.random.uniform([], seed=2))
    assert digest(lambda x: tf.io.read_file("/a/b.txt")) == digest(lambda x: tf.io.read_file("/c/d.txt"))
    large = [np.full(1000, value) for value in (1, 2)]
    assert digest(lambda x: tf.gather(large[0], x)) == digest(lambda x: tf.gather(large[1], x))
    small = [np.full(10, value) for value in (1, 2)]
    assert digest(lambda x: tf.gather(small[0], x)) != digest(lambda x: tf.gather(small[1], x))


@tf.function
def minus(x: Any, y: Any) -> Any:
    return x - y


@tf.function
def minus_turned(x: Any, y: Any) -> Any:
    return y - x


@tf.function
def pair(x: Any) -> Any:
    return x + 1, x * 2


OTHER: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "constant": (lambda x: x + 1, lambda x: x + 2),
    "dtype": (lambda x: tf.cast(x, tf.float32), lambda x: tf.cast(x, tf.float64)),
    "operands": (lambda x: x - x * 2, lambda x: x * 2 - x),
    "operands inside a function": (lambda x: minus(x, x + 1), lambda x: minus_turned(x, x + 1)),
    "outputs of one op": (lambda x: tf.subtract(*tf.split(tf.stack([x, x]), 2)),
        lambda x: tf.subtract(*tf.split(tf.stack([x, x]), 2)[::-1])),
    "results of a function": (lambda x: pair(x)[0], lambda x: pair(x)[1]),
    "order of what is returned": (lambda x: (x, x + 1), lambda x: (x + 1, x)),
    "branch": (lambda x: tf.cond(x > 1, lambda: x, lambda: -x), lambda x: tf.cond(x > 1, lambda: -x, lambda: x)),
    "case": (lambda x: tf.switch_case(tf.cast(x, tf.int32), [lambda: x, lambda: x + 1]),
        lambda x: tf.switch_case(tf.cast(x, tf.int32), [lambda: x, lambda: x + 2])),
    "random op": (lambda x: tf.random.uniform([]), lambda x: tf.random.normal([])),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_different_functions_have_different_digests(name: str) -> None:
    one, other = OTHER[name]
    assert digest(one) != digest(other)


def test_reading_facts_does_not_run_the_function(tmp_path: Path) -> None:
    mapped(lambda x: [x, tf.io.write_file(str(tmp_path / "f"), "x")][0])
    assert list(tmp_path.iterdir()) == []


def choose(image: Any) -> Any:
    return tf.where(tf.random.uniform([]) < 0.5, tf.reverse(image, [1]), image)


def choose_each(image: Any) -> Any:
    return tf.where(image > 0.5, image, 0.0)


def choose_inside_a_library(image: Any) -> Any:
    keras = pytest.importorskip("keras")
    return keras.ops.where(tf.random.uniform([]) < 0.5, image, -image)


LARGE, UNKNOWN = [224, 224, 3], [None, None, 3]


@pytest.mark.parametrize(("function", "shape", "elements"), [
    pytest.param(choose_each, LARGE, [], id="a-condition-for-each-number"),
    pytest.param(choose, None, [], id="nothing-known-of-its-shape"),
    pytest.param(choose, [None, 4], [], id="boxes"),
    pytest.param(choose_inside_a_library, LARGE, [], id="in-a-library"),
    pytest.param(tf.image.random_flip_left_right, LARGE, [], id="a-flip-of-tensorflow"),
    pytest.param(choose, LARGE, [150_528], id="image"),
    pytest.param(choose, UNKNOWN, [None], id="image-of-any-size"),
    pytest.param(lambda image: choose(choose(image)), LARGE, [150_528], id="the-same-statement-twice"),
])  # fmt: skip
def test_selections_between_arrays_by_one_condition(function, shape, elements) -> None:
    spec = tf.TensorSpec(shape, tf.float32)
    images = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=spec)
    found = mapped(function, images).selections
    assert [selection.elements for selection in found] == elements
    line = choose.__code__.co_firstlineno + 1
    assert {(selection.file, selection.line) for selection in found} <= {(__file__, line)}
