"""Rewrites that keep the data, on datasets of many kinds: each comparison must be equal."""

from __future__ import annotations

import collections
import pathlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from benchmarks.accuracy import grammar
from pipetune.core.edits import Insert, Move, ReplaceFunction, Safety, SetArgument, SetOption
from pipetune.core.functions import FunctionVariant
from pipetune.core.results import Comparison
from pipetune.equality import proof, recordings
from pipetune.equality.compare import compare_datasets
from pipetune.equality.elements import DrawnElements
from pipetune.equality.paired_runs import ComparisonLimits, PairedRuns
from pipetune.equality.sharing import ComparedPipeline
from pipetune.pipelines import live
from tests.equality.comparing import cached, edited, image_draw, node, parallel, write_shards

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

Point = collections.namedtuple("Point", "x y")


def assert_proven(comparison: Comparison, *, epochs: int = 3) -> None:
    assert [check for check in comparison.checks if check.equal is not True] == []
    names = {check.name for check in comparison.checks}
    assert names >= {"values", "epochs", "spec", "cardinality", "options"}
    assert comparison.proven
    assert comparison.elements > 0
    assert comparison.epochs == epochs


def test_drawn_share_counts_undrawn_elements_as_missing() -> None:
    """Elements that were not drawn still have to be: three epochs of them would not fit into the time either."""
    dataset = numbers().map(image_draw).batch(4)
    source = live.read(dataset)
    sides = ComparedPipeline(source, source.pipeline), ComparedPipeline(source, source.pipeline)
    runs = PairedRuns(sides, (dataset, dataset), Safety.EXACT, ComparisonLimits(24, 20.0), "")
    assert runs.count == 23  # a partial batch
    two, all_of_them = DrawnElements((("a",),) * 2), DrawnElements((("a",),) * 6, complete=True)
    assert runs.drawn_share(all_of_them, all_of_them) == 1.0
    assert runs.drawn_share(all_of_them, two) == 8 / 23
    assert 0 < runs.drawn_share(DrawnElements(()), two) < 8 / 23


def test_nondeterministic_pipelines_are_compared_in_order() -> None:
    """Parallel before and after: compared in order, although two runs of the original differ in order."""
    options = tf.data.Options()
    options.deterministic = False
    dataset = numbers().map(lambda x: x + 1, num_parallel_calls=4).batch(4, drop_remainder=True).with_options(options)
    comparison = edited(dataset, parallel(dataset, "map"))
    assert_proven(comparison)
    swapped = dataset.map(lambda batch: batch[::-1])
    assert not compare_datasets(dataset, swapped, Safety.EXACT).equal


def numbers() -> Any:
    return tf.data.Dataset.range(30)


def looked_up() -> Any:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(30, dtype=tf.int64), tf.range(100, 130)), -1
    )
    return numbers().map(table.lookup)


FORMS: dict[str, Callable[[], Any]] = {
    "numbers": numbers,
    "ragged": lambda: numbers().map(lambda i: tf.RaggedTensor.from_row_lengths(tf.range(i), [i])).batch(4),
    "rows of a ragged tensor": lambda: tf.data.Dataset.from_tensor_slices(
        tf.ragged.constant([[1, 2], [3], [], [4, 5, 6]] * 5)
    ),
    "deep ragged": lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[[1, 2], [3]], [[4]], []] * 7)),
    "sparse": lambda: numbers().map(lambda i: tf.sparse.from_dense(tf.stack([i, 0, i % 3]))),
    "strings": lambda: numbers().map(lambda i: tf.strings.join(["element ", tf.strings.as_string(i)])),
    "nested": lambda: numbers().map(lambda i: {"a": (i, Point(i, {"s": tf.strings.as_string(i)})), "b": [i]}),
    "nothing in it": lambda: numbers().map(lambda i: (i, None)),
    "varying shapes": lambda: numbers().map(lambda i: tf.range(i)),
    "not a number": lambda: numbers().map(lambda i: tf.cast(i, tf.float32) / tf.cast(i - 3, tf.float32) * 0.0),
    "bfloat16": lambda: numbers().map(lambda i: tf.cast(i, tf.bfloat16)),
    "table": looked_up,
    "python function": lambda: numbers().map(lambda i: tf.py_function(lambda x: x * 2, [i], tf.int64)),
    "numpy function": lambda: numbers().map(lambda i: tf.numpy_function(lambda x: x * 2, [i], tf.int64)),
    "generator": lambda: tf.data.Dataset.from_generator(
        lambda: iter(range(30)), output_signature=tf.TensorSpec([], tf.int64)
    ),
    "windows": lambda: numbers().window(4),
    "zip": lambda: tf.data.Dataset.zip((numbers(), numbers().map(image_draw))),
    "sampled": lambda: tf.data.Dataset.sample_from_datasets(
        [numbers(), numbers().map(lambda i: -i)], stop_on_empty_dataset=True
    ),
    "random source": lambda: tf.data.Dataset.random(seed=3).take(20),
    "generator object": lambda: numbers().map(lambda i: GENERATOR.uniform([])),
    "endlessly": lambda: numbers().shuffle(10).repeat().batch(7),
    "one batch": lambda: numbers().batch(64),
}


