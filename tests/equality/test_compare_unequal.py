"""Rewrites that change the data: each comparison must be unequal."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from pipetune.core.edits import Insert, Move, Remove, Safety, SetArgument, SetOption
from pipetune.core.results import Comparison
from pipetune.equality.compare import compare_datasets
from pipetune.pipelines import live
from tests.equality.comparing import cached, edited, image_draw, node, parallel, write_shards

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def by_hand(original: Any, candidate: Any, safety: Safety = Safety.EXACT) -> Comparison:
    return compare_datasets(original, candidate, safety, elements=24)


def failed(comparison: Comparison) -> set[str]:
    return {check.name for check in comparison.checks if check.equal is False}


CLASSES = [Safety.EXACT, Safety.STATISTICAL]


@pytest.mark.sample(1)
@pytest.mark.parametrize("safety", CLASSES)
def test_batch_before_a_random_function_per_image_is_unequal(safety: Safety) -> None:
    source = tf.data.Dataset.range(100)
    found = by_hand(source.map(image_draw).batch(8), source.batch(8).map(image_draw), safety)
    assert not found.equal
    assert ("values" if safety == Safety.EXACT else "randomness") in failed(found), found.why


@pytest.mark.sample(1)
@pytest.mark.parametrize("op", [0, 1])
def test_one_of_two_draws_shared_by_a_batch_is_unequal(op: int) -> None:
    """The second draw, one per image, must not hide the difference."""

    def shapes(x: Any) -> tuple[list[Any], list[Any]]:
        return ([], tf.shape(x)) if op == 0 else (tf.shape(x), [])

    def both(x: Any) -> Any:
        one, other = shapes(x)
        return tf.cast(x, tf.float32) + tf.random.uniform(one) + 10 * tf.random.uniform(other)

    source = tf.data.Dataset.range(60)
    found = by_hand(source.map(both).batch(6), source.batch(6).map(both), Safety.STATISTICAL)
    assert failed(found) == {"randomness"}, found
    assert "when only RandomUniform is random" in found.why


@pytest.mark.sample(2)
@pytest.mark.parametrize("safety", list(Safety)[:3])
def test_cached_augmentation_is_unequal(safety: Safety) -> None:
    dataset = tf.data.Dataset.range(60).map(image_draw).batch(8)
    found = edited(dataset, cached(dataset, "map"), safety=safety)
    assert not found.equal
    if safety > Safety.EXACT:
        assert "over three epochs" in found.why
    else:
        assert failed(found) == {"epochs"}


def flip(x: Any) -> Any:
    return x + tf.random.uniform(tf.shape(x), maxval=2, dtype=tf.int64)


@pytest.mark.sample(1)
@pytest.mark.parametrize("safety", list(Safety)[:3])
def test_cached_augmentation_of_two_outcomes_is_unequal(safety: Safety) -> None:
    """Both outcomes occur with and without the cache; only their positions are frozen."""
    dataset = tf.data.Dataset.range(60).map(flip).batch(8)
    found = edited(dataset, cached(dataset, "map"), safety=safety)
    assert failed(found) == {"epochs" if safety == Safety.EXACT else "randomness"}


def test_draw_of_two_outcomes_shared_by_a_batch_is_unequal() -> None:
    source = tf.data.Dataset.range(60)

    def shared(x: Any) -> Any:
        return x + tf.random.uniform([], maxval=2, dtype=tf.int64)

    found = by_hand(source.map(shared).batch(6), source.batch(6).map(shared), Safety.STATISTICAL)
    assert failed(found) == {"randomness"}


@pytest.mark.parametrize(("safety", "seed"), [(Safety.EXACT, None), (Safety.STATISTICAL, 7)])
def test_cached_shuffle_is_unequal(safety: Safety, seed: int | None) -> None:
    dataset = tf.data.Dataset.range(60).shuffle(100, seed=seed).batch(8)
    assert failed(edited(dataset, cached(dataset, "shuffle"), safety=safety)) == {"epochs"}


def read_shards(pattern: str, cycle_length: int = 2, **arguments: Any) -> Any:
    files = tf.data.Dataset.list_files(pattern)
    return files.interleave(tf.data.TFRecordDataset, cycle_length=cycle_length, block_length=1, **arguments)


@pytest.mark.parametrize(("behind", "safety"), [("interleave", Safety.EXACT), ("shuffle", Safety.STATISTICAL)])
def test_cache_after_list_files_is_unequal(behind: str, safety: Safety, tmp_path: pathlib.Path) -> None:
    dataset = read_shards(write_shards(tmp_path, records=10)).batch(4)
    assert failed(edited(dataset, cached(dataset, behind), safety=safety)) == {"epochs"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("behind", "equal"), [("interleave", True), ("map", False)])
def test_frozen_order_is_equal_for_reorders_and_a_frozen_draw_is_not(
    behind: str, equal: bool, tmp_path: pathlib.Path
) -> None:
    dataset = read_shards(write_shards(tmp_path)).map(lambda r: (r, tf.random.uniform([]))).batch(4)
    plan = cached(dataset, behind)
    found = edited(dataset, plan, safety=Safety.REORDERS)
    assert found.equal is equal, found
    assert found.proven is equal
    assert not equal or {"values", "epochs", "randomness"} <= {check.name for check in found.checks}


def test_draws_that_cannot_be_pinned_are_unequal() -> None:
    """A draw that cannot be made constant leaves the difference unexplained."""
    dataset = tf.data.Dataset.range(40).map(lambda x: tf.random.categorical([[0.5, 0.5]], 1)).shuffle(50)
    plan = Move(node(dataset, "shuffle"), after=node(dataset, "range"))
    assert not edited(dataset, plan, safety=Safety.STATISTICAL).equal


@pytest.mark.one_core
def test_other_cycle_length_is_unequal(tmp_path: pathlib.Path) -> None:
    dataset = read_shards(write_shards(tmp_path))
    assert failed(edited(dataset, SetArgument(node(dataset, "interleave"), "cycle_length", 3))) == {"values"}


def counting(state: Any, x: Any) -> Any:
    return state + 1, state


def test_skip_before_a_scan_is_unequal() -> None:
    dataset = tf.data.Dataset.range(40).scan(tf.constant(0), counting).skip(3)
    first = node(dataset, "range")
    assert failed(edited(dataset, Move(node(dataset, "skip"), after=first))) == {"values"}


def test_skip_before_a_stateful_map_is_unequal() -> None:
    count = tf.Variable(0)
    dataset = tf.data.Dataset.range(40).map(lambda x: count.assign_add(1)).skip(3)
    found = edited(dataset, Move(node(dataset, "skip"), after=node(dataset, "range")))
    assert failed(found) == {"values"}
    assert count.numpy() == 0, "the user's variable moved"


def test_skip_before_a_random_map_is_unequal() -> None:
    dataset = tf.data.Dataset.range(40).map(image_draw).skip(3)
    assert failed(edited(dataset, Move(node(dataset, "skip"), after=node(dataset, "range")))) == {"values"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("safety", list(Safety))
def test_other_batch_size_is_unequal(safety: Safety) -> None:
    dataset = tf.data.Dataset.range(60).batch(8)
    assert not edited(dataset, SetArgument(node(dataset, "batch"), "batch_size", 9), safety=safety).equal


@pytest.mark.sample(2)
@pytest.mark.parametrize("safety", list(Safety))
def test_dropped_last_batch_is_unequal(safety: Safety) -> None:
    dataset = tf.data.Dataset.range(60).filter(lambda x: x >= 0).batch(8)
    assert not edited(dataset, SetArgument(node(dataset, "batch"), "drop_remainder", True), safety=safety).equal


def test_shuffle_moved_across_repeat_is_unequal() -> None:
    dataset = tf.data.Dataset.range(60).shuffle(30).repeat().batch(8)
    found = edited(dataset, Move(node(dataset, "shuffle"), after=node(dataset, "repeat")), safety=Safety.STATISTICAL)
    assert failed(found) == {"epochs"}


@pytest.mark.parametrize("size", [5, 59, 60])
@pytest.mark.parametrize("reshuffled", [True, False])
def test_cache_behind_a_shuffle_that_the_next_one_does_not_settle(size: int, reshuffled: bool) -> None:
    """Only a shuffle of all elements, in each epoch another one, hides in which order it gets them."""
    dataset = tf.data.Dataset.range(60).shuffle(60).map(lambda x: x + 1)
    dataset = dataset.shuffle(size, reshuffle_each_iteration=reshuffled).batch(8)
    cache = Insert(node(dataset, "map"), "cache", "cache@1", {"filename": ""})
    found = edited(dataset, cache, safety=Safety.STATISTICAL)
    assert found.equal is (size == 60 and reshuffled)
    assert not edited(dataset, cache).equal


def test_cache_behind_a_shuffle_that_pairs_elements_anew() -> None:
    """The shuffle behind it hides the order of the pairs, not that they stay the same."""
    dataset = tf.data.Dataset.zip((tf.data.Dataset.range(60).shuffle(60), tf.data.Dataset.range(60)))
    dataset = dataset.shuffle(60).batch(8)
    cache = Insert(node(dataset, "zip"), "cache", "cache@1", {"filename": ""})
    assert failed(edited(dataset, cache, safety=Safety.STATISTICAL)) == {"epochs"}


@pytest.mark.parametrize("between", ["batch", "enumerate", "take", "seeded"])
def test_cache_of_one_order_that_shows_behind_the_shuffle(between: str) -> None:
    """What differs from epoch to epoch with the order of the elements, and would not any more."""
    dataset = tf.data.Dataset.range(60).shuffle(60).map(lambda x: x + 1)
    match between:
        case "batch":
            dataset = dataset.batch(4)
        case "enumerate":
            dataset = dataset.enumerate()
        case "take":
            dataset = dataset.take(30)
        case "seeded":
            dataset = dataset.map(lambda x: tf.cast(x, tf.float32) + tf.random.uniform([], seed=1))
    cache = Insert(next(one.id for one in live.read(dataset).pipeline if one.op == "map"), "cache", "cache@1")
    assert not edited(dataset.shuffle(60), cache, safety=Safety.STATISTICAL).equal


def test_batch_moved_across_repeat_is_unequal() -> None:
    dataset = tf.data.Dataset.range(60).batch(8).repeat()
    assert failed(edited(dataset, Move(node(dataset, "batch"), after=node(dataset, "repeat")))) == {"epochs"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("safety", list(Safety))
def test_removed_map_is_unequal(safety: Safety) -> None:
    dataset = tf.data.Dataset.range(60).map(lambda x: x + 1).batch(8)
    assert "values" in failed(edited(dataset, Remove(node(dataset, "map")), safety=safety))


def test_batch_before_a_failing_map_with_ignore_errors_is_unequal() -> None:
    source = tf.data.Dataset.range(12)

    def check(x: Any) -> Any:
        return tf.debugging.check_numerics(tf.cast(x, tf.float32) / tf.cast(x - 5, tf.float32), "five")

    original = source.map(check).batch(4).ignore_errors()
    found = by_hand(original, source.batch(4).map(check).ignore_errors())
    assert failed(found) == {"values"}
    found = by_hand(source.map(check).ignore_errors().batch(4), source.batch(4).map(check).ignore_errors())
    assert failed(found) == {"values"}


def test_error_that_the_original_does_not_raise_is_unequal() -> None:
    source = tf.data.Dataset.range(12)
    found = by_hand(source, source.map(lambda x: tf.debugging.check_numerics(10 / (x - 5), "five") * 0 + 1))
    assert not found.equal
    found = by_hand(source, source.apply(tf.data.experimental.assert_cardinality(11)))
    assert "values" in failed(found)
    assert "InvalidArgumentError" in found.why or "cardinality" in failed(found)


def test_smaller_shuffle_buffer_is_unequal() -> None:
    """Both buffers are larger than the sample, so no element shows the difference."""
    dataset = tf.data.Dataset.range(5000).shuffle(4000).batch(8)
    assert failed(edited(dataset, SetArgument(node(dataset, "shuffle"), "buffer_size", 2000))) == {"shuffle"}


@pytest.mark.one_core
def test_random_map_made_parallel_is_not_exact() -> None:
    dataset = tf.data.Dataset.range(60).map(image_draw).batch(8)
    assert failed(edited(dataset, parallel(dataset, "map"))) == {"randomness"}


@pytest.mark.sample(1)
@pytest.mark.one_core
@pytest.mark.parametrize("safety", CLASSES)
def test_nondeterministic_order_is_unequal_except_for_reorders(safety: Safety) -> None:
    dataset = tf.data.Dataset.range(60).map(lambda x: x + 1, num_parallel_calls=2).batch(8)
    found = edited(dataset, SetArgument(node(dataset, "map"), "deterministic", False), safety=safety)
    assert failed(found) == {"determinism"}
    found = edited(dataset, SetOption("deterministic", False), safety=safety)
    assert failed(found) == {"options"}
    assert edited(dataset, SetOption("deterministic", False), safety=Safety.REORDERS).equal


def test_option_that_the_plan_does_not_set_is_unequal() -> None:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    dataset = tf.data.Dataset.range(10)
    found = by_hand(dataset, dataset.with_options(options))
    assert failed(found) == {"options"}
    assert "threading.private_threadpool_size: None became 3" in found.why


@pytest.mark.one_core
def test_lost_element_is_unequal_for_reorders() -> None:
    source = tf.data.Dataset.range(60)
    lost = source.filter(lambda x: x != 3).map(lambda x: x)
    kept = source.filter(lambda x: x >= 0).map(lambda x: x)
    assert failed(by_hand(kept.batch(8), lost.batch(8), Safety.REORDERS)) == {"values"}


@pytest.mark.parametrize(("factor", "equal"), [(1 + 1e-6, True), (1 + 1e-3, False)])
def test_approximate_has_a_tolerance(factor: float, equal: bool) -> None:
    source = tf.data.Dataset.range(20).map(lambda x: tf.cast(x, tf.float32))
    found = by_hand(source, source.map(lambda x: x * factor), Safety.APPROXIMATE)
    assert found.equal is equal
    assert not by_hand(source, source.map(lambda x: x * factor)).equal


def test_difference_at_the_end_of_the_data_is_found() -> None:
    """A sample of the first elements alone would miss it."""
    source = tf.data.Dataset.range(5000)
    found = by_hand(source.map(lambda x: x), source.map(lambda x: tf.minimum(x, tf.constant(4990, tf.int64))))
    assert failed(found) == {"values"}


@pytest.mark.parametrize("epoch_of", [1, 2])
def test_generator_that_differs_between_epochs_is_not_frozen(epoch_of: int) -> None:
    rounds = iter(range(100))

    def generate() -> Any:
        start = next(rounds) // epoch_of
        yield from range(start * 100, start * 100 + 20)

    dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64)).batch(4)
    assert failed(edited(dataset, cached(dataset, "from_generator"))) == {"epochs"}


@pytest.mark.parametrize(("seed", "count", "equal"), [(4, 2, False), (None, 2, True), (4, None, True)])
def test_seeded_shuffle_made_adjacent_to_a_repeat_is_unequal(seed: int | None, count: int | None, equal: bool) -> None:
    """TensorFlow fuses them, and the fused operator has a different order in later repetitions."""

    def doubled(x: Any) -> Any:
        return x * 2

    def ordered(dataset: Any) -> list[list[int]]:
        return [list(dataset.as_numpy_iterator()) for _ in range(2)]

    def shuffled() -> Any:
        return tf.data.Dataset.range(20).shuffle(10, seed=seed)

    if seed is not None and count is not None:
        one, other = (ordered(made) for made in (shuffled().map(doubled).repeat(2), shuffled().repeat(2).map(doubled)))
        assert one[0] == other[0] and one[1] != other[1], "TensorFlow still does"
    dataset = shuffled().map(doubled).repeat(count)
    found = edited(dataset, Move(node(dataset, "map"), node(dataset, "repeat")))
    assert ("shuffle" in failed(found)) is not equal
