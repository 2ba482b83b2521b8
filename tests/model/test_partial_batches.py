"""Steps of several workers, dummies, and messages."""

from __future__ import annotations

import pytest

from pipetune.model.partial_batches import DUMMY, cut_off, dealt, first_out, handled, messages, together

A, B, C, D, E = (range(index, index + 1) for index in range(5))


@pytest.mark.parametrize(
    ("workers", "fixed_shapes", "endless", "expected"),
    [(1, True, False, False), (1, False, True, False), (2, True, True, False), (1, False, False, True),
     (2, True, False, True), (2, False, False, True)],
)  # fmt: skip
def test_when_the_end_is_looked_for(workers: int, fixed_shapes: bool, endless: bool, expected: bool) -> None:
    assert handled(workers=workers, fixed_shapes=fixed_shapes, endless=endless) is expected


def test_steps_go_on_until_no_replica_has_data() -> None:
    own = [dealt([A, B, C, D, E], 2), dealt([A], 2)]
    assert together(own, 2) == [
        ((A, B), (C, D), (E, DUMMY)),
        ((A, DUMMY), (DUMMY, DUMMY), (DUMMY, DUMMY)),
    ]
    assert first_out(own) == 1


def test_without_a_look_the_first_replica_without_data_ends_them() -> None:
    assert cut_off([dealt([A, B, C, D, E], 2)], 2) == [((A, B), (C, D))]
    assert cut_off([dealt([A, B], 1), dealt([A], 1)], 1) == [((A,),), ((A,),)]


def test_nothing_gives_no_steps() -> None:
    assert together([[], []], 2) == cut_off([[], []], 2) == [(), ()]


@pytest.mark.mission("B7.empty")
def test_one_message_more_than_steps_and_none_where_nobody_asks() -> None:
    assert messages(3, workers=2, handled=True) == 4
    assert messages(3, workers=1, handled=True) == messages(3, workers=2, handled=False) == 0
