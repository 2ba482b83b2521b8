"""Bytes read and bytes used by workers, for elements of different sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity
from pipetune.model.coverage import StoredBytes, worst_coverage

BITS = 4
KEYS = {0: 10, 1: 90, 16: 5, 17: 15, 32: 40}  # two elements in each of two files, one in a third
WANTED = dict.fromkeys(KEYS, 1)
FILES = StoredBytes(KEYS, file_sizes=(100, 20, 50), file_index_shift=BITS)  # 10 bytes of the last are of no element


def of(*workers: dict[int, int], stored: StoredBytes | None = FILES, reads_all: bool = False) -> Coverage:
    given = [[worker] for worker in workers]
    return worst_coverage([WANTED], given, told_by=ElementIdentity.INDEX, stored=stored, reads_all=reads_all)


def counts(*keys: int) -> dict[int, int]:
    return dict.fromkeys(keys, 1)


@pytest.mark.parametrize(
    ("workers", "reads_all", "expected"),
    [
        ([counts(0, 1, 32), counts(16, 17)], False, [(150, 140), (20, 20)]),  # by file
        ([counts(0, 16, 32), counts(1, 17)], True, [(170, 55), (170, 105)]),  # by element
        ([WANTED, WANTED], True, [(170, 160), (170, 160)]),  # all elements to both
        ([counts(0, 16), counts(0, 16)], False, [(120, 15), (120, 15)]),  # the same part for both
        ([WANTED, {}], False, [(170, 160), (0, 0)]),  # one idle worker
        ([{0: 2, 1: 1}, {}], False, [(100, 110), (0, 0)]),  # an element received twice is used twice and read once
    ],
)
def test_bytes_read_and_used_by_each_worker(
    workers: list[dict[int, int]], reads_all: bool, expected: list[tuple[int, int]]
) -> None:
    found = of(*workers, reads_all=reads_all)
    assert [(one.read_bytes, one.used_bytes) for one in found.workers] == expected
    read, used = map(sum, zip(*expected, strict=True))
    assert (found.read_bytes, found.used_bytes, found.bytes_read_over_used) == (read, used, read / used)


def test_ratios_of_elements_and_of_bytes_differ() -> None:
    found = of(counts(0, 16), {}, reads_all=True)
    read = replace(found, workers=tuple(replace(one, read=5) for one in found.workers))
    assert (read.read_over_used, read.bytes_read_over_used) == (5.0, 340 / 15)


def test_early_end_stops_reading_after_last_element() -> None:
    early = replace(FILES, ends_early=True)
    found = of(counts(0), counts(16, 17), stored=early)
    assert [one.read_bytes for one in found.workers] == [10, 20]
    assert [one.read_bytes for one in of(counts(0), {}, stored=early, reads_all=True).workers] == [160, 160]


@pytest.mark.parametrize("stored", [None, replace(FILES, bytes_by_key={0: 10})])
def test_unknown_size_of_one_element_makes_total_unknown(stored: StoredBytes | None) -> None:
    found = of(counts(0), counts(16), stored=stored)
    assert found.used_bytes is None and found.bytes_read_over_used is None
    assert of(counts(0), counts(16), stored=replace(FILES, file_index_shift=None)).read_bytes is None, "which files?"
    assert of({}, {}).bytes_read_over_used is None, "nothing is used"


def test_elements_of_equal_share_sum_up_to_file() -> None:
    thirds = StoredBytes(dict.fromkeys(range(3), 100 / 3), file_sizes=(100,), file_index_shift=BITS)
    assert (thirds.used_bytes(counts(0, 1, 2)), thirds.used_bytes(counts(1))) == (100, 33)
