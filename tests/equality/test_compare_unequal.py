"""Rewrites that change the data: each comparison must be unequal."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from pipetune.core.edits import Edit, Insert, Move, ReplaceFunction, Safety, SetArgument, SetOption
from pipetune.core.functions import FunctionVariant
from pipetune.core.results import Comparison
from pipetune.equality import sample
from pipetune.equality.compare import compare_datasets
from tests.equality.comparing import bucketed, edited, image_draw, node, one_file, write_shards

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

Dataset = tf.data.Dataset
EXACT, STATISTICAL, REORDERS = Safety.EXACT, Safety.STATISTICAL, Safety.REORDERS


def numbers(count: int = 60) -> Any:
    return Dataset.range(count)


same_numbers = functools.cache(numbers)  # which both pipelines share


def by_hand(original: Any, candidate: Any, safety: Safety = EXACT) -> Comparison:
    return compare_datasets(original, candidate, safety, elements=24)


def failed(comparison: Comparison) -> set[str]:
    return {check.name for check in comparison.checks if check.equal is False}


@pytest.mark.sample(1)
@pytest.mark.parametrize("op", [0, 1])
def test_one_of_two_draws_shared_by_a_batch_is_unequal(op: int) -> None:
    """The second draw, one per image, must not hide the difference."""

    def both(x: Any) -> Any:
        one, other = ([], tf.shape(x)) if op == 0 else (tf.shape(x), [])
        return tf.cast(x, tf.float32) + tf.random.uniform(one) + 10 * tf.random.uniform(other)

    source = numbers()
    found = by_hand(source.map(both).batch(6), source.batch(6).map(both), STATISTICAL)
    assert failed(found) == {"randomness"}, found
    assert "when only RandomUniform is random" in found.why


def flip(x: Any) -> Any:
    return x + tf.random.uniform(tf.shape(x), maxval=2, dtype=tf.int64)


@pytest.mark.sample(3)
@pytest.mark.parametrize("draw", [image_draw, flip])
@pytest.mark.parametrize("safety", [EXACT, STATISTICAL, list(Safety)[2]])
def test_cached_augmentation_is_unequal(safety: Safety, draw: Any) -> None:
    """Also where both outcomes occur with and without the cache, and only their positions are frozen."""
    dataset = numbers().map(draw).batch(8)
    found = edited(dataset, "cached map", safety=safety)
    assert failed(found) == {"epochs" if safety == EXACT else "randomness"}
    assert safety == EXACT or draw is flip or "over three epochs" in found.why


@pytest.mark.sample(1)
@pytest.mark.parametrize("draw", [image_draw, flip])
def test_cached_augmentation_is_unequal_where_take_ends_an_endless_repeat(draw: Any) -> None:
    dataset = numbers().map(draw).repeat().take(200).batch(8)
    assert failed(edited(dataset, "cached map", safety=STATISTICAL)) == {"randomness"}


def read_shards(pattern: str, cycle_length: int = 2, **arguments: Any) -> Any:
    files = Dataset.list_files(pattern)
    return files.interleave(tf.data.TFRecordDataset, cycle_length=cycle_length, block_length=1, **arguments)


@pytest.mark.parametrize(("behind", "safety"), [("interleave", EXACT), ("shuffle", STATISTICAL)])
def test_cache_after_list_files_is_unequal(behind: str, safety: Safety, tmp_path: pathlib.Path) -> None:
    dataset = read_shards(write_shards(tmp_path, records=10)).batch(4)
    assert failed(edited(dataset, f"cached {behind}", safety=safety)) == {"epochs"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("behind", "equal"), [("interleave", True), ("map", False)])
def test_frozen_order_is_equal_for_reorders_and_a_frozen_draw_is_not(
    behind: str, equal: bool, tmp_path: pathlib.Path
) -> None:
    dataset = read_shards(write_shards(tmp_path)).map(lambda r: (r, tf.random.uniform([]))).batch(4)
    found = edited(dataset, f"cached {behind}", safety=REORDERS)
    assert found.equal is found.proven is equal, found
    assert not equal or {"values", "epochs", "randomness"} <= {check.name for check in found.checks}


COUNT = tf.Variable(0)


def few(x: Any) -> Any:
    return x % 10 < 6


def asserted(dataset: Any) -> Any:
    return dataset.apply(tf.data.experimental.assert_cardinality(12))


@pytest.mark.parametrize(("make", "edit", "safety", "check"), [
    # a draw that cannot be made constant leaves the difference unexplained
    (lambda: numbers(40).map(lambda _: tf.random.categorical([[0.5, 0.5]], 1)).shuffle(50),
        "moved shuffle range", STATISTICAL, ""),
    (lambda: numbers(40).map(image_draw).shuffle(50), "moved shuffle range", EXACT, ""),
    (lambda: numbers(40).scan(0, lambda state, x: (state + 1, state)).skip(3), "moved skip range", EXACT, "values"),
    (lambda: numbers(40).map(lambda x: COUNT.assign_add(1)).skip(3), "moved skip range", EXACT, "values"),
    (lambda: numbers(40).map(image_draw).skip(3), "moved skip range", EXACT, "values"),
    pytest.param(lambda: numbers().interleave(tf.data.Dataset.range, 2, 1), SetArgument("n1", "cycle_length", 3), EXACT,
        "values", marks=pytest.mark.one_core),
    (lambda: numbers().shuffle(30).repeat().batch(8), "moved shuffle repeat", STATISTICAL, "epochs"),
    (lambda: numbers().batch(8).repeat(), "moved batch repeat", EXACT, "epochs"),
    (lambda: numbers().shuffle(100).batch(8), "cached shuffle", EXACT, "epochs"),
    (lambda: numbers().shuffle(100, seed=7).batch(8), "cached shuffle", STATISTICAL, "epochs"),
    (lambda: bucketed(numbers(2000).shuffle(60), 30), "cached map", EXACT, "epochs"),
    (lambda: one_file().shuffle(60).take(8).map(tf.negative), "cached map", REORDERS, ""),
    (lambda: numbers(20).repeat(2), SetArgument("n1", "count", 3), EXACT, ""),
    (lambda: numbers(20).repeat(2), SetArgument("n1", "count", -1), EXACT, ""),
    (lambda: numbers().shuffle(60).take(8).map(tf.negative), "cached map", REORDERS, ""),
    (lambda: numbers().filter(few).take(9), "moved take range", EXACT, ""),
    (lambda: numbers().enumerate().skip(3), "moved skip range", EXACT, ""),
    (lambda: numbers().shuffle(9, seed=2).filter(few), "moved filter range", EXACT, ""),
    # the number of elements that is asserted is checked behind what was skipped
    (lambda: asserted(numbers(12)).map(tf.negative).skip(3), "moved skip range", EXACT, ""),
    (lambda: numbers().map(lambda x: x + 1).batch(8), "removed map", EXACT, "values"),
    (lambda: numbers().map(lambda x: x + 1).batch(8), "removed map", REORDERS, "values"),
    # the same tensors in another structure
    (lambda: numbers().map(lambda x: [x]), "removed map", EXACT, ""),
    (lambda: Dataset.zip((numbers(), numbers().skip(1))).map(lambda a, b: (b, a)), "removed map", EXACT, ""),
    # an epoch is a pass over the whole, which ends although something in it is repeated
    (lambda: numbers(20).map(image_draw).repeat(3).batch(8), "cached repeat", EXACT, "epochs"),
    (lambda: numbers(20).map(image_draw).repeat().take(50).batch(8), "cached take", EXACT, "epochs"),
    (lambda: Dataset.zip((numbers(20).map(image_draw), numbers(3).repeat())).batch(8), "cached zip", EXACT, "epochs"),
    # the shuffle behind it hides the order of the pairs, not that they stay the same
    (lambda: Dataset.zip((numbers().shuffle(60), numbers())).shuffle(60), "cached zip", STATISTICAL, "epochs"),
    # both buffers are larger than the sample, so no element shows the difference
    (lambda: numbers(5000).shuffle(4000).batch(8), SetArgument("n1", "buffer_size", 2000), EXACT, "shuffle"),
    pytest.param(
        lambda: numbers().map(image_draw).batch(8), "parallel map", EXACT, "randomness", marks=pytest.mark.one_core
    ),
])  # fmt: skip
def test_changed_data_is_unequal(make: Callable[[], Any], edit: Edit | str, safety: Safety, check: str) -> None:
    dataset = make()
    found = edited(dataset, edit, safety=safety)
    assert not found.equal and (not check or failed(found) == {check})
    assert COUNT.numpy() == 0, "the user's variable moved"


def shared(x: Any) -> Any:
    return x + tf.random.uniform([], maxval=2, dtype=tf.int64)


def but_five(x: Any) -> Any:
    checked = tf.debugging.check_numerics(tf.cast(x, tf.float32) / tf.cast(x - 5, tf.float32), "five")
    return x + 0 * tf.cast(checked, x.dtype)


def frozen_draw(x: Any) -> Any:
    return tf.cast(x, tf.float32) + 0.5 + 0 * tf.random.normal([])


def map_last() -> Any:
    return numbers(12).batch(4).map(but_five).ignore_errors()


@pytest.mark.parametrize(("original", "candidate", "safety", "check"), [
    (lambda: numbers().map(image_draw).batch(8), lambda: numbers().batch(8).map(image_draw), EXACT, "values"),
    (lambda: numbers().map(shared).batch(6), lambda: numbers().batch(6).map(shared), STATISTICAL, "randomness"),
    (lambda: numbers(12).map(but_five).batch(4).ignore_errors(), map_last, EXACT, "values"),
    (lambda: numbers(12).map(but_five).ignore_errors().batch(4), map_last, EXACT, "values"),
    (lambda: numbers(12), lambda: numbers(12).map(but_five), EXACT, "values"),  # an error that it does not raise
    pytest.param(  # a lost element
        lambda: numbers().filter(lambda x: x >= 0).map(lambda x: x).batch(8),
        lambda: numbers().filter(lambda x: x != 3).map(lambda x: x).batch(8),
        REORDERS, "values", marks=pytest.mark.one_core,
    ),
])  # fmt: skip
def test_dataset_with_other_data_is_unequal(
    original: Callable[[], Any], candidate: Callable[[], Any], safety: Safety, check: str
) -> None:
    assert failed(by_hand(original(), candidate(), safety)) == {check}


WHOLE = {"batch_size": 16, "drop_remainder": True}


@pytest.mark.parametrize(("make", "one", "other", "safety"), [
    # more than `drop_remainder` drops in another order
    (lambda f: same_numbers().map(f).batch(**WHOLE), tf.identity, lambda x: tf.where(x % 3 == 0, -x, x), REORDERS),
    # no more than it drops, of rows that nobody can count beforehand
    (lambda f: same_numbers().map(f).filter(lambda x: x > -9).batch(**WHOLE),
        tf.identity, lambda x: tf.where(x < 9, -x, x), REORDERS),
    # all but one row of the only batch
    (lambda f: same_numbers().map(f).filter(few).batch(**WHOLE).map(tf.negative),
        tf.identity, lambda x: tf.where(x == 5, x, x + 100), REORDERS),
    # draws that copies of one element do not show: too few for a batch, or all filtered out
    (lambda f: same_numbers(600).map(f).batch(400, drop_remainder=True), image_draw, frozen_draw, STATISTICAL),
    (lambda f: same_numbers().map(f).filter(lambda x: x > 10), image_draw, frozen_draw, STATISTICAL),
])  # fmt: skip
def test_other_function_is_unequal(make: Callable[[Any], Any], one: Any, other: Any, safety: Safety) -> None:
    assert failed(by_hand(make(one), make(other), safety)) == {"values" if safety == REORDERS else "randomness"}


@pytest.mark.parametrize("count", [40, 5000])
def test_difference_at_the_end_of_the_data_is_found(count: int) -> None:
    """A sample of the first elements alone would miss it, also where all of them are recorded and not all served."""
    source, most = numbers(count), tf.constant(count - 10, tf.int64)
    found = by_hand(source.map(lambda x: x), source.map(lambda x: tf.minimum(x, most)))
    assert failed(found) == {"values"}


@pytest.mark.parametrize("batch", [2, 128])
def test_function_that_mixes_rows_is_unequal_by_generated_elements(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where batches are small, or larger than all that is generated, none of the 41 is left out."""
    monkeypatch.setattr(sample, "_MAX_BYTES", 41 * 6 * 4)
    zeros = Dataset.from_tensor_slices(tf.zeros([260, 6]))
    dataset = zeros.map(lambda x: tf.where(tf.reduce_any(tf.math.is_nan(x)), tf.zeros_like(x), x)).batch(batch)
    found = edited(dataset, Move("n1", "n2"), ReplaceFunction("n1", FunctionVariant.ON_BATCHES, ""))
    assert failed(found) == {"generated inputs"}


