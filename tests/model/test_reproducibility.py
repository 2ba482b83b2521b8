"""Reproducibility of order and random draws, in the original and with a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.rewrites.epoch_constancy import order_of
from tests.words import pipeline

PREFETCH = Rewrite("prefetch", "n1", Safety.EXACT, (Insert("n1", "prefetch", "prefetch@n1"),), "prefetch")


@pytest.mark.parametrize(("words", "reproducible"), [
    ("from_tensor_slices | map | batch 4", True),
    ("from_tensor_slices | map parallel=2 | batch 4", True),
    ("range | shuffle 10 seed=1 | batch 4", True),
    ("range | map random seeded | batch 4", True),
    ("random seed=1 | batch 4", True),
    ("random | batch 4", False),
    ("range | shuffle 10", False),
    ("range | map random", False),
    ("range | map python", False),
    ("from_generator | map", False),
])  # fmt: skip
@pytest.mark.mission("D1.pipeline", "D1.rewrites")
def test_pipeline_is_as_reproducible_with_prefetch_as_without_it(words: str, reproducible: bool) -> None:
    order = order_of(pipeline(words), Plan("plan", (PREFETCH,)))
    assert (order.reproducible_before, order.reproducible_after, order.why == "") == (reproducible,) * 3


@pytest.mark.mission("D1.rewrites")
def test_rewrite_that_changes_draws_is_named() -> None:
    changing = replace(PREFETCH, rule="parallel-map", reproducible=False, epochs_kept=False)
    order = order_of(pipeline("range | map random seeded | batch 4"), Plan("plan", (changing,)))
    assert order.reproducible_before and not order.reproducible_after and not order.epochs_kept
    assert "parallel-map" in order.why
