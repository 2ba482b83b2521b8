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
from pipetune.core.edits import (
    Insert,
    Move,
    ReplaceFunction,
    Safety,
    SetArgument,
    SetOption,
    SplitFunction,
    apply_edits,
)
from pipetune.core.errors import CannotReplay
from pipetune.core.functions import FunctionVariant
from pipetune.core.results import Comparison
from pipetune.equality import proof, sample, sharing
from pipetune.equality.compare import compare, compare_datasets
from pipetune.equality.elements import DrawnElements
from pipetune.equality.paired_runs import ComparisonLimits, PairedRuns
from pipetune.equality.sharing import ComparedPipeline
from pipetune.pipelines import live
from pipetune.probes import function_splitting
from tests.equality.comparing import bucketed, check_of, edit_of, edited, image_draw, node, one_file, write_shards

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

Dataset = tf.data.Dataset
EXACT, STATISTICAL, REORDERS = Safety.EXACT, Safety.STATISTICAL, Safety.REORDERS

Point = collections.namedtuple("Point", "x y")


def assert_proven(comparison: Comparison) -> None:
    assert [check for check in comparison.checks if check.equal is not True] == []
    assert {check.name for check in comparison.checks} >= {"values", "epochs", "spec", "cardinality", "options"}
    assert comparison.proven and comparison.elements > 0 and comparison.epochs == 3


def test_drawn_share_counts_undrawn_elements_as_missing() -> None:
    """Elements that were not drawn still have to be: three epochs of them would not fit into the time either."""
    dataset = numbers().map(image_draw).batch(4)
    source = live.read(dataset)
    sides = ComparedPipeline(source, source.pipeline), ComparedPipeline(source, source.pipeline)
    runs = PairedRuns(sides, (dataset, dataset), EXACT, ComparisonLimits(24, 20.0), "")
    assert runs.count == 23  # a partial batch
    two, all_of_them = DrawnElements((("a",),) * 2), DrawnElements((("a",),) * 6, complete=True)
    assert runs.drawn_share(all_of_them, all_of_them) == 1.0 and runs.drawn_share(all_of_them, two) == 8 / 23
    assert 0 < runs.drawn_share(DrawnElements(()), two) < 8 / 23
    rows = PairedRuns(sides, (dataset, dataset), REORDERS, ComparisonLimits(24, 20.0), "")
    assert rows.drawn_share(two) == 2 / rows.count, "single rows are drawn where only these must be the same"


@pytest.mark.parametrize(("behind", "copies"), [
    (lambda ds: ds, 48),
    (lambda ds: ds.repeat(), 48),
    (lambda ds: ds.repeat().take(99).enumerate(), 16),
    (lambda ds: ds.repeat().take(99).batch(32), 40),
    (lambda ds: Dataset.zip(ds, Dataset.range(9).repeat()), 48),  # another dataset is repeated
])  # fmt: skip
def test_fewer_copies_are_served_where_each_epoch_repeats_them(behind: Callable[[Any], Any], copies: int) -> None:
    dataset = behind(numbers().map(image_draw))
    source = live.read(dataset)
    sides = ComparedPipeline(source, source.pipeline), ComparedPipeline(source, source.pipeline)
    assert PairedRuns(sides, (dataset, dataset), STATISTICAL, ComparisonLimits(24, 20.0), "").copy_count == copies


def test_outputs_that_no_time_was_left_to_count_leave_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PairedRuns.draw

    def draw(self: PairedRuns, *args: Any, observe: Any = None, **kwargs: Any) -> Any:
        return replace(original(self, *args, observe=observe, **kwargs), complete=observe is None)

    monkeypatch.setattr(PairedRuns, "draw", draw)
    found = edited(numbers().map(image_draw).shuffle(60), "moved shuffle range", safety=STATISTICAL)
    assert found.undecided and "time ran out" in found.why, found


def test_nondeterministic_pipelines_are_compared_in_order() -> None:
    """Parallel before and after: compared in order, although two runs of the original differ in order."""
    options = tf.data.Options()
    options.deterministic = False
    dataset = numbers().map(lambda x: x + 1, num_parallel_calls=4).batch(4, drop_remainder=True).with_options(options)
    assert_proven(edited(dataset, "parallel map"))
    swapped = dataset.map(lambda batch: batch[::-1])
    assert not compare_datasets(dataset, swapped, EXACT).equal