GENERATOR = tf.random.Generator.from_seed(1)


@pytest.mark.sample(8)
@pytest.mark.parametrize("form", sorted(FORMS))
def test_prefetch_after_every_form_of_data_is_equal(form: str) -> None:
    dataset = FORMS[form]()
    last = live.read(dataset).pipeline.output.id
    plan = Insert(after=last, op="prefetch", id="prefetch@1", arguments={"buffer_size": 2})
    assert_proven(edited(dataset, plan))


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", ["rows of a ragged tensor", "sparse", "strings", "nested", "varying shapes"])
def test_parallel_map_over_every_form_of_data_is_equal(form: str) -> None:
    """The recorded source feeds the user's traced function."""
    dataset = FORMS[form]().map(lambda *parts: parts)
    assert_proven(edited(dataset, parallel(dataset, "map")))


def test_empty_dataset_is_equal() -> None:
    dataset = numbers().take(0).batch(4)
    found = edited(dataset, parallel(dataset, "batch"))
    assert found.proven
    assert found.elements == 0


@pytest.mark.exhaustive
def test_elements_after_a_long_skip_are_compared() -> None:
    shuffled = tf.data.Dataset.range(1000).shuffle(1000, seed=1, reshuffle_each_iteration=False)
    dataset = shuffled.skip(800).map(lambda x: x * 2).batch(8)
    assert_proven(edited(dataset, parallel(dataset, "map")))


def test_long_skip_is_shortened_on_both_sides() -> None:
    """What a skip drops is computed in every epoch; the sample of a split would not fit into the time."""
    dataset = tf.data.Dataset.range(200).map(lambda x: x * 3).skip(180).batch(8)
    moved = edited(dataset, Move(node(dataset, "skip"), node(dataset, "range")))
    assert_proven(moved)
    assert moved.notes[0] == "Compared with skip(3) in place of skip(180), in both."
    assert edited(dataset, SetArgument(node(dataset, "skip"), "count", 179)).why
    assert edited(dataset, Move(node(dataset, "skip"), node(dataset, "batch"))).why


def test_sample_without_elements_is_no_proof() -> None:
    dataset = tf.data.Dataset.range(1000).map(lambda x: x + 1).filter(lambda x: x == 700).batch(4)
    assert not edited(dataset, parallel(dataset, "map")).proven


def test_part_of_a_small_source_without_elements_is_no_proof() -> None:
    """Four of its elements are sampled where each becomes several: too few for a window of six."""
    dataset = tf.data.Dataset.range(8).cache().flat_map(tf.data.Dataset.from_tensors).window(6, drop_remainder=True)
    dataset = dataset.flat_map(lambda window: window.batch(6))
    found = edited(dataset, Insert(node(dataset, "cache"), "prefetch", "prefetch@cache", {"buffer_size": 2}))
    assert found.elements == 0 and not found.proven


@pytest.mark.parametrize("op", ["range", "window"])
def test_cache_in_front_of_the_end_of_windows_is_equal(op: str) -> None:
    """What `flat_map` makes of a window is as much as it was: the sample needs no fewer elements."""
    dataset = tf.data.Dataset.range(5000).window(60, shift=10).flat_map(lambda window: window.batch(60))
    found = edited(dataset, Insert(node(dataset, op), "cache", "c", {"filename": ""}))
    assert_proven(found)
    assert found.elements > 2


