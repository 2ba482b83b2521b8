"""What TensorFlow does with caches, on which the legality of `cache` rests."""

from __future__ import annotations

from collections import Counter

import pytest
import tensorflow as tf


def _counted(counts: Counter[str], name: str, size: int) -> tf.data.Dataset:
    def count(value: int) -> int:
        counts[name] += 1
        return value

    return tf.data.Dataset.range(size).map(lambda value: tf.numpy_function(count, [value], tf.int64)).cache()


@pytest.mark.parametrize("turned", [False, True])
def test_zip_fills_the_caches_of_inputs_that_end_together(turned: bool) -> None:
    counts: Counter[str] = Counter()
    parts = [_counted(counts, "a", 10), _counted(counts, "b", 10).shuffle(3)]
    dataset = tf.data.Dataset.zip(tuple(parts[::-1] if turned else parts))
    for _ in range(3):
        assert sum(1 for _ in dataset) == 10
    assert counts == {"a": 10, "b": 10}


def test_zip_fills_no_cache_of_an_input_that_ends_after_another() -> None:
    counts: Counter[str] = Counter()
    dataset = tf.data.Dataset.zip((tf.data.Dataset.range(9), _counted(counts, "longer", 12)))
    for _ in range(3):
        assert sum(1 for _ in dataset) == 9
    assert counts["longer"] == 3 * 10  # a tenth is asked for when the other one ends, and the twelfth never


def test_branches_that_share_a_cache_each_fill_it_once() -> None:
    counts: Counter[str] = Counter()
    shared = _counted(counts, "shared", 10)
    dataset = tf.data.Dataset.zip((shared.shuffle(3), shared.map(lambda value: value + 1).shuffle(20)))
    for _ in range(3):
        assert sorted(int(one) for one, _ in dataset) == list(range(10))
    assert counts["shared"] == 20


@pytest.mark.parametrize("known", [False, True])
def test_resampling_fills_a_cache_in_the_first_epoch(known: bool) -> None:
    counts: Counter[str] = Counter()
    shared = _counted(counts, "shared", 100).map(lambda value: tf.cast(tf.reshape(value, ()) % 5 == 0, tf.int32))
    dataset = shared.rejection_resample(lambda label: label, [0.5, 0.5], initial_dist=[0.8, 0.2] if known else None)
    first = sum(1 for _ in dataset)
    filled = counts["shared"]
    assert first and all(sum(1 for _ in dataset) for _ in range(3))
    assert counts["shared"] == filled >= 100