def numbers(count: int = 30) -> Any:
    return Dataset.range(count)


def looked_up() -> Any:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(30, dtype=tf.int64), tf.range(100, 130)), -1
    )
    return numbers().map(table.lookup)


FORMS: dict[str, Callable[[], Any]] = {
    "numbers": numbers,
    "ragged": lambda: numbers().map(lambda i: tf.RaggedTensor.from_row_lengths(tf.range(i), [i])).batch(4),
    "rows of a ragged tensor": lambda: Dataset.from_tensor_slices(tf.ragged.constant([[1, 2], [3], [], [4, 5, 6]] * 5)),
    "sparse": lambda: numbers().map(lambda i: tf.sparse.from_dense(tf.stack([i, 0, i % 3]))),
    "strings": lambda: numbers().map(lambda i: tf.strings.join(["element ", tf.strings.as_string(i)])),
    "nested": lambda: numbers().map(lambda i: {"a": (i, Point(i, {"s": tf.strings.as_string(i)})), "b": [i]}),
    "varying shapes": lambda: numbers().map(lambda i: tf.range(i)),
    "not a number": lambda: numbers().map(lambda i: tf.cast(i, tf.float32) / tf.cast(i - 3, tf.float32) * 0.0),
    "bfloat16": lambda: numbers().map(lambda i: tf.cast(i, tf.bfloat16)),
    "table": looked_up,
    "python function": lambda: numbers().map(lambda i: tf.py_function(lambda x: x * 2, [i], tf.int64)),
    "generator": lambda: Dataset.from_generator(lambda: iter(range(30)), output_signature=tf.TensorSpec([], tf.int64)),
    "windows": lambda: numbers().window(4),
    "sampled": lambda: Dataset.sample_from_datasets(
        [numbers(), numbers().map(lambda i: -i)], stop_on_empty_dataset=True
    ),
    "random source": lambda: Dataset.random(seed=3).take(20),
    "generator object": lambda: numbers().map(lambda i: GENERATOR.uniform([])),
    "endlessly": lambda: numbers().shuffle(10).repeat().batch(7),
}


GENERATOR = tf.random.Generator.from_seed(1)