def test_cache_between_two_shuffles_of_all_that_is_zipped_is_equal() -> None:
    """Their buffers are cut for the comparison, to less than an epoch: the order of the first is then fixed."""
    dataset = tf.data.Dataset.zip((tf.data.Dataset.range(400), tf.data.Dataset.range(400, 800)))
    dataset = dataset.shuffle(400).map(lambda x, y: x + y).shuffle(400).batch(32)
    cache = Insert(node(dataset, "map"), "cache", "c", {"filename": ""})
    assert_proven(edited(dataset, cache, safety=Safety.STATISTICAL))


def test_cache_between_two_shuffles_of_all_of_numbered_batches_is_equal() -> None:
    """The numbers are joined behind both."""
    dataset = tf.data.Dataset.range(40).shuffle(40).map(lambda x: x + 1).shuffle(40).batch(4)
    dataset = dataset.repeat().take(100).enumerate()
    cache = Insert(node(dataset, "map"), "cache", "c", {"filename": ""})
    assert_proven(edited(dataset, cache, safety=Safety.STATISTICAL))


def test_empty_plan_is_equal() -> None:
    dataset = tf.data.Dataset.range(60).shuffle(20).map(image_draw).batch(8).repeat()
    assert_proven(edited(dataset))


@pytest.mark.one_core
def test_parallel_random_map_is_statistical() -> None:
    dataset = tf.data.Dataset.range(60).map(image_draw).shuffle(20).batch(8).repeat()
    plan = (
        parallel(dataset, "map", 3),
        Insert(after=node(dataset, "repeat"), op="prefetch", id="prefetch@1", arguments={"buffer_size": -1}),
    )
    assert_proven(edited(dataset, *plan, safety=Safety.STATISTICAL))


@pytest.mark.one_core
@pytest.mark.parametrize("inner_random", [False, True])
def test_parallel_interleave_of_the_same_cycle_is_equal(inner_random: bool, tmp_path: pathlib.Path) -> None:
    def read(file: Any) -> Any:
        records = tf.data.TFRecordDataset(file)
        return records.map(lambda r: (r, tf.random.uniform([]))).prefetch(2) if inner_random else records

    files = tf.data.Dataset.list_files(write_shards(tmp_path))
    dataset = files.interleave(read, cycle_length=3, block_length=2).shuffle(8).batch(4)
    safety = Safety.STATISTICAL if inner_random else Safety.EXACT
    assert_proven(edited(dataset, parallel(dataset, "interleave"), safety=safety))


def asserted(folder: pathlib.Path, add: int = 1) -> Any:
    """Records with an asserted cardinality, as in TensorFlow Datasets; on a sample the assertion would only raise."""
    files = tf.data.Dataset.list_files(write_shards(folder), shuffle=False)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=2)
    counted = records.apply(tf.data.experimental.assert_cardinality(30))
    return counted.map(lambda record: tf.strings.length(record) + add).shuffle(4, seed=1).batch(2)


def test_asserted_cardinality_is_not_applied_to_a_sample(tmp_path: pathlib.Path) -> None:
    dataset = asserted(tmp_path)
    moved = Insert(after=node(dataset, "batch"), op="prefetch", id="p", arguments={"buffer_size": 2})
    assert_proven(edited(dataset, parallel(dataset, "interleave"), moved, elements=8))
    wrong = compare_datasets(dataset, asserted(tmp_path, add=2), Safety.EXACT, elements=8)
    assert any(check.equal is False for check in wrong.checks)


def test_cardinality_asserted_behind_a_function_on_batches_is_no_obstacle() -> None:
    """The changed part is compared alone on generated elements, and the assertion is no part of it."""
    dataset = numbers().map(lambda x: x * 2).batch(4).apply(tf.data.experimental.assert_cardinality(8))
    found = edited(dataset, Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, ""))
    assert_proven(found)
    assert "generated inputs" in {check.name for check in found.checks}


def test_cache_after_a_deterministic_map_is_equal() -> None:
    dataset = tf.data.Dataset.range(60).map(lambda x: x * x).shuffle(20).batch(8).repeat()
    assert_proven(edited(dataset, cached(dataset, "map")))


