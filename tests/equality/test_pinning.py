"""What pinning fixes in a serialized dataset, and what the proof of equality is made of."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from pipetune import tensorflow_private
from pipetune.core.edits import Safety
from pipetune.equality import compare
from pipetune.equality.compare import differs_when_read_again, digests
from pipetune.equality.elements import DrawnElements, RowCounter, component_hashes
from pipetune.equality.pinning import CannotPin, PinnedDataset, PinningOptions, pin_dataset
from pipetune.equality.proof import difference
from pipetune.equality.sharing import ChangedRegion, ComparedPipeline
from pipetune.pipelines import live

pytestmark = pytest.mark.tensorflow


def pin(dataset: Any, pins: PinningOptions = PinningOptions()) -> PinnedDataset:  # noqa: B008 (frozen)
    return pin_dataset(tensorflow_private.serialized_graph(dataset), dataset.element_spec, pins, folder="unused")


def values(dataset: Any, pins: PinningOptions = PinningOptions()) -> list[Any]:  # noqa: B008 (frozen)
    return [element.numpy().tolist() for element in pin(dataset, pins).dataset]


def numbers(count: int = 12) -> Any:
    return tf.data.Dataset.range(count)


def test_draws_are_equal_in_two_runs_and_different_per_element() -> None:
    dataset = numbers().map(lambda x: tf.random.uniform([]))
    first = values(dataset)
    assert first == values(dataset) and len(set(first)) == 12
    assert first != values(dataset, PinningOptions(seed=1))


def test_every_random_op_has_separate_seeds() -> None:
    """Two ops in a function, two equal functions, a function used by two datasets, and one called twice."""

    def draw(x: Any) -> Any:
        return tf.random.uniform([])

    called = tf.function(draw)
    one = numbers().map(draw)
    with tensorflow_private.reusing_traced_functions():
        other = numbers().map(one._map_func)
    for two in (
        numbers().map(lambda x: tf.stack([tf.random.uniform([]), tf.random.uniform([])])),
        numbers().map(lambda x: tf.stack([called(x), called(x)])),
        tf.data.Dataset.zip((numbers().map(draw), numbers().map(draw))).map(lambda a, b: tf.stack([a, b])),
        tf.data.Dataset.zip((one, other)).map(lambda a, b: tf.stack([a, b])),
    ):
        assert all(a != b for a, b in values(two))


def test_random_ops_in_branches_are_pinned() -> None:
    def flip(x: Any) -> Any:
        if tf.random.uniform([]) > 0.5:
            return tf.random.uniform([])
        return tf.random.normal([])

    dataset = numbers(40).map(flip)
    found = values(dataset)
    assert found == values(dataset) and len(set(found)) == 40
    assert sorted(pin(dataset).random_ops) == ["RandomStandardNormal", "RandomUniform", "RandomUniform"]


def test_random_maps_run_serially() -> None:
    dataset = numbers(200).map(lambda x: tf.random.uniform([]), num_parallel_calls=4)
    assert values(dataset) == values(dataset) and len(pin(dataset).parallel_draws) == 1
    assert pin(numbers().map(lambda x: x, num_parallel_calls=4)).parallel_draws == ()


def test_nothing_reads_ahead_where_another_input_ends_the_epoch() -> None:
    """Otherwise the draws of the second epoch depend on how far the threads had come in the first."""
    drawing = numbers().map(lambda x: tf.random.uniform([]))
    ahead = [
        drawing.batch(2).prefetch(4),
        drawing.batch(2).map(lambda x: x, num_parallel_calls=2),
        drawing.batch(2, num_parallel_calls=2),
    ]
    joined = [tf.data.Dataset.zip(longer, numbers(2)) for longer in (drawing.batch(2), *ahead)]
    pinned = [pin(one, PinningOptions(epochs=3)).dataset for one in joined]
    expected, *found = ([drawn.numpy().tolist() for drawn, _ in one] for one in pinned)
    assert found == [expected] * 3 and expected[:2] != expected[2:4]


def test_reshuffling_of_shuffles_is_kept() -> None:
    reshuffled = values(numbers().shuffle(20, seed=1).repeat(2))
    assert reshuffled == values(numbers().shuffle(20).repeat(2)) and reshuffled[:12] != reshuffled[12:]
    kept = values(numbers().shuffle(20, reshuffle_each_iteration=False).repeat(2))
    assert kept[:12] == kept[12:]


def test_state_of_the_live_dataset_is_ignored() -> None:
    dataset = numbers().map(lambda x: tf.random.uniform([])).cache().shuffle(20)
    before = values(dataset)
    for _ in dataset:
        pass
    assert values(dataset) == before


def test_variables_are_copies() -> None:
    count = tf.Variable(5)
    assert values(numbers(3).map(lambda x: count.assign_add(1))) == [6, 7, 8] and count.numpy() == 5


def test_pinned_epochs_and_shuffle_buffers() -> None:
    variable = tf.Variable(1, dtype=tf.int64)
    for dataset, times in (
        (numbers(2).repeat(), 3),
        (numbers(2), 3),
        (numbers(2).repeat(5), 6),  # two of the five, so that three passes over all of it take no longer
        (numbers(2).repeat(2), 6),
        (numbers(2).repeat().take(2), 3),  # it ends: who reads it begins again
        (numbers(2).repeat().map(lambda x: x * variable), 3),
        (tf.data.Dataset.zip((numbers(2), numbers(2).repeat())).map(lambda one, _: one), 3),
    ):
        assert values(dataset, PinningOptions(epochs=3)) == [0, 1] * times
    assert values(numbers(2).repeat()) == [0, 1]
    small = values(numbers(100).shuffle(100), PinningOptions(buffers={100: 2}))
    assert all(abs(position - value) < 50 for position, value in enumerate(small[:10]))
    assert pin(numbers().shuffle(7).shuffle(3)).buffers == (7, 3)


@pytest.mark.parametrize("batches", [
    lambda one, **kept: one.batch(2, **kept),
    lambda one, **kept: one.batch(2, num_parallel_calls=2, **kept),
    lambda one, **kept: one.padded_batch(2, [], **kept),
])  # fmt: skip
def test_remainders_are_kept_in_all_batches(batches: Callable[..., Any]) -> None:
    pinned = pin(batches(numbers(5), drop_remainder=True), PinningOptions(keep_remainders=True))
    assert [int(x) for x in pinned.dataset.unbatch()] == list(range(5))


def test_file_caches_are_redirected(tmp_path: pathlib.Path) -> None:
    dataset = numbers().cache(str(tmp_path / "mine"))
    graph = tensorflow_private.serialized_graph(dataset)
    other = tmp_path / "other"
    found = pin_dataset(graph, dataset.element_spec, PinningOptions(), folder=str(other)).dataset
    assert [int(x) for x in found] == list(range(12)) and not list(tmp_path.glob("mine*"))
    assert list(other.iterdir())


@pytest.mark.parametrize(("draw", "expected"), [
    (lambda: tf.random.uniform([]), 0.5),
    (lambda: tf.random.normal([]), 0.5),
    (lambda: tf.random.truncated_normal([]), 0.5),
    (lambda: tf.random.uniform([], 3, 9, tf.int32), 3),
    (lambda: tf.random.shuffle([4, 5])[0], 4),
    (lambda: GENERATOR.uniform([]), 0.5),
    (lambda: GENERATOR.normal([]), 0.5),
    (lambda: GENERATOR.uniform([], 3, 9, tf.int32), 3),
])  # fmt: skip
def test_draws_can_be_made_constant(draw: Any, expected: float) -> None:
    dataset = numbers(5).map(lambda x: draw())
    assert values(dataset, PinningOptions(constant_draws=True)) == [expected] * 5
    assert len(set(values(dataset))) > 1 and len(pin(dataset).random_ops) >= 1


GENERATOR = tf.random.Generator.from_seed(1)


def test_one_draw_can_stay_random() -> None:
    dataset = numbers().map(lambda x: tf.stack([tf.random.uniform([]), tf.random.normal([])]))
    first = values(dataset, PinningOptions(constant_draws=True, free_op=0))
    assert len({a for a, _ in first}) == 12 and {b for _, b in first} == {0.5}


def test_unknown_random_op_cannot_be_made_constant() -> None:
    dataset = numbers().map(lambda x: tf.random.categorical([[0.5, 0.5]], 1))
    assert len(values(dataset)) == 12
    with pytest.raises(CannotPin, match="Multinomial"):
        values(dataset, PinningOptions(constant_draws=True))


def augmented(source: Any, **parallel: Any) -> Any:
    def crop(x: Any) -> Any:
        return tf.cast(x, tf.float32) + tf.random.uniform([])

    def noise(x: Any) -> Any:
        return x + tf.random.normal([])

    return source.map(crop, **parallel).map(noise, **parallel)


def test_digests_do_not_depend_on_parallelism_and_buffers() -> None:
    plain = augmented(numbers(30).map(lambda x: x + 1)).shuffle(10).batch(4).repeat(2)
    tuned = augmented(numbers(30).map(lambda x: x + 1, num_parallel_calls=2).cache(), num_parallel_calls=3)
    tuned = tuned.prefetch(4).shuffle(10).batch(4, num_parallel_calls=2).repeat(2).prefetch(-1)
    assert digests(plain, count=20) == digests(tuned, count=20)
    other = augmented(numbers(30).map(lambda x: x + 2)).shuffle(10).batch(4).repeat(2)
    assert not set(digests(plain, count=20)) & set(digests(other, count=20))


def from_python(make: Callable[[], Iterable[Any]]) -> Any:
    return tf.data.Dataset.from_generator(lambda: iter(make()), output_signature=tf.TensorSpec([], tf.int64))


USED_UP = iter(range(99))


@pytest.mark.parametrize(("dataset", "differs"), [
    (lambda: from_python(lambda: range(99)), False),
    (lambda: from_python(lambda: np.random.permutation(99)), True),
    (lambda: from_python(lambda: random.Random().sample(range(99), 99)), True),
    (lambda: from_python(lambda: USED_UP).take(5), True),
    (lambda: numbers().shuffle(9).map(lambda x: tf.numpy_function(np.negative, [x], tf.int64)), False),
    (lambda: numbers().map(lambda x: tf.numpy_function(np.random.permutation, [x + 9], tf.int64)), True),
    (lambda: augmented(numbers()), False),
    (lambda: tf.data.Dataset.random(rerandomize_each_iteration=True), False),
])  # fmt: skip
def test_elements_differ_when_read_again_only_where_python_draws(dataset: Callable[[], Any], differs: bool) -> None:
    assert differs_when_read_again(dataset(), seconds=10) is differs


def test_adjacent_repeats_are_merged_and_repeat_1_is_dropped() -> None:
    for dataset, counts in (
        (numbers().repeat(2).repeat(3), (6,)),
        (numbers().repeat(1), ()),
        (numbers().repeat(4).repeat(), (-1,)),
        (numbers().repeat(0).repeat(), (0,)),
        (numbers().repeat(2).batch(2).repeat(3), (2, 3)),
    ):
        assert pin(dataset).repeats == counts
    assert values(numbers(2).repeat(2).repeat(3)) == [0, 1] * 6
    assert values(numbers(2).repeat(2).repeat(3), PinningOptions(epochs=3)) == [0, 1] * 6
    assert values(numbers(2).repeat(2).repeat(), PinningOptions(infinite_repeat_count=4)) == [0, 1] * 4


def test_shared_repeat_is_merged_with_the_repeat_of_each_reader() -> None:
    """A serialized dataset has a copy of it for each reader."""
    both = numbers(2).repeat(2)
    dataset = tf.data.Dataset.zip((both.repeat(3), both.repeat(5)))
    assert pin(dataset).repeats == (6, 10) and len(values(dataset.map(lambda a, b: a + b))) == 12


# -- what the proof is made of


def add(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize(("dataset", "expected"), [
    (tf.data.Dataset.range(9).map(add).prefetch(2).map(add).batch(3).map(add), 2),  # elements stay behind a prefetch
    (tf.data.Dataset.range(9).batch(3).map(add), 0),
])  # fmt: skip
def test_functions_of_a_region_are_those_that_take_its_elements(dataset: Any, expected: int) -> None:
    source = live.read(dataset)
    side = ComparedPipeline(source, source.pipeline)
    start = next(node.id for node in source.pipeline if node.op == "range")
    assert len(ChangedRegion(start, (side, side)).functions) == expected


@pytest.mark.parametrize(("element", "rows"), [
    (lambda: (tf.constant(7), tf.zeros([4, 2])), 4),  # with a number from `enumerate`
    (lambda: tf.constant(1.0), 1),
    (lambda: (tf.zeros([4, 2]), tf.constant([4, 2])), 1),
])  # fmt: skip
def test_what_a_function_made_of_a_batch_is_one_row(element: Any, rows: int) -> None:
    counter = RowCounter(batched=True)
    counter(element())
    assert len(counter.rows) == rows


def test_zero_bytes_at_the_end_of_a_text_count() -> None:
    assert component_hashes(tf.constant(b"ab\0")) != component_hashes(tf.constant(b"ab"))


def test_a_part_of_a_complex_number_counts_beside_one_that_is_none() -> None:
    hashes = [component_hashes(tf.constant(complex(float("nan"), part))) for part in (1.0, 2.0, 1.0)]
    assert hashes[0] == hashes[2] != hashes[1]


def drawn(element: Any, *hashes: str) -> DrawnElements:
    return DrawnElements((hashes,), complete=True, values=(element,))


def ragged(last: float) -> Any:
    return {"rows": tf.ragged.constant([[1.0], [2.0, last]])}


@pytest.mark.parametrize(("safety", "last", "expected"), [
    (Safety.EXACT, 4.0, "component 0, relative difference 1"),
    (Safety.APPROXIMATE, 2.0 + 1e-7, ""),
    (Safety.APPROXIMATE, 4.0, "component 0, relative difference 1"),
])  # fmt: skip
def test_tensors_of_a_ragged_one_are_compared(safety: Safety, last: float, expected: str) -> None:
    found = difference(drawn(ragged(2.0), "a", "same"), drawn(ragged(last), "b", "same"), safety)
    assert expected in found and bool(found) is bool(expected)


def test_large_arrays_are_not_copied_to_compare_a_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serialized, they would be copied some eight times; every process takes the same of their rows."""
    arrays = {"x": np.arange(4000).reshape(1000, 4), "y": np.arange(1000)}
    serialize, sizes = tensorflow_private.serialized_graph, list[int]()

    def serialized(dataset: Any) -> Any:
        graph = serialize(dataset)
        sizes.append(len(graph))
        return graph

    monkeypatch.setattr(tensorflow_private, "serialized_graph", serialized)
    monkeypatch.setattr(compare, "_WHOLE_BYTES", 4000)
    dataset = tf.data.Dataset.from_tensor_slices(arrays).shuffle(64).map(lambda row: row["x"] * 2).batch(8)
    few, skipped = digests(dataset, count=5), digests(dataset.skip(3), count=5)
    assert len(few) == len(set(few)) == 5 and few == digests(dataset.cache().prefetch(2), count=5)
    assert len(skipped) == 5, "where positions count, all rows are there"
    assert max(sizes[0], sizes[2]) < 16_000 < 40_000 < sizes[1]