@pytest.mark.sample(8)
@pytest.mark.parametrize("form", sorted(FORMS))
def test_prefetch_after_every_form_of_data_is_equal(form: str) -> None:
    dataset = FORMS[form]()
    assert_proven(edited(dataset, f"prefetched {live.read(dataset).pipeline.output.op}"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", ["rows of a ragged tensor", "sparse", "strings", "nested", "varying shapes"])
def test_parallel_map_over_every_form_of_data_is_equal(form: str) -> None:
    """The recorded source feeds the user's traced function."""
    dataset = FORMS[form]().map(lambda *parts: parts)
    assert_proven(edited(dataset, "parallel map"))


def test_empty_dataset_is_equal() -> None:
    dataset = numbers().take(0).batch(4)
    found = edited(dataset, "parallel batch")
    assert found.proven and found.elements == 0


def test_long_skip_is_shortened_on_both_sides() -> None:
    """What a skip drops is computed in every epoch; the sample of a split would not fit into the time."""
    dataset = Dataset.range(200).map(lambda x: x * 3).skip(180).batch(8)
    found = edited(dataset, "moved skip range")
    assert_proven(found)
    assert found.notes[0] == "Compared with skip(3) in place of skip(180), in both."
    assert edited(dataset, SetArgument(node(dataset, "skip"), "count", 179)).why
    assert edited(dataset, "moved skip batch").why


def windows_of_six() -> Any:
    """Four of its elements are sampled where each becomes several: too few for a window of six."""
    windows = Dataset.range(8).cache().flat_map(Dataset.from_tensors).window(6, drop_remainder=True)
    return windows.flat_map(lambda window: window.batch(6))


@pytest.mark.parametrize(("make", "plan"), [
    (lambda: Dataset.range(1000).map(lambda x: x + 1).filter(lambda x: x == 700).batch(4), "parallel map"),
    (windows_of_six, "prefetched cache"),
    # all of the files, and few of their records
    (lambda: one_file().map(lambda x: x + 1).filter(lambda x: x == 7000).batch(4), "parallel map"),
    # one whole batch of four in the data, and none in a sample with a batch of seven
    (lambda: Dataset.range(32).map(lambda x: x + 1).batch(8, True).batch(4, True), "parallel map"),
    (lambda: numbers().map(lambda x: tf.debugging.check_numerics(tf.cast(x, tf.float32) / 0.0, "")), "parallel map"),
])  # fmt: skip
def test_sample_without_elements_is_no_proof(make: Callable[[], Any], plan: str) -> None:
    dataset = make()
    found = edited(dataset, plan)
    assert found.elements == 0 and not found.proven


@pytest.mark.parametrize("op", ["range", "window"])
def test_cache_in_front_of_the_end_of_windows_is_equal(op: str) -> None:
    """What `flat_map` makes of a window is as much as it was: the sample needs no fewer elements."""
    dataset = Dataset.range(5000).window(60, shift=10).flat_map(lambda window: window.batch(60))
    found = edited(dataset, f"cached {op}")
    assert_proven(found)
    assert found.elements > 2


def numbered(batches: Any, count: int) -> Any:
    """The number beside a batch belongs to no row of it."""
    return batches.repeat().take(count).enumerate()


def read_before() -> Any:
    """Neither the contents of a cache nor the number of shuffles so far matters."""
    dataset = numbers().map(image_draw).cache().shuffle(10).batch(4)
    for _ in [*dataset, *dataset]:
        pass
    return dataset


def shuffled_twice(dataset: Any, count: int) -> Any:
    """The buffers are cut for the comparison, to less than an epoch: the order of the first is then fixed."""
    return dataset.shuffle(count).map(lambda *one: sum(one) + 1).shuffle(count)


@pytest.mark.parametrize(("make", "plan", "safety"), [
    (lambda: numbers(60).shuffle(20).map(image_draw).batch(8).repeat(), [], EXACT),
    (lambda: numbers().batch(3), [SetOption("threading.private_threadpool_size", 2)], EXACT),
    (lambda: numbers().map(tf.negative).shuffle(20).batch(8).repeat(), ["cached map"], EXACT),
    (lambda: bucketed(numbers(2000).shuffle(60), 30), ["moved shuffle map", "cached map"], EXACT),
    (lambda: one_file(90).shuffle(30).map(tf.negative).batch(8), ["cached map"], REORDERS),
    (lambda: Dataset.range(90, 91).shuffle(1).flat_map(lambda n: Dataset.range(n).shuffle(50)).map(tf.negative),
        ["cached map"], REORDERS),
    (read_before, ["parallel batch"], EXACT),
    (lambda: shuffled_twice(Dataset.zip((numbers(400),) * 2), 400).batch(32), ["cached map"], STATISTICAL),
    (lambda: numbered(shuffled_twice(numbers(40), 40).batch(4), 100), ["cached map"], STATISTICAL),
    (lambda: Dataset.zip((shuffled_twice(numbers(50), 50), shuffled_twice(numbers(40), 40))).batch(4),
        ["cached map"], STATISTICAL),
    (lambda: Dataset.zip((shuffled_twice(numbers(40), 40),) * 2).batch(4), ["cached map"], STATISTICAL),
    (lambda: numbered(numbers().map(image_draw).batch(4), 20), ["prefetched zip", "parallel map"], STATISTICAL),
    (lambda: numbers(40).map(image_draw).shuffle(50).batch(4), ["moved shuffle range"], STATISTICAL),
    pytest.param(lambda: numbers(60).map(image_draw).shuffle(20).batch(8).repeat(),
        ["parallel map 3", Insert("n4", "prefetch", "p", {"buffer_size": -1})],
        STATISTICAL, marks=pytest.mark.one_core),
])  # fmt: skip
def test_plan_that_changes_nothing_is_equal(make: Callable[[], Any], plan: list[Any], safety: Safety) -> None:
    dataset = make()
    assert_proven(edited(dataset, *plan, safety=safety))


def test_records_of_one_file_are_cut_where_order_is_free() -> None:
    found = edited(one_file().shuffle(30).map(tf.negative).batch(8), "cached map", safety=REORDERS)
    assert_proven(found)
    assert found.elements < 1000, "not three times all records"


@pytest.mark.one_core
@pytest.mark.parametrize("inner_random", [False, True])
def test_parallel_interleave_of_the_same_cycle_is_equal(inner_random: bool, tmp_path: pathlib.Path) -> None:
    def read(file: Any) -> Any:
        records = tf.data.TFRecordDataset(file)
        return records.map(lambda r: (r, tf.random.uniform([]))).prefetch(2) if inner_random else records

    files = Dataset.list_files(write_shards(tmp_path))
    dataset = files.interleave(read, cycle_length=3, block_length=2).shuffle(8).batch(4)
    safety = STATISTICAL if inner_random else EXACT
    assert_proven(edited(dataset, "parallel interleave", safety=safety))


def asserted(folder: pathlib.Path, add: int = 1) -> Any:
    """Records with an asserted cardinality, as in TensorFlow Datasets; on a sample the assertion would only raise."""
    files = Dataset.list_files(write_shards(folder), shuffle=False)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=2)
    counted = records.apply(tf.data.experimental.assert_cardinality(30))
    return counted.map(lambda record: tf.strings.length(record) + add).shuffle(4, seed=1).batch(2)


def test_asserted_cardinality_is_not_applied_to_a_sample(tmp_path: pathlib.Path) -> None:
    dataset = asserted(tmp_path)
    assert_proven(edited(dataset, "parallel interleave", "prefetched batch", elements=8))
    wrong = compare_datasets(dataset, asserted(tmp_path, add=2), EXACT, elements=8)
    assert any(check.equal is False for check in wrong.checks)


def test_cardinality_asserted_behind_a_function_on_batches_is_no_obstacle() -> None:
    """The changed part is compared alone on generated elements, and the assertion is no part of it."""
    dataset = numbers().map(lambda x: x * 2).batch(4).apply(tf.data.experimental.assert_cardinality(8))
    found = edited(dataset, Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, ""))
    assert_proven(found)
    assert "generated inputs" in {check.name for check in found.checks}


