"""The overhead of the hooks: what is measured, and when its target is met."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks import loops
from benchmarks.accuracy.overhead import Overhead, claims, measure_cost
from pipetune.core.results import Interval


@pytest.mark.parametrize("make", [loops.photos, loops.text])
def test_loops_train(make: object) -> None:
    assert callable(make)
    loop = make()
    losses = [float(loop.step(*element)) for element in loop.dataset.take(2)]
    assert all(loss > 0 for loss in losses)
    assert measure_cost(loop, steps=3, hooked=True, warmup=2).steps == 3
    assert type(iter(loop.dataset)).__name__ == "OwnedIterator"


def test_target_is_met_missed_or_undecided_in_a_quick_run() -> None:
    def met(low: float, high: float, *, quick: bool) -> bool | None:
        middle = Interval((low + high) / 2, low, high, 8)
        return claims(Overhead(*[middle] * 5, 1.0, 1.0, 1.0), quick=quick)[0].met

    assert met(0.001, 0.005, quick=False) is True
    assert met(0.02, 0.03, quick=False) is met(0.001, 0.03, quick=False) is met(0.02, 0.03, quick=True) is False
    assert met(0.001, 0.03, quick=True) is None