def test_cache_of_files_in_fixed_order_is_equal(tmp_path: pathlib.Path) -> None:
    files = tf.data.Dataset.list_files(write_shards(tmp_path), shuffle=False)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=1).map(image_draw_of_text)
    dataset = dataset.shuffle(10).batch(4)
    assert_proven(edited(dataset, cached(dataset, "interleave")))


def image_draw_of_text(record: Any) -> Any:
    return record, tf.random.normal([])


def test_comparison_does_not_write_file_caches(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache"
    dataset = tf.data.Dataset.range(30).map(lambda x: x * x).cache(str(path)).shuffle(10).batch(4)
    plan = Insert(after=node(dataset, "batch"), op="prefetch", id="prefetch@1", arguments={"buffer_size": 2})
    assert_proven(edited(dataset, plan))
    new = tf.data.Dataset.range(30).map(lambda x: x * x).shuffle(10).batch(4)
    arguments = {"filename": str(path)}
    assert_proven(edited(new, Insert(after=node(new, "map"), op="cache", id="cache@1", arguments=arguments)))
    assert list(tmp_path.iterdir()) == []


def test_state_of_live_caches_and_shuffles_is_not_compared() -> None:
    """Neither the contents of a cache nor the number of shuffles so far matters."""
    dataset = tf.data.Dataset.range(30).map(image_draw).cache().shuffle(10).batch(4)
    for _ in range(2):
        for _ in dataset:
            pass
    assert_proven(edited(dataset, parallel(dataset, "batch")))


def test_cache_of_elements_that_overtake_each_other() -> None:
    """Their order differs in each pass, and both pipelines are compared in the one that they have in the source."""

    def work(x: Any) -> Any:
        size = 2 + 600 * tf.cast(x % 2, tf.int32)
        return x + tf.cast(
            0.0 * tf.reduce_sum(tf.linalg.matmul(tf.ones([size, size]), tf.ones([size, size]))), tf.int64
        )

    dataset = (
        numbers().map(work, num_parallel_calls=8, deterministic=False).map(image_draw).repeat().shuffle(9).batch(4)
    )
    after = next(node.id for node in live.read(dataset).pipeline if node.op == "map")
    found = edited(dataset, Insert(after, "cache", "cache", {"filename": ""}), safety=Safety.STATISTICAL)
    assert_proven(found)
    assert "The source yields different data each time it is read." not in found.notes


def test_source_that_cannot_be_repeated_is_read_once() -> None:
    items = iter(range(40))
    dataset = tf.data.Dataset.from_generator(lambda: items, output_signature=tf.TensorSpec([], tf.int64))
    dataset = dataset.map(lambda x: x + 1).batch(3)
    found = edited(dataset, parallel(dataset, "map"))
    assert found.proven
    assert "The source yields different data each time it is read." in found.notes


def test_options_set_by_the_plan_are_no_difference() -> None:
    dataset = tf.data.Dataset.range(40).batch(3)
    assert_proven(edited(dataset, SetOption("threading.private_threadpool_size", 2)))


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_other_order_is_equal_only_for_reorders(drop_remainder: bool, tmp_path: pathlib.Path) -> None:
    files = tf.data.Dataset.list_files(write_shards(tmp_path, shards=4, records=6), shuffle=False)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=1, block_length=1)
    dataset = dataset.batch(4, drop_remainder=drop_remainder)
    plan = SetArgument(node(dataset, "interleave"), "cycle_length", 3)
    assert edited(dataset, plan, safety=Safety.REORDERS).proven
    assert not edited(dataset, plan).equal


def test_shuffle_moved_across_a_random_map_is_statistical() -> None:
    dataset = tf.data.Dataset.range(40).map(image_draw).shuffle(50).batch(4)
    plan = Move(node(dataset, "shuffle"), after=node(dataset, "range"))
    found = edited(dataset, plan, safety=Safety.STATISTICAL)
    assert_proven(found)
    assert "randomness" in {check.name for check in found.checks}
    assert not edited(dataset, plan).equal