@pytest.mark.parametrize("enough", [True, False])
def test_generated_elements_that_fill_no_batch_are_no_proof(enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_MAX_BYTES", 1e6 if enough else 12 * 8)
    dataset = numbers().map(lambda x: x * 2).batch(16, drop_remainder=True)
    found = edited(dataset, Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, ""))
    assert_proven(found)
    assert ("generated inputs" in {check.name for check in found.checks}) is enough


def test_cache_of_elements_that_overtake_each_other() -> None:
    """Their order differs in each pass, and both pipelines are compared in the one that they have in the source."""

    def work(x: Any) -> Any:
        square = tf.ones([2 + 600 * tf.cast(x % 2, tf.int32)] * 2)
        return x + tf.cast(0.0 * tf.reduce_sum(tf.linalg.matmul(square, square)), tf.int64)

    dataset = numbers().map(work, num_parallel_calls=8, deterministic=False).map(image_draw)
    plan = Insert("n1", "cache", "cache", {"filename": ""})
    found = edited(dataset.repeat().shuffle(9).batch(4), plan, safety=STATISTICAL)
    assert_proven(found)
    assert "The source yields different data each time it is read." not in found.notes


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_other_order_is_equal_only_for_reorders(drop_remainder: bool, tmp_path: pathlib.Path) -> None:
    files = Dataset.list_files(write_shards(tmp_path, shards=4, records=6), shuffle=False)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=1, block_length=1)
    dataset = dataset.batch(4, drop_remainder=drop_remainder)
    plan = SetArgument(node(dataset, "interleave"), "cycle_length", 3)
    assert edited(dataset, plan, safety=REORDERS).proven and not edited(dataset, plan).equal


@pytest.mark.sample(2)
@pytest.mark.parametrize("draw", [
    tf.random.uniform, tf.random.normal, tf.random.truncated_normal,
    lambda shape: tf.random.uniform(shape, maxval=2, dtype=tf.int64),
])  # fmt: skip
def test_one_draw_per_element_of_a_batch_is_statistical(draw: Any) -> None:
    def one_each(x: Any) -> Any:
        drawn = draw(tf.shape(x))
        return tf.cast(x, drawn.dtype) + drawn

    source = Dataset.range(40)
    one, other = source.map(one_each).batch(8), source.batch(8).map(one_each)
    assert_proven(compare_datasets(one, other, STATISTICAL, elements=24))
    tokens = source.map(lambda x: tf.fill([50], x)).shuffle(9).flat_map(Dataset.from_tensor_slices)
    blocks = tokens.batch(16, drop_remainder=True)  # packed
    one, other = blocks.map(one_each).batch(8, True), blocks.batch(8, True).map(one_each)
    assert_proven(compare_datasets(one, other, STATISTICAL, elements=24))


