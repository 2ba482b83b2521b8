"""Bytes that are read beside bytes that are used, of elements that are not of one size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.coverage import Coverage, Identity
from pipetune.model.coverage import coverage
from pipetune.model.stored import Stored

BITS = 4
KEYS = {0: 10, 1: 90, 16: 5, 17: 15, 32: 40}  # two elements in each of two files, one in a third
WANTED = dict.fromkeys(KEYS, 1)
FILES = Stored(KEYS, files=(100, 20, 50), file_bits=BITS)  # 10 bytes of the last are of nothing that comes


def of(*workers: dict[int, int], stored: Stored | None = FILES, reads_all: bool = False) -> Coverage:
    given = [[worker] for worker in workers]
    return coverage([WANTED], given, told_by=Identity.NUMBER, stored=stored, reads_all=reads_all)


def counts(*keys: int) -> dict[int, int]:
    return dict.fromkeys(keys, 1)


@pytest.mark.parametrize(
    ("workers", "reads_all", "expected"),
    [
        ([counts(0, 1, 32), counts(16, 17)], False, [(150, 140), (20, 20)]),  # by file
        ([counts(0, 16, 32), counts(1, 17)], True, [(170, 55), (170, 105)]),  # by element
        ([WANTED, WANTED], True, [(170, 160), (170, 160)]),  # everything to both
        ([counts(0, 16), counts(0, 16)], False, [(120, 15), (120, 15)]),  # the same part, and only a part
        ([WANTED, {}], False, [(170, 160), (0, 0)]),  # one is idle
        ([{0: 2, 1: 1}, {}], False, [(100, 110), (0, 0)]),  # what comes twice is used twice, and read once
    ],
)
def test_each_worker_reads_files_and_uses_elements(
    workers: list[dict[int, int]], reads_all: bool, expected: list[tuple[int, int]]
) -> None:
    found = of(*workers, reads_all=reads_all)
    assert [(one.read_bytes, one.used_bytes) for one in found.workers] == expected
    read, used = map(sum, zip(*expected, strict=True))
    assert (found.read_bytes, found.used_bytes, found.bytes_read_over_used) == (read, used, read / used)


def test_elements_and_bytes_are_not_the_same_share() -> None:
    found = of(counts(0, 16), {}, reads_all=True)
    read = replace(found, workers=tuple(replace(one, read=5) for one in found.workers))
    assert (read.read_over_used, read.bytes_read_over_used) == (5.0, 340 / 15)


def test_reading_that_ends_early_stops_behind_the_last_element() -> None:
    early = replace(FILES, ends_early=True)
    found = of(counts(0), counts(16, 17), stored=early)
    assert [one.read_bytes for one in found.workers] == [10, 20]
    assert [one.read_bytes for one in of(counts(0), {}, stored=early, reads_all=True).workers] == [160, 160]


@pytest.mark.parametrize("stored", [None, replace(FILES, of_key={0: 10})])
def test_what_is_not_known_of_one_is_not_known_of_all(stored: Stored | None) -> None:
    found = of(counts(0), counts(16), stored=stored)
    assert found.used_bytes is None and found.bytes_read_over_used is None
    assert of(counts(0), counts(16), stored=replace(FILES, file_bits=None)).read_bytes is None, "which files?"
    assert of({}, {}).bytes_read_over_used is None, "nothing is used"


def test_elements_that_share_a_file_evenly_are_all_of_it() -> None:
    thirds = Stored(dict.fromkeys(range(3), 100 / 3), files=(100,), file_bits=BITS)
    assert (thirds.used(counts(0, 1, 2)), thirds.used(counts(1))) == (100, 33)