@pytest.mark.sample(1)
@pytest.mark.parametrize("draw", [tf.random.uniform, tf.random.normal, tf.random.truncated_normal])
def test_one_draw_per_element_of_a_batch_is_statistical(draw: Any) -> None:
    source = tf.data.Dataset.range(40)

    def one_each(x: Any) -> Any:
        return tf.cast(x, tf.float32) + draw(tf.shape(x))

    one, other = source.map(one_each).batch(4), source.batch(4).map(one_each)
    assert_proven(compare_datasets(one, other, Safety.STATISTICAL, elements=24))


def test_draws_of_few_outcomes_per_element_of_a_batch_are_statistical() -> None:
    source = tf.data.Dataset.range(40)

    def flip(x: Any) -> Any:
        return x + tf.random.uniform(tf.shape(x), maxval=2, dtype=tf.int64)

    one, other = source.map(flip).batch(8), source.batch(8).map(flip)
    assert_proven(compare_datasets(one, other, Safety.STATISTICAL, elements=24))


def test_parallel_keras_layer_is_statistical_and_keeps_its_seed_variable() -> None:
    """Parallel calls would take its seeds in any order."""
    layer = tf.keras.layers.RandomFlip(seed=3)
    images = tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(40 * 12, dtype=tf.float32), [40, 2, 2, 3]))
    dataset = images.map(lambda image: layer(image, training=True)).batch(8)
    before = [variable.numpy().tolist() for variable in layer.variables]
    plan = parallel(dataset, "map", 4)
    assert_proven(edited(dataset, plan, safety=Safety.STATISTICAL))
    assert not edited(dataset, plan).equal
    batched = images.batch(8).map(lambda image: layer(image, training=True))
    assert_proven(compare_datasets(dataset, batched, Safety.STATISTICAL, elements=24))
    assert [variable.numpy().tolist() for variable in layer.variables] == before


def test_errors_at_the_same_element_are_equal() -> None:
    def check(x: Any) -> Any:
        tf.debugging.assert_less(x, tf.constant(17, tf.int64))
        return x

    dataset = tf.data.Dataset.range(20).map(check).batch(4)
    found = edited(dataset, parallel(dataset, "map"))
    assert_proven(found)
    assert any("Both pipelines raise InvalidArgumentError at the same positions" in note for note in found.notes)


def test_source_that_raises_is_compared_up_to_its_error() -> None:
    def generate() -> Any:
        yield from range(10)
        raise OSError("the disk is gone")

    dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64)).batch(3)
    found = edited(dataset, parallel(dataset, "batch"))
    assert found.proven
    assert "After that it raises UnknownError." in found.notes


def test_cache_of_a_map_that_raises_in_every_epoch_is_unequal() -> None:
    def inverse(x: Any) -> Any:
        return tf.constant(10, tf.int64) // (x - 4)

    dataset = tf.data.Dataset.range(20).map(inverse)
    found = edited(dataset, Insert(node(dataset, "map"), "cache", "cache@map"))
    assert not found.equal and "an element raises an error in every epoch" in found.why


@pytest.mark.parametrize(
    ("chosen", "raises"),
    [
        (lambda dataset: dataset.shard(6, 0), 4),
        (lambda dataset: dataset.skip(5), 4),
        (lambda dataset: dataset.filter(lambda x: x > 5), 4),
        (lambda dataset: dataset.shuffle(6, seed=5), 3000),  # not in any sample
    ],
)
def test_moving_an_operator_across_a_map_that_raises_is_unequal(chosen: Callable[[Any], Any], raises: int) -> None:
    def inverse(x: Any) -> Any:
        return tf.constant(10, tf.int64) // (x - raises)

    dataset = chosen(tf.data.Dataset.range(6 if raises < 6 else 4000).map(inverse))
    moved = live.read(dataset).pipeline.output.id
    found = edited(dataset, Move(moved, node(dataset, "range")))
    assert not found.equal and "an element that raises an error would be computed later" in found.why


@pytest.mark.one_core
def test_time_limit_ends_a_long_comparison() -> None:
    """The elements compared until then count."""
    dataset = tf.data.Dataset.range(10**9).map(lambda x: x + 1).batch(50)
    found = edited(dataset, parallel(dataset, "map"), elements=10**6, time_limit_seconds=0.5)
    assert found.equal
    assert found.elements > 0