def test_parallel_keras_layer_is_statistical_and_keeps_its_seed_variable() -> None:
    """Parallel calls would take its seeds in any order."""
    layer = tf.keras.layers.RandomFlip(seed=3)
    images = Dataset.from_tensor_slices(tf.reshape(tf.range(40 * 12, dtype=tf.float32), [40, 2, 2, 3]))
    dataset = images.map(lambda image: layer(image, training=True)).batch(8)
    before = [variable.numpy().tolist() for variable in layer.variables]
    assert_proven(edited(dataset, "parallel map 4", safety=STATISTICAL))
    assert not edited(dataset, "parallel map 4").equal
    batched = images.batch(8).map(lambda image: layer(image, training=True))
    assert_proven(compare_datasets(dataset, batched, STATISTICAL, elements=24))
    assert [variable.numpy().tolist() for variable in layer.variables] == before


def below_17(x: Any) -> Any:
    tf.debugging.assert_less(x, tf.constant(17, tf.int64))
    return x


def failing() -> Any:
    yield from range(10)
    raise OSError("the disk is gone")


def generated(make: Callable[[], Any]) -> Any:
    return Dataset.from_generator(make, output_signature=tf.TensorSpec([], tf.int64))


USED_UP = iter(range(40))


@pytest.mark.parametrize(("make", "op", "said"), [
    (lambda: generated(lambda: USED_UP).map(tf.negative), "map", "The source yields different data each time it is"),
    (lambda: generated(failing), "batch", "After that it raises UnknownError."),
    (lambda: Dataset.range(20).map(below_17), "map", "Both pipelines raise InvalidArgumentError at the same positions"),
])  # fmt: skip
def test_source_that_fails_is_compared_as_far_as_possible(make: Callable[[], Any], op: str, said: str) -> None:
    found = edited(make().batch(3), f"parallel {op}")
    assert found.proven and any(said in note for note in found.notes)


def test_plan_that_tensorflow_does_not_build_cannot_be_replayed() -> None:
    dataset = numbers().batch(4)
    with pytest.raises(CannotReplay, match="The plan cannot be built"):
        edited(dataset, SetArgument(node(dataset, "batch"), "batch_size", -1))


_LATER = "an element that raises an error would be computed later"


