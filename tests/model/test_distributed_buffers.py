"""What a worker holds because its input is distributed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.model.distributed_buffers import Buffered, buffered


@pytest.mark.mission("B1.prefetch")
def test_two_workers_with_two_replicas() -> None:
    found = buffered(8, workers=2, replicas_per_worker=2)
    assert found == Buffered(cut=8, prefetched=4, waiting=4, on_devices=4)
    assert found.host == 16


def test_a_function_and_a_single_replica_add_no_buffer() -> None:
    assert buffered(8, workers=2, replicas_per_worker=2, from_function=True) == Buffered(0, 0, 4, 4)
    assert buffered(8) == Buffered(0, 0, 8, 8)


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
@pytest.mark.mission("B2.memory")
def test_with_a_fixed_batch_for_each_replica_memory_grows_with_the_replicas(
    each: int, workers: int, replicas: int, more: int
) -> None:
    few = buffered(each * workers * replicas, workers=workers, replicas_per_worker=replicas)
    many = buffered(each * workers * replicas * more, workers=workers * more, replicas_per_worker=replicas)
    assert many.cut == (each * workers * replicas * more if workers * replicas * more > 1 else 0)
    assert many.host >= few.host
    assert many.waiting == few.waiting
