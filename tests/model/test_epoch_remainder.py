"""The elements that incomplete last batches drop or pad: examples by hand, and properties for all counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.model.delivery import Remainder, epoch_remainder

COUNTS = st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(any)


@pytest.mark.parametrize(
    ("counts", "rows", "replicas", "expected"),
    [
        ([8, 8], 4, 1, Remainder(16, 0, 0)),
        ([9, 8], 4, 1, Remainder(17, 1, 3)),
        ([15, 18], 2, 1, Remainder(33, 1, 1)),
        ([33], 2, 2, Remainder(33, 1, 3)),  # steps of 4: the last step would have a full batch of 2 and one of 1
        ([34], 2, 2, Remainder(34, 2, 2)),  # the last batch of 2 is for one of two replicas: that step is not taken
        ([3], 4, 1, Remainder(3, 3, 1)),
        ([0, 5], 5, 1, Remainder(5, 0, 0)),
    ],
)
def test_dropped_elements_and_padding_rows(counts: list[int], rows: int, replicas: int, expected: Remainder) -> None:
    assert epoch_remainder(counts, rows, replicas_per_worker=replicas) == expected


@given(COUNTS, st.integers(1, 9), st.integers(1, 3))
def test_no_remainder_if_counts_are_multiples(counts: list[int], rows: int, replicas: int) -> None:
    even = [count * rows * replicas for count in counts]
    found = epoch_remainder(even, rows, replicas_per_worker=replicas if len(counts) == 1 else 1)
    assert (found.dropped, found.padding_rows) == (0, 0)


@given(COUNTS, st.integers(1, 9))
def test_each_worker_drops_or_pads_its_own_last_batch(counts: list[int], rows: int) -> None:
    found = epoch_remainder(counts, rows)
    assert found.elements == sum(counts)
    assert found.dropped == sum(count % rows for count in counts)
    assert found.padding_rows == sum(-count % rows for count in counts)