@pytest.mark.sample(4)
@pytest.mark.parametrize("safety", list(Safety))
@pytest.mark.parametrize(("argument", "value"), [("batch_size", 9), ("drop_remainder", True)])
def test_other_batches_are_unequal(argument: str, value: int, safety: Safety) -> None:
    known = numbers() if argument == "batch_size" else numbers().filter(lambda x: x >= 0)
    dataset = known.batch(8)
    assert not edited(dataset, SetArgument(node(dataset, "batch"), argument, value), safety=safety).equal


@pytest.mark.parametrize("size", [5, 59, 60])
@pytest.mark.parametrize("reshuffled", [True, False])
def test_cache_behind_a_shuffle_that_the_next_one_does_not_settle(size: int, reshuffled: bool) -> None:
    """Only a shuffle of all elements, in each epoch another one, hides in which order it gets them."""
    dataset = numbers().shuffle(60).map(lambda x: x + 1)
    dataset = dataset.shuffle(size, reshuffle_each_iteration=reshuffled).batch(8)
    assert edited(dataset, "cached map", safety=STATISTICAL).equal is (size == 60 and reshuffled)
    assert not edited(dataset, "cached map").equal


@pytest.mark.parametrize("between", [
    lambda one: one.batch(4),
    lambda one: one.enumerate(),
    lambda one: one.take(30),
    lambda one: Dataset.zip((one, numbers().shuffle(60).map(lambda x: -x).shuffle(60))),
    lambda one: one.map(lambda x: tf.cast(x, tf.float32) + tf.random.uniform([], seed=1)),
])  # fmt: skip
def test_cache_of_one_order_that_shows_behind_the_shuffle(between: Callable[[Any], Any]) -> None:
    """What differs from epoch to epoch with the order of the elements, and would not any more."""
    mapped = numbers().shuffle(60).map(lambda x: x + 1)
    plan = Insert(node(mapped, "map"), "cache", "cache@1")
    assert not edited(between(mapped).shuffle(60), plan, safety=STATISTICAL).equal


