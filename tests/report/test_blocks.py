"""The axis of ratios: positions a page can draw."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipetune.report.blocks import ratio_axis
from pipetune.report.words import Figure


def ratio(low: float, middle: float, high: float) -> Figure:
    return Figure("x", "y", middle, low, high)


def test_ratio_axis_holds_every_interval_and_one():
    axis = ratio_axis([ratio(0.8, 0.9, 1.0), ratio(3.0, 4.0, 5.0), Figure()])
    places = [axis.at(value) for value in (0.8, 1.0, 5.0)]
    assert places == sorted(places)
    assert all(0 < place < 1 for place in places)
    assert any(label == "1x" for _, label in axis.ticks)
    assert axis.at(0.0) == 0.0 and axis.at(1e9) == 1.0


@given(st.floats(0.01, 1.0), st.floats(1.0, 500.0))
def test_tick_labels_do_not_touch(low, high):
    places = [place for place, _ in ratio_axis([ratio(low, 1.0, high)]).ticks]
    assert all(after - before >= 0.14 for before, after in pairwise(places))
