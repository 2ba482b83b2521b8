"""Counts of the elements that workers receive: never, once, twice; equal elements do not count as repeated."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.distribution import Coverage, ElementIdentity, WorkerShare
from pipetune.model import coverage
from pipetune.model.coverage import AutoShardPolicy, DeliveryCounts, computed_coverage, worst_coverage

WANTED = Counter(range(6))


def of_two(first: list[int], second: list[int], **options: object) -> Coverage:
    return worst_coverage([WANTED], [[Counter(first)], [Counter(second)]], told_by=ElementIdentity.INDEX, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "came", "expected"),
    [
        ("abc", "abbccc", DeliveryCounts(once=1, twice=1, more_than_twice=1)),
        # equal elements: both received once; one not received; one received at least twice
        ("aab", "aab", DeliveryCounts(once=3)),
        ("aab", "ab", DeliveryCounts(never=1, once=2)),
        ("aab", "aaab", DeliveryCounts(once=2, twice=1)),
        ("aab", "aaaab", DeliveryCounts(once=1, twice=2)),
        ("aaa", "aaaaaaaaaa", DeliveryCounts(more_than_twice=3)),
    ],
)
def test_delivery_counts(wanted: str, came: str, expected: DeliveryCounts) -> None:
    assert coverage.count_deliveries(Counter(map(ord, wanted)), Counter(map(ord, came))) == expected


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 4)), st.lists(st.integers(0, 12)))
def test_every_element_is_counted_once(wanted: dict[int, int], came: list[int]) -> None:
    found = coverage.count_deliveries(wanted, Counter(came))
    assert found.never + found.once + found.twice + found.more_than_twice == sum(wanted.values())
    assert found.unexpected == sum(key not in wanted for key in came)
    missing, surplus = Counter(wanted) - Counter(came), Counter(came) - Counter(wanted)
    assert found.never == missing.total()  # also with equal elements: no more than are certainly missing
    assert (found.not_once > 0) == bool(missing or surplus)


@pytest.mark.parametrize(
    ("elements", "size", "drop", "expected"),
    [(12, 4, False, (3, 0)), (13, 4, False, (4, 1)), (13, 4, True, (3, 0)), (3, 4, True, (0, 0)), (0, 4, True, (0, 0))],
)
def test_batch_counts(elements: int, size: int, drop: bool, expected: tuple[int, int]) -> None:
    assert coverage.count_batches(elements, size, drop_remainder=drop) == expected


def test_coverage_of_complete_division() -> None:
    found = of_two([0, 2, 4], [1, 3, 5])
    assert found.complete and (found.never, found.once, found.twice, found.idle_workers) == (0, 6, 0, ())
    assert [worker.cells for worker in found.workers] == [(1, 0, 1, 0, 1, 0), (0, 1, 0, 1, 0, 1)]
    assert found.cells == (1,) * 6 and not found.by_file


def test_all_elements_to_all_workers_and_idle_worker() -> None:
    both = of_two(list(range(6)), list(range(6)))
    assert (both.never, both.once, both.twice, both.repeated) == (0, 0, 6, 6) and not both.complete
    one = of_two(list(range(6)), [])
    assert one.complete and one.idle_workers == (1,)
    assert of_two([], []).idle_workers == (), "where nobody gets anything nobody idles"


def test_worst_worker_counts_if_each_should_get_everything_and_so_does_the_worst_epoch() -> None:
    found = of_two(list(range(6)), [0, 1, 2, 3, 3], each_everything=True)
    assert (found.never, found.once, found.twice) == (2, 3, 1)
    assert of_two(list(range(6)), list(range(6)), each_everything=True).complete
    workers = [[Counter({0: 1, 1: 1}), Counter({0: 1})], [Counter({2: 1}), Counter({0: 1})]]
    found = worst_coverage([Counter(range(3))] * 2, workers, told_by=ElementIdentity.DIGEST)
    assert (found.never, found.once, found.twice, found.epochs) == (2, 0, 1, 2)
    assert [worker.elements for worker in found.workers] == [1, 1]


def test_cells_are_files_if_there_are_few() -> None:
    found = of_two([0, 1, 5], [2, 3, 4], files=(2, 3, 1))
    assert found.by_file and found.cells == (2, 3, 1) and found.files == 3
    assert [worker.cells for worker in found.workers] == [(2, 0, 1), (0, 3, 0)]
    assert not of_two([0, 1, 2], [3, 4, 5], files=(6,)).by_file, "one file is no division"
    other = of_two([0, 1, 2], [3, 4, 5], files=(2, 3))
    assert not other.by_file and other.files == 0, "these files hold other elements"
    many = worst_coverage([dict.fromkeys(range(60), 1)], [[{}]], told_by=ElementIdentity.INDEX, files=(1,) * 60)
    assert not many.by_file and many.files == 60 and len(many.cells) < 60, "too many to be shown apart"


@given(st.lists(st.integers(1, 3), max_size=60), st.integers(1, 10))
def test_cells_contain_all_elements(equal: list[int], most: int) -> None:
    wanted = dict(enumerate(equal))
    found = coverage.divide_into_cells(wanted, max_cells=most)
    assert sum(found.sizes) == sum(equal) and len(found.sizes) <= most
    assert sum(found.count(wanted)) == sum(equal)
    assert list(found.of_key.values()) == sorted(found.of_key.values())
    assert found.count({99: 4}) == (0,) * len(found.sizes), "what is not of the data lies nowhere"


def test_properties_derived_from_worker_shares() -> None:
    def shares(*workers: WorkerShare) -> Coverage:
        return Coverage(workers, "elements", ElementIdentity.INDEX, 6, 0, 6, 0, 0)

    uneven = shares(WorkerShare(4, 2, 0, 6), WorkerShare(2, 1, 1, 6))
    assert (uneven.first_out, uneven.short_batches, uneven.read_over_used) == (1, 1, 2.0)
    assert replace(uneven, workers=(WorkerShare(9, 9), WorkerShare(5, 5)), replicas_per_worker=2).first_out == 3
    unknown = shares(WorkerShare(4, 2, 0, 6), WorkerShare(2))
    assert (unknown.first_out, unknown.short_batches, unknown.read_over_used) == (None, None, None)


POLICIES = st.sampled_from([AutoShardPolicy.DATA, AutoShardPolicy.OFF, None])


@given(st.integers(0, 120), st.integers(1, 9), st.integers(1, 4), st.integers(1, 2), POLICIES, st.booleans())
def test_computed_coverage_equals_count_of_elements(
    elements: int, batch: int, workers: int, replicas: int, policy: AutoShardPolicy | None, known: bool
) -> None:
    job = {"workers": workers, "replicas_per_worker": replicas, "policy": policy, "batch_size_known": known}
    found = computed_coverage(elements, batch, **job)  # type: ignore[arg-type]
    batches = [list(coverage.worker_batches(elements, batch, worker=one, **job)) for one in range(workers)]  # type: ignore[arg-type]
    received = [[Counter(number for part in mine for number in part)] for mine in batches]
    counted = worst_coverage([Counter(range(elements))], received, told_by=ElementIdentity.INDEX)
    for name in ("elements", "never", "once", "twice", "oftener", "cells", "idle_workers"):
        assert getattr(found, name) == getattr(counted, name), name
    for one, other in zip(found.workers, counted.workers, strict=True):
        assert (one.elements, one.cells) == (other.elements, other.cells)
    assert [one.batches for one in found.workers] == list(map(len, batches))


def test_twelve_elements_of_guide_by_data() -> None:
    found = computed_coverage(12, 4, workers=2, policy=AutoShardPolicy.DATA)
    assert found.complete and found.told_by is ElementIdentity.ARITHMETIC and found.read_over_used == 2.0
    assert [(one.elements, one.batches, one.short_batches) for one in found.workers] == [(6, 3, 0)] * 2
    assert found.workers[0].cells == (1, 1, 0, 0) * 3


@pytest.mark.parametrize(
    ("counts", "rows", "replicas", "expected"),
    [
        ([8, 8], 4, 1, (0, 0)),
        ([9, 8], 4, 1, (1, 3)),
        ([33], 2, 2, (1, 3)),  # steps of 4: the last step would have a full batch of 2 and one of 1
        ([34], 2, 2, (2, 2)),  # the last batch of 2 is for one of two replicas: that step is not taken
    ],
)
def test_dropped_elements_and_padding_rows(
    counts: list[int], rows: int, replicas: int, expected: tuple[int, int]
) -> None:
    assert coverage.epoch_remainder(counts, rows, replicas_per_worker=replicas) == expected