def test_asserted_cardinality_that_is_wrong_is_unequal() -> None:
    found = by_hand(numbers(12), numbers(12).apply(tf.data.experimental.assert_cardinality(11)))
    assert "values" in failed(found)
    assert "InvalidArgumentError" in found.why or "cardinality" in failed(found)


@pytest.mark.sample(1)
@pytest.mark.one_core
@pytest.mark.parametrize("safety", [EXACT, STATISTICAL])
def test_nondeterministic_order_is_unequal_except_for_reorders(safety: Safety) -> None:
    dataset = numbers().map(lambda x: x + 1, num_parallel_calls=2).batch(8)
    found = edited(dataset, SetArgument(node(dataset, "map"), "deterministic", False), safety=safety)
    assert failed(found) == {"determinism"}
    found = edited(dataset, SetOption("deterministic", False), safety=safety)
    assert failed(found) == {"options"} and edited(dataset, SetOption("deterministic", False), safety=REORDERS).equal


def test_option_that_the_plan_does_not_set_is_unequal() -> None:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    found = by_hand(numbers(10), numbers(10).with_options(options))
    assert failed(found) == {"options"} and "threading.private_threadpool_size: None became 3" in found.why


@pytest.mark.parametrize(("factor", "equal"), [(1 + 1e-6, True), (1 + 1e-3, False)])
def test_approximate_has_a_tolerance(factor: float, equal: bool) -> None:
    source = numbers(20).map(lambda x: tf.cast(x, tf.float32))
    assert by_hand(source, source.map(lambda x: x * factor), Safety.APPROXIMATE).equal is equal
    assert not by_hand(source, source.map(lambda x: x * factor)).equal


