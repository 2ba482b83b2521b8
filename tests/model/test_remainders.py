"""What last batches cost: by hand, and what must hold for any counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.model.remainders import Remainder, remainder

COUNTS = st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(any)


@pytest.mark.parametrize(
    ("counts", "rows", "replicas", "expected"),
    [
        ([8, 8], 4, 1, Remainder(16, 0, 0)),
        ([9, 8], 4, 1, Remainder(17, 1, 3)),
        ([15, 18], 2, 1, Remainder(33, 1, 1)),
        ([33], 2, 2, Remainder(33, 1, 3)),  # steps of 4: the last full batch of 2 would come with 1 row beside it
        ([34], 2, 2, Remainder(34, 2, 2)),  # a batch of 2 for one of two replicas: that step is not taken
        ([3], 4, 1, Remainder(3, 3, 1)),
        ([0, 5], 5, 1, Remainder(5, 0, 0)),
    ],
)
def test_what_full_batches_leave_out_and_what_fills_them(
    counts: list[int], rows: int, replicas: int, expected: Remainder
) -> None:
    assert remainder(counts, rows, replicas_per_worker=replicas) == expected


@given(COUNTS, st.integers(1, 9), st.integers(1, 3))
def test_nothing_is_left_out_or_filled_where_steps_come_out_even(counts: list[int], rows: int, replicas: int) -> None:
    even = [count * rows * replicas for count in counts]
    found = remainder(even, rows, replicas_per_worker=replicas if len(counts) == 1 else 1)
    assert (found.dropped, found.filled) == (0, 0)


@given(COUNTS, st.integers(1, 9))
def test_each_worker_drops_less_than_a_batch_and_fills_the_rest_of_it(counts: list[int], rows: int) -> None:
    found = remainder(counts, rows)
    assert found.elements == sum(counts)
    assert found.dropped == sum(count % rows for count in counts)
    assert found.filled == sum(-count % rows for count in counts)
