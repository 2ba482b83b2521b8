"""The coverage of a delivery is what counting its elements one by one gives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.coverage import Identity
from pipetune.model.coverage import coverage
from pipetune.model.delivered import coverage_of
from pipetune.model.distributing import dataset_delivery, function_delivery
from pipetune.model.sharding import AutoShardPolicy

FILES = st.lists(st.integers(0, 30), min_size=4, max_size=6)


@given(FILES, st.integers(1, 9), st.integers(1, 4), st.integers(1, 2), st.sampled_from(["file", "data", "off"]))
def test_counted_one_by_one(files: list[int], batch: int, workers: int, replicas: int, policy: str) -> None:
    delivery = dataset_delivery(
        files, batch, workers=workers, replicas_per_worker=replicas, policy=AutoShardPolicy(policy)
    )
    given_to = [[Counter(number for series in one.series() for number in series)] for one in delivery.workers]
    wanted = Counter(range(sum(files)))
    counted = coverage([wanted], given_to, told_by=Identity.NUMBER, files=files)
    found = coverage_of(delivery, files=files)
    for name in ("elements", "never", "once", "twice", "oftener", "cells", "by_file", "files", "idle_workers"):
        assert getattr(found, name) == getattr(counted, name), name
    for one, other in zip(found.workers, counted.workers, strict=True):
        assert (one.elements, one.cells) == (other.elements, other.cells)
    if not any(one.lost or one.dummies for one in delivery.workers):
        assert found.first_out == delivery.first_out
    assert [one.batches for one in found.workers] == [one.minibatches for one in delivery.workers]


def test_the_guide_s_twelve_elements_by_data() -> None:
    found = coverage_of(dataset_delivery([12], 4, workers=2, policy=AutoShardPolicy.DATA))
    assert found.complete and found.told_by is Identity.ARITHMETIC and found.read_over_used == 2.0
    assert [(one.elements, one.batches, one.short_batches) for one in found.workers] == [(6, 3, 0)] * 2
    assert found.workers[0].cells == (1, 1, 0, 0) * 3


@pytest.mark.parametrize(("elements", "workers"), [(0, 2), (1, 2), (100, 3)])
def test_every_second_or_third_element(elements: int, workers: int) -> None:
    found = coverage_of(function_delivery([elements], 4, workers=workers))
    assert found.complete and sum(map(sum, (one.cells for one in found.workers))) == elements
    assert sum(found.cells) == elements
