"""Counting what workers were given: never, once, twice, and whose it is; equal elements are not called repeated."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.coverage import Coverage, Identity, WorkerShare
from pipetune.model.coverage import Times, batches, cells, coverage, times

WANTED = Counter(range(6))


def of_two(first: list[int], second: list[int], **options: object) -> Coverage:
    return coverage([WANTED], [[Counter(first)], [Counter(second)]], told_by=Identity.NUMBER, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "came", "expected"),
    [
        ("abc", "abc", Times(once=3)),
        ("abc", "ab", Times(never=1, once=2)),
        ("abc", "abbccc", Times(once=1, twice=1, oftener=1)),
        ("abc", "abcd", Times(once=3, foreign=1)),
        ("", "", Times()),
        # equal elements: both came once; one of them did not come; one came twice at least
        ("aab", "aab", Times(once=3)),
        ("aab", "ab", Times(never=1, once=2)),
        ("aab", "aaab", Times(once=2, twice=1)),
        ("aab", "aaaab", Times(once=1, twice=2)),
        ("aaa", "aaaaaaaaaa", Times(oftener=3)),
    ],
)
def test_times(wanted: str, came: str, expected: Times) -> None:
    assert times(Counter(map(ord, wanted)), Counter(map(ord, came))) == expected


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 4)), st.lists(st.integers(0, 12)))
def test_every_element_is_counted_once(wanted: dict[int, int], came: list[int]) -> None:
    found = times(wanted, Counter(came))
    assert found.never + found.once + found.twice + found.oftener == sum(wanted.values())
    assert found.foreign == sum(key not in wanted for key in came)
    missing, surplus = Counter(wanted) - Counter(came), Counter(came) - Counter(wanted)
    assert found.never == missing.total()  # with equal elements too: not one more than certainly did not come
    assert (found.wrong > 0) == bool(missing or surplus)


@pytest.mark.parametrize(
    ("elements", "size", "drop", "expected"),
    [(12, 4, False, (3, 0)), (13, 4, False, (4, 1)), (13, 4, True, (3, 0)), (3, 4, True, (0, 0)), (0, 4, True, (0, 0))],
)
def test_batches(elements: int, size: int, drop: bool, expected: tuple[int, int]) -> None:
    assert batches(elements, size, drop_remainder=drop) == expected


def test_a_clean_division() -> None:
    found = of_two([0, 2, 4], [1, 3, 5])
    assert found.complete and (found.never, found.once, found.twice) == (0, 6, 0)
    assert found.idle_workers == ()
    assert [worker.cells for worker in found.workers] == [(1, 0, 1, 0, 1, 0), (0, 1, 0, 1, 0, 1)]
    assert found.cells == (1,) * 6 and not found.by_file


def test_everything_to_everyone_and_nothing_to_one() -> None:
    both = of_two(list(range(6)), list(range(6)))
    assert (both.never, both.once, both.twice, both.repeated) == (0, 0, 6, 6) and not both.complete
    one = of_two(list(range(6)), [])
    assert one.complete and one.idle_workers == (1,)
    assert of_two([], []).idle_workers == (), "where nobody gets anything nobody idles"


def test_where_each_is_to_get_everything_the_worst_worker_counts() -> None:
    found = of_two(list(range(6)), [0, 1, 2, 3, 3], each_everything=True)
    assert (found.never, found.once, found.twice) == (2, 3, 1)
    assert of_two(list(range(6)), list(range(6)), each_everything=True).complete


def test_the_worst_epoch_counts() -> None:
    workers = [[Counter({0: 1, 1: 1}), Counter({0: 1})], [Counter({2: 1}), Counter({0: 1})]]
    found = coverage([Counter(range(3))] * 2, workers, told_by=Identity.DIGEST)
    assert (found.never, found.once, found.twice, found.epochs) == (2, 0, 1, 2)
    assert [worker.elements for worker in found.workers] == [1, 1]


def test_a_picture_shows_files_where_they_are_few() -> None:
    found = of_two([0, 1, 5], [2, 3, 4], files=(2, 3, 1))
    assert found.by_file and found.cells == (2, 3, 1) and found.files == 3
    assert [worker.cells for worker in found.workers] == [(2, 0, 1), (0, 3, 0)]
    assert not of_two([0, 1, 2], [3, 4, 5], files=(6,)).by_file, "one file is no division"
    other = of_two([0, 1, 2], [3, 4, 5], files=(2, 3))
    assert not other.by_file and other.files == 0, "these files hold other elements"
    many = coverage([dict.fromkeys(range(60), 1)], [[{}]], told_by=Identity.NUMBER, files=(1,) * 60)
    assert not many.by_file and many.files == 60 and len(many.cells) < 60, "too many to be shown apart"


@given(st.lists(st.integers(1, 3), max_size=60), st.integers(1, 10))
def test_stretches_hold_all_there_is(equal: list[int], most: int) -> None:
    wanted = dict(enumerate(equal))
    found = cells(wanted, most=most)
    assert sum(found.sizes) == sum(equal) and len(found.sizes) <= most
    assert sum(found.of(wanted)) == sum(equal)
    assert list(found.of_key.values()) == sorted(found.of_key.values())
    assert found.of({99: 4}) == (0,) * len(found.sizes), "what is not of the data lies nowhere"


def test_what_follows_from_the_shares() -> None:
    def shares(*workers: WorkerShare) -> Coverage:
        return Coverage(workers, "elements", Identity.NUMBER, 6, 0, 6, 0, 0)

    uneven = shares(WorkerShare(4, 2, 0, 6), WorkerShare(2, 1, 1, 6))
    assert (uneven.first_out, uneven.short_batches, uneven.read_over_used) == (1, 1, 2.0)
    assert replace(uneven, workers=(WorkerShare(9, 9), WorkerShare(5, 5)), replicas_per_worker=2).first_out == 3
    unknown = shares(WorkerShare(4, 2, 0, 6), WorkerShare(2))
    assert (unknown.first_out, unknown.short_batches, unknown.read_over_used) == (None, None, None)
