"""Steps of several workers, dummy batches and messages."""

from __future__ import annotations

import pytest

from pipetune.model.sharding import (
    DUMMY,
    assign_to_replicas,
    checks_replica_data,
    lockstep_steps,
    message_count,
    steps_until_exhausted,
    truncated_steps,
)

A, B, C, D, E = (range(index, index + 1) for index in range(5))


@pytest.mark.parametrize(
    ("workers", "fixed_shapes", "endless", "expected"),
    [(1, True, False, False), (1, False, True, False), (2, True, True, False), (1, False, False, True),
     (2, True, False, True), (2, False, False, True)],
)  # fmt: skip
def test_when_replicas_are_checked_for_data(workers: int, fixed_shapes: bool, endless: bool, expected: bool) -> None:
    assert checks_replica_data(workers=workers, fixed_shapes=fixed_shapes, endless=endless) is expected


def test_checked_steps_continue_until_no_replica_has_data() -> None:
    own = [assign_to_replicas([A, B, C, D, E], 2), assign_to_replicas([A], 2)]
    assert lockstep_steps(own, 2) == [
        ((A, B), (C, D), (E, DUMMY)),
        ((A, DUMMY), (DUMMY, DUMMY), (DUMMY, DUMMY)),
    ]
    assert steps_until_exhausted(own) == 1


def test_unchecked_steps_end_with_first_replica_without_data() -> None:
    assert truncated_steps([assign_to_replicas([A, B, C, D, E], 2)], 2) == [((A, B), (C, D))]
    assert truncated_steps([assign_to_replicas([A, B], 1), assign_to_replicas([A], 1)], 1) == [((A,),), ((A,),)]


def test_no_data_gives_no_steps() -> None:
    assert lockstep_steps([[], []], 2) == truncated_steps([[], []], 2) == [(), ()]


@pytest.mark.mission("B7.empty")
def test_message_count_is_steps_plus_one_if_checked() -> None:
    assert message_count(3, workers=2, checked=True) == 4
    assert message_count(3, workers=1, checked=True) == message_count(3, workers=2, checked=False) == 0
