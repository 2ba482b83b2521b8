"""Caches that are filled before windows read them: with all elements, or with a part of them."""

from __future__ import annotations

import time
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Insert, apply_edits
from pipetune.core.measurement import RunFailed
from pipetune.measure.caches import filled, with_full_caches
from pipetune.measure.profiler import profile_input
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay_nodes

Dataset = tf.data.Dataset


class Reads:
    """Numbers, each of which is counted and takes its time, as files do that are read and decoded."""

    def __init__(self, count: int, *, seconds: float = 0.0) -> None:
        self.taken, self._seconds = 0, seconds
        self.dataset = Dataset.range(count).map(
            lambda x: tf.ensure_shape(tf.numpy_function(self._read, [x], tf.int64), []), num_parallel_calls=2
        )

    def _read(self, number: Any) -> Any:
        self.taken += 1
        time.sleep(self._seconds)
        return number


def unknown(dataset: Any) -> Any:
    return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.UNKNOWN_CARDINALITY))


def test_a_cache_that_takes_too_long_gets_a_part_which_is_repeated() -> None:
    reads = Reads(500, seconds=0.01)
    source = live.read(reads.dataset.cache().shuffle(8).batch(2))
    full = with_full_caches(source, seconds=0.4)
    part = full.live
    assert 4 <= reads.taken < 300 and 1 < full.seconds < 12 and not full.at_least
    before = reads.taken
    seen = {int(x) for batch in part.dataset.take(300) for x in batch}
    assert reads.taken == before and seen < set(range(300))
    costs = {one.node: one for one in profile_input(part, seconds=0.2, full_caches=True).operators}
    assert reads.taken == before
    assert [one for one in ("n0", "n1", "n2", "n3", "n4") if costs[one].elements] == ["n2", "n3", "n4"]


@pytest.mark.parametrize(("count", "seconds", "is_part"), [(120, 20.0, False), (2000, 0.2, True)])
def test_a_cache_of_unknown_length_is_filled_as_far_as_the_time_goes(count: int, seconds: float, is_part: bool) -> None:
    reads = Reads(count, seconds=0.01)
    full = with_full_caches(live.read(reads.dataset.filter(lambda x: x >= 0).cache().batch(2)), seconds=seconds)
    assert full.at_least is is_part and (reads.taken < count) is is_part
    assert (int(full.live.dataset.cardinality()) == tf.data.INFINITE_CARDINALITY) is is_part


def test_where_repeated_elements_do_not_stand_for_all_nothing_is_repeated() -> None:
    unique = Reads(500, seconds=0.01).dataset.cache().unique()
    with pytest.raises(RunFailed, match="would take about"):
        with_full_caches(live.read(unique), seconds=0.4)


def test_a_cache_behind_a_part_gets_no_more_than_there_is() -> None:
    reads = Reads(400, seconds=0.01)
    source = live.read(reads.dataset.cache().map(lambda x: x + 1).cache().batch(2))
    part = with_full_caches(source, seconds=0.4).live
    before = reads.taken
    assert len(list(part.dataset.take(500))) == 500 and reads.taken == before


def test_a_cache_that_is_filled_whole_stays_full_where_a_later_one_gets_a_part() -> None:
    quick, slow = Reads(20), Reads(500, seconds=0.01)
    source = live.read(Dataset.zip((quick.dataset, slow.dataset)))  # to which an edit adds both caches
    edited = apply_edits(source.pipeline, [Insert(node, "cache", f"cache@{node}") for node in ("n1", "n3")])
    caches = [node.id for node in edited if node.op == "cache"]
    part = filled(source, edited, replay_nodes(source, edited), caches, seconds=0.4).live
    assert quick.taken >= 20 and slow.taken < 400
    before = quick.taken, slow.taken
    assert len(list(part.dataset)) == 20 and (quick.taken, slow.taken) == before


def test_filling_ends_where_memory_does() -> None:
    with pytest.raises(RunFailed, match="more than fits into memory"):
        with_full_caches(live.read(Reads(64).dataset.cache()), seconds=9, most_bytes=1.0)


def test_filling_ends_where_its_time_does() -> None:
    source = live.read(Reads(500, seconds=0.01).dataset.filter(lambda x: x >= 0).cache().unique())
    with pytest.raises(RunFailed, match="took longer"):
        with_full_caches(source, seconds=0.3)