@pytest.mark.exhaustive
def test_elements_are_reduced_where_three_epochs_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate that was estimated too high, as on a shared machine, costs elements but not the proof."""
    monkeypatch.setattr(proof, "_TIME_MARGIN", 0.3)  # about four times too high
    monkeypatch.setattr(proof, "_MAX_OVERTIME", 30.0)  # otherwise the time to build graphs would decide
    counts: list[int] = []
    shrink = PairedRuns.shrink

    def counted(runs: PairedRuns, factor: float) -> None:
        shrink(runs, factor)
        counts.append(runs.count)

    monkeypatch.setattr(PairedRuns, "shrink", counted)
    slowly = grammar.map_function(wait_seconds=0.01, work_seconds=0.0, out_bytes=0.0, draws=False)
    dataset = tf.data.Dataset.range(1000).map(slowly).batch(8)
    found = edited(dataset, parallel(dataset, "map"), elements=256, time_limit_seconds=2.5)
    assert_proven(found)
    assert len(counts) > 1 and counts[-1] < counts[0]


def test_what_python_draws_is_compared_where_its_calls_stay_as_they_are() -> None:
    def draw(x: Any) -> Any:
        return np.float32(x + random.random() + np.random.random())

    def slow(x: Any) -> Any:
        return x * 2

    made = tf.data.Dataset.range(40).map(slow)
    dataset = made.map(lambda x: tf.numpy_function(draw, [x], tf.float32), num_parallel_calls=4).batch(4)
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    assert_proven(edited(dataset, cached(made, "map")))
    assert random.getstate() == state and np.random.get_state()[1].tolist() == numpy_state
    wrong = edited(dataset, Insert(after=live.read(dataset).pipeline.output.id, op="cache", id="cache@1"))
    assert not wrong.proven and next(check for check in wrong.checks if check.name == "epochs").equal is False


def test_python_randomness_is_no_proof() -> None:
    def draw(x: Any) -> Any:
        return float(x) + random.random()

    dataset = tf.data.Dataset.range(40).map(lambda x: tf.py_function(draw, [x], tf.float32)).batch(4)
    plan = parallel(dataset, "map")
    found = edited(dataset, plan)
    assert not found.proven
    values = next(check for check in found.checks if check.name == "values")
    assert values.equal is None
    assert "not reproducible" in values.detail
    found = edited(dataset, plan, safety=Safety.STATISTICAL)
    assert next(check for check in found.checks if check.name == "randomness").equal is True
    assert not edited(dataset, cached(dataset, "map"), safety=Safety.STATISTICAL).equal


def test_numbered_batches_of_a_random_map() -> None:
    """The number beside a batch belongs to no row of it."""
    made = numbers().map(image_draw).batch(4).repeat().take(20).enumerate()
    edits = (
        Insert(node(made, "zip"), "prefetch", "p", {"buffer_size": 2}),
        parallel(made, "map"),
    )
    assert_proven(edited(made, *edits, safety=Safety.STATISTICAL))


def _slow(number: Any) -> Any:
    """Takes some 10 ms."""
    matrix = tf.random.stateless_normal([700, 700], seed=(1, 2)) + tf.cast(number, tf.float32)
    return tf.reduce_max(tf.linalg.matmul(matrix, matrix)) + tf.cast(number, tf.float32)


def test_a_sample_that_there_is_little_time_for_still_fills_a_batch() -> None:
    """Three epochs of half a batch, which `drop_remainder` drops, show nothing."""
    dataset = tf.data.Dataset.range(1000).map(_slow).batch(32, drop_remainder=True)
    found = edited(dataset, parallel(dataset, "map"), elements=64, time_limit_seconds=1.0)
    (epochs,) = (check for check in found.checks if check.name == "epochs")
    assert epochs.equal or "time ran out" in epochs.detail


def test_values_of_whole_epochs_are_drawn_again_where_their_first_share_of_the_time_was_too_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[bool] = []
    original = proof.EqualityProof._draw

    def draw(self: proof.EqualityProof, graphs: Any, pins: Any, *, until: float) -> Any:
        runs = original(self, graphs, pins, until=until)
        drawn.append(not drawn)
        return tuple(replace(run, complete=False, hashes=run.hashes[:2]) for run in runs) if drawn[-1] else runs

    monkeypatch.setattr(proof.EqualityProof, "_draw", draw)
    dataset = tf.data.Dataset.range(40).shuffle(40).map(lambda x: x + 1).batch(4)
    cache = Insert("n2", "cache", "c", {"filename": ""})
    found = edited(dataset, cache, safety=Safety.REORDERS, elements=256, time_limit_seconds=60.0)
    (values,) = (check for check in found.checks if check.name == "values")
    assert found.proven and values.equal and not values.late, found


def test_runs_of_both_pipelines_overlap_unless_they_share_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    original = PairedRuns.draw

    def draw(self: PairedRuns, *args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread().name)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PairedRuns, "draw", draw)
    for function, overlap in (
        (lambda x: x + 1, True),
        (lambda x: tf.py_function(lambda y: y + 1, [x], x.dtype), False),
    ):
        threads.clear()
        dataset = tf.data.Dataset.range(40).map(function).batch(8)
        assert edited(dataset, Insert(node(dataset, "batch"), "prefetch", "p", {"buffer_size": 2})).equal
        assert (len(set(threads)) > 1) is overlap


def test_elements_beyond_those_of_the_other_run_are_left_out() -> None:
    run = DrawnElements((("a",), ("raises E",), ("b",)), complete=True, errors=("E",), values=(1, None, 2))
    assert run.comparable == 4 and run.limited(4) is run
    cut = run.limited(2)
    assert (cut.hashes, cut.errors, cut.values, cut.complete) == ((("a",), ("raises E",)), ("E",), (1, None), False)
    assert cut.comparable == 2 and run.limited(1).errors == ()


def test_no_element_in_the_time_there_was_is_no_empty_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine such a plan was rejected as not comparable, although more time would have compared it."""
    dataset = tf.data.Dataset.range(1000).map(lambda x: x + 1).batch(32, drop_remainder=True)
    plan = parallel(dataset, "map")
    original = recordings.record

    def slow(dataset: Any, *, count: int, **limits: Any) -> recordings.RecordedElements:
        return replace(original(dataset, count=20, **limits), out_of_time=count > 20)

    monkeypatch.setattr(recordings, "record", slow)
    found = edited(dataset, plan, elements=64)
    assert not found.proven and found.undecided
    assert not any("no element" in check.detail for check in found.checks)