@pytest.mark.parametrize(("chosen", "raises", "why"), [
    (lambda dataset: dataset, 4, "an element raises an error in every epoch"),  # and is cached
    (lambda dataset: dataset.skip(5), 4, _LATER),
    (lambda dataset: dataset.filter(lambda x: x > 5), 4, _LATER),
    (lambda dataset: dataset.shuffle(6, seed=5), 3000, _LATER),  # not in any sample
])  # fmt: skip
def test_edit_behind_a_map_that_raises_is_unequal(chosen: Callable[[Any], Any], raises: int, why: str) -> None:
    mapped = Dataset.range(6 if raises < 6 else 4000).map(lambda x: tf.constant(10, tf.int64) // (x - raises))
    dataset = chosen(mapped)
    edit = "cached map" if dataset is mapped else Move(live.read(dataset).pipeline.output.id, "n0")
    found = edited(dataset, edit)
    assert not found.equal and why in found.why


def test_shuffle_moved_into_a_map_whose_second_part_raises_is_unequal() -> None:
    def draw_and_raise(x: Any) -> Any:
        double = 2 * x
        drawn = tf.random.uniform([], maxval=2, dtype=tf.int64, seed=4)
        return tf.constant(10, tf.int64) // (double - 6000) + drawn

    source = live.read(Dataset.range(4000).map(draw_and_raise).shuffle(6, seed=5))
    function = function_splitting.annotate_splits(source, source.pipeline)["n1"].function
    assert function is not None and function.before_draws is not None
    split = SplitFunction("n1", function.before_draws)
    found = compare(source, apply_edits(source.pipeline, [split, Move("n2", split.head)]), STATISTICAL, elements=24)
    assert not found.equal and _LATER in found.why


@pytest.mark.one_core
def test_time_limit_ends_a_long_comparison() -> None:
    """The elements compared until then count."""
    dataset = Dataset.range(10**9).map(lambda x: x + 1).batch(50)
    found = edited(dataset, "parallel map", elements=10**6, time_limit_seconds=0.5)
    assert found.equal and found.elements > 0


@pytest.mark.exhaustive
def test_elements_are_reduced_where_three_epochs_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate that was estimated too high, as on a shared machine, costs elements but not the proof."""
    share = PairedRuns.drawn_share
    monkeypatch.setattr(PairedRuns, "drawn_share", lambda *runs: 4 * share(*runs))  # four times too high
    monkeypatch.setattr(proof, "_MAX_OVERTIME", 30.0)  # otherwise the time to build graphs would decide
    counts: list[int] = []
    shrink = PairedRuns.shrink

    def counted(runs: PairedRuns, factor: float) -> float:
        reached = shrink(runs, factor)
        counts.append(runs.count)
        return reached

    monkeypatch.setattr(PairedRuns, "shrink", counted)
    slowly = grammar.map_function(wait_seconds=0.01, work_seconds=0.0, out_bytes=0.0, draws=False)
    dataset = Dataset.range(1000).map(slowly).batch(8)
    found = edited(dataset, "parallel map", elements=256, time_limit_seconds=2.5)
    assert_proven(found)
    assert len(counts) > 1 and counts[-1] < counts[0]


def test_what_python_draws_is_compared_where_its_calls_stay_as_they_are() -> None:
    def draw(x: Any) -> Any:
        return np.float32(x + random.random() + np.random.random())

    made = Dataset.range(40).map(lambda x: x * 2)
    dataset = made.map(lambda x: tf.numpy_function(draw, [x], tf.float32), num_parallel_calls=4).batch(4)
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    assert_proven(edited(dataset, Insert(node(made, "map"), "cache", "cache@1")))
    assert random.getstate() == state and np.random.get_state()[1].tolist() == numpy_state
    wrong = edited(dataset, "cached batch")
    assert not wrong.proven and check_of(wrong, "epochs").equal is False


def test_python_randomness_is_no_proof() -> None:
    drawn = Dataset.range(40).map(lambda x: tf.py_function(lambda x: float(x) + random.random(), [x], tf.float32))
    dataset = drawn.batch(4)
    found = edited(dataset, "parallel map")
    values = check_of(found, "values")
    assert not found.proven and values.equal is None and "not reproducible" in values.detail
    found = edited(dataset, "parallel map", safety=STATISTICAL)
    assert check_of(found, "randomness").equal is True and not edited(dataset, "cached map", safety=STATISTICAL).equal


def _slow(number: Any) -> Any:
    """Takes some 10 ms."""
    matrix = tf.random.stateless_normal([700, 700], seed=(1, 2)) + tf.cast(number, tf.float32)
    return tf.reduce_max(tf.linalg.matmul(matrix, matrix)) + tf.cast(number, tf.float32)


def test_a_sample_that_there_is_little_time_for_still_fills_a_batch() -> None:
    """Three epochs of half a batch, which `drop_remainder` drops, show nothing."""
    dataset = Dataset.range(1000).map(_slow).batch(32, drop_remainder=True)
    found = edited(dataset, "parallel map", elements=64, time_limit_seconds=1.0)
    epochs = check_of(found, "epochs")
    assert epochs.equal or "time ran out" in epochs.detail


def test_values_of_whole_epochs_are_drawn_again_if_their_time_was_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bool] = []
    original = PairedRuns.draw_both

    def draw(self: PairedRuns, *args: Any, **kwargs: Any) -> Any:
        runs = original(self, *args, **kwargs)
        drawn.append(not drawn)
        return tuple(replace(run, complete=False, hashes=run.hashes[:2]) for run in runs) if drawn[-1] else runs

    monkeypatch.setattr(PairedRuns, "draw_both", draw)
    dataset = Dataset.range(40).shuffle(40).map(lambda x: x + 1).batch(4)
    found = edited(dataset, "cached map", safety=REORDERS, elements=256, time_limit_seconds=60.0)
    values = check_of(found, "values")
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
        dataset = Dataset.range(40).map(function).batch(8)
        assert edited(dataset, "prefetched batch").equal and (len(set(threads)) > 1) is overlap


def test_batch_behind_a_filter_is_filled_where_it_drops_its_remainder() -> None:
    dataset = Dataset.range(10_000).filter(lambda x: x % 50 == 0).batch(8, drop_remainder=True)
    source = live.read(dataset)
    tuned = apply_edits(source.pipeline, [edit_of(dataset, "prefetched batch")])
    assert_proven(compare(source, tuned, EXACT, elements=24, filtered={node(dataset, "filter"): 50.0}))


def test_sampled_datasets_are_read_to_their_end() -> None:
    """Each choice takes two seeds: of half as many choices, or of an odd number of seeds, little would be compared."""
    parts = [Dataset.range(start, start + 1000).repeat() for start in (0, 5000, 9000)]
    found = edited(Dataset.sample_from_datasets(parts).batch(8, drop_remainder=True), "prefetched batch", elements=25)
    assert_proven(found)
    assert found.elements >= 3 * (3 * 25 // 8 - 1) and not any("raise" in note for note in found.notes)


def test_one_recording_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, original = list[float](), sharing.record

    def recorded(dataset: Any, *, deadline: float, **limits: Any) -> sharing.RecordedElements:
        deadlines.append(deadline)
        return original(dataset, deadline=deadline, **limits)

    monkeypatch.setattr(sharing, "record", recorded)
    edited(Dataset.sample_from_datasets([numbers(), numbers()]).batch(8), "prefetched batch")
    assert len(deadlines) == 2 and deadlines[0] < deadlines[1] - 1.0


def test_elements_beyond_those_of_the_other_run_are_left_out() -> None:
    run = DrawnElements((("a",), ("raises E",), ("b",)), complete=True, errors=("E",), values=(1, None, 2))
    assert run.comparable == 4 and run.limited(4) is run
    cut = run.limited(2)
    assert (cut.hashes, cut.errors, cut.values, cut.complete) == ((("a",), ("raises E",)), ("E",), (1, None), False)
    assert cut.comparable == 2 and run.limited(1).errors == ()


def test_no_element_in_the_time_there_was_is_no_empty_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine such a plan was rejected as not comparable, although more time would have compared it."""
    dataset = Dataset.range(1000).map(lambda x: x + 1).batch(32, drop_remainder=True)
    plan = "parallel map"
    original = sharing.record

    def slow(dataset: Any, *, count: int, **limits: Any) -> sharing.RecordedElements:
        return replace(original(dataset, count=20, **limits), out_of_time=count > 20)

    monkeypatch.setattr(sharing, "record", slow)
    found = edited(dataset, plan, elements=64)
    assert not found.proven and found.undecided and not any("no element" in check.detail for check in found.checks)


def test_a_recording_knows_that_it_ended_for_want_of_time() -> None:
    dataset = Dataset.range(1000)
    cut = sharing.record(dataset, count=500, deadline=0.0, max_bytes=1e9)
    assert cut.out_of_time and not cut.complete
    whole = sharing.record(dataset.take(3), count=500, deadline=time.monotonic() + 60, max_bytes=1e9)
    assert whole.complete and not whole.out_of_time


def test_a_recording_that_did_not_reach_the_end_does_not_claim_it() -> None:
    def slow(x: Any) -> Any:
        time.sleep(0.002)
        return x

    dataset = Dataset.range(100_000).map(lambda x: tf.numpy_function(slow, [x], tf.int64)).filter(lambda x: x >= 0)
    found = sharing.record(dataset, count=30, deadline=time.monotonic() + 0.3, max_bytes=1e9)
    assert found.covered_part == "start, middle and end of what there was time to read"


def test_a_recording_that_cannot_skip_goes_on_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the elements, which a batch is not filled by, was taken for all that the dataset has."""
    monkeypatch.setattr(sharing, "_can_skip_in_time", lambda *_: False)
    dataset = Dataset.range(1000)
    found = sharing.record(dataset, count=80, deadline=time.monotonic() + 60, max_bytes=1e9)
    assert found.positions == tuple(range(78)) and found.covered_part == "start" and not found.complete


@pytest.mark.parametrize("stacked", [True, False])
def test_elements_of_one_shape_are_served_without_a_generator(stacked: bool) -> None:
    """Which costs a comparison half of its time; each starts a dozen."""
    ones = numbers().map(lambda x: (tf.fill([3 if stacked else x], x), tf.strings.as_string(x)))
    recording = sharing.record(ones, count=20, deadline=time.monotonic() + 60, max_bytes=1e6)
    served = sharing.serve(sharing.stacked(recording), sharing.PassCounter(), sharing.first_elements(7))
    assert (type(served).__name__ == "_TensorSliceDataset") == stacked and served.element_spec == ones.element_spec
    found, expected = (list(one.as_numpy_iterator()) for one in (served, ones.take(7)))
    assert [(row.tolist(), text) for row, text in found] == [(row.tolist(), text) for row, text in expected]
