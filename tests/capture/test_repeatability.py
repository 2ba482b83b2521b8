"""What a script leaves to chance is the same in every process."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.repeatability import repeatable, with_seeds


def test_draws_without_seeds_are_the_same_in_every_process() -> None:
    original, draws = np.random.default_rng, []
    for _ in range(2):
        random.random(), np.random.random()
        tf.random.set_seed(None)  # forgets the kernels of earlier draws, as in a new process
        with repeatable(until=lambda: False):
            drawn: list[Any] = [np.random.default_rng().integers(1_000_000) for _ in range(2)]
            assert drawn[0] != drawn[1]
            seeded = np.random.default_rng(5), np.random.default_rng(seed=5), original(5)
            assert len({generator.integers(1_000_000) for generator in seeded}) == 1
            drawn += [random.random(), np.random.randint(1_000_000), tf.random.shuffle(tf.range(99)).numpy().tolist()]
        draws.append(drawn)
    assert draws[0] == draws[1] and np.random.default_rng is original


def test_lists_of_files_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.io.gfile, "glob", lambda pattern: ["b/2", "a/1", pattern])
    with repeatable(until=lambda: True):
        assert tf.io.gfile.glob("a/*") == ["a/*", "a/1", "b/2"]
    assert tf.io.gfile.glob("a/*") == ["b/2", "a/1", "a/*"]


def test_layers_adapt_to_the_same_part_of_shuffled_data_in_every_process() -> None:
    def part() -> Any:
        numbers = tf.data.Dataset.range(40).shuffle(40, reshuffle_each_iteration=False)
        return numbers.skip(30).shuffle(10).map(lambda x: x * 2).batch(3)

    def read(dataset: Any) -> list[int]:
        return [int(number) for batch in dataset for number in batch]

    assert read(with_seeds(part())) == read(with_seeds(part())) != list(range(60, 80, 2))
    assert len(read(with_seeds(part()))) == 10 and with_seeds(part()).element_spec == part().element_spec
    for kept in (tf.data.Dataset.range(4).shuffle(4, seed=1), tf.data.Dataset.range(4), part().cache()):
        assert with_seeds(kept) is kept