def test_a_recording_knows_that_it_ended_for_want_of_time() -> None:
    dataset = tf.data.Dataset.range(1000)
    cut = recordings.record(dataset, count=500, deadline=0.0, max_bytes=1e9)
    assert cut.out_of_time and not cut.complete
    whole = recordings.record(dataset.take(3), count=500, deadline=time.monotonic() + 60, max_bytes=1e9)
    assert whole.complete and not whole.out_of_time


def test_a_recording_that_cannot_skip_goes_on_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the elements, which a batch is not filled by, was taken for all that the dataset has."""
    monkeypatch.setattr(recordings, "_can_skip_in_time", lambda *_: False)
    dataset = tf.data.Dataset.range(1000)
    found = recordings.record(dataset, count=80, deadline=time.monotonic() + 60, max_bytes=1e9)
    assert found.positions == tuple(range(78)) and found.covered_part == "start" and not found.complete


@pytest.mark.parametrize("stacked", [True, False])
def test_elements_of_one_shape_are_served_without_a_generator(stacked: bool) -> None:
    """Which costs a comparison half of its time; each starts a dozen."""
    ones = numbers().map(lambda x: (tf.fill([3 if stacked else x], x), tf.strings.as_string(x)))
    recording = recordings.record(ones, count=20, deadline=time.monotonic() + 60, max_bytes=1e6)
    served = recordings.serve(recordings.stacked(recording), recordings.PassCounter(), recordings.first_elements(7))
    assert (type(served).__name__ == "_TensorSliceDataset") == stacked
    assert served.element_spec == ones.element_spec
    found, expected = (list(one.as_numpy_iterator()) for one in (served, ones.take(7)))
    assert [(row.tolist(), text) for row, text in found] == [(row.tolist(), text) for row, text in expected]