@pytest.mark.parametrize("epoch_of", [1, 2])
def test_generator_that_differs_between_epochs_is_not_frozen(epoch_of: int) -> None:
    rounds = iter(range(100))

    def generate() -> Any:
        start = next(rounds) // epoch_of
        yield from range(start * 100, start * 100 + 20)

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64)).batch(4)
    assert failed(edited(dataset, "cached from_generator")) == {"epochs"}


@pytest.mark.parametrize(("seed", "count", "equal"), [(4, 2, False), (None, 2, True), (4, None, True)])
def test_seeded_shuffle_made_adjacent_to_a_repeat_is_unequal(seed: int | None, count: int | None, equal: bool) -> None:
    """TensorFlow fuses them, and the fused operator has a different order in later repetitions."""
    dataset = numbers(20).shuffle(10, seed=seed).map(tf.negative).repeat(count)
    if seed is not None and count is not None:
        adjacent = numbers(20).shuffle(10, seed=seed).repeat(count).map(tf.negative)
        one, other = ([list(made.as_numpy_iterator()) for _ in range(2)] for made in (dataset, adjacent))
        assert one[0] == other[0] and one[1] != other[1], "TensorFlow still does"
    assert ("shuffle" in failed(edited(dataset, "moved map repeat"))) is not equal
