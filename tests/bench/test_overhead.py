"""The overhead of the hooks: what is measured, and when its limit counts as met. The figure is `bench --accuracy`'s."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.bench import loops
from pipetune.bench.overhead import Overhead, claims, cost
from pipetune.core.results import Interval


@pytest.mark.parametrize("make", [loops.photos, loops.text])
def test_the_loops_train(make: object) -> None:
    assert callable(make)
    loop = make()
    losses = [float(loop.step(*element)) for element in loop.dataset.take(2)]
    assert all(loss > 0 for loss in losses)
    assert cost(loop, steps=3, hooked=True, warmup=2).steps == 3
    assert type(iter(loop.dataset)).__name__ == "OwnedIterator"


def test_a_limit_is_met_missed_or_not_to_be_told_in_the_short_form() -> None:
    def met(low: float, high: float, *, quick: bool) -> bool | None:
        middle = Interval((low + high) / 2, low, high, 8)
        return claims(Overhead(*[middle] * 5, 1.0, 1.0, 1.0), quick=quick)[0].met

    assert met(0.001, 0.005, quick=False) is True
    assert met(0.02, 0.03, quick=False) is False
    assert met(0.001, 0.03, quick=False) is False
    assert met(0.001, 0.03, quick=True) is None
    assert met(0.02, 0.03, quick=True) is False
