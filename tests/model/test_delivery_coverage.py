"""The computed coverage of a delivery equals the count of its elements."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.distribution import ElementIdentity
from pipetune.model.coverage import coverage_from_delivery, worst_coverage
from pipetune.model.delivery import dataset_delivery, function_delivery
from pipetune.model.sharding import AutoShardPolicy

FILES = st.lists(st.integers(0, 30), min_size=4, max_size=6)


@given(FILES, st.integers(1, 9), st.integers(1, 4), st.integers(1, 2), st.sampled_from(["file", "data", "off"]))
def test_coverage_equals_count_of_elements(
    files: list[int], batch: int, workers: int, replicas: int, policy: str
) -> None:
    delivery = dataset_delivery(
        files, batch, workers=workers, replicas_per_worker=replicas, policy=AutoShardPolicy(policy)
    )
    given_to = [[Counter(number for series in one.element_ranges() for number in series)] for one in delivery.workers]
    wanted = Counter(range(sum(files)))
    counted = worst_coverage([wanted], given_to, told_by=ElementIdentity.INDEX, files=files)
    found = coverage_from_delivery(delivery, files=files)
    for name in ("elements", "never", "once", "twice", "oftener", "cells", "by_file", "files", "idle_workers"):
        assert getattr(found, name) == getattr(counted, name), name
    for one, other in zip(found.workers, counted.workers, strict=True):
        assert (one.elements, one.cells) == (other.elements, other.cells)
    if not any(one.lost_minibatches or one.dummies for one in delivery.workers):
        assert found.first_out == delivery.first_out
    assert [one.batches for one in found.workers] == [one.minibatches for one in delivery.workers]


def test_twelve_elements_of_guide_by_data() -> None:
    found = coverage_from_delivery(dataset_delivery([12], 4, workers=2, policy=AutoShardPolicy.DATA))
    assert found.complete and found.told_by is ElementIdentity.ARITHMETIC and found.read_over_used == 2.0
    assert [(one.elements, one.batches, one.short_batches) for one in found.workers] == [(6, 3, 0)] * 2
    assert found.workers[0].cells == (1, 1, 0, 0) * 3


@pytest.mark.parametrize(("elements", "workers"), [(0, 2), (1, 2), (100, 3)])
def test_coverage_of_shard_by_element(elements: int, workers: int) -> None:
    found = coverage_from_delivery(function_delivery([elements], 4, workers=workers))
    assert found.complete and sum(map(sum, (one.cells for one in found.workers))) == elements
    assert sum(found.cells) == elements
