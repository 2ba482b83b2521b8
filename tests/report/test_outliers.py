"""Outliers are shown, not hidden: in words, and as marks that never leave the chart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.results import Interval
from pipetune.report.blocks import Forest, ratio_axis
from pipetune.report.html import environment, html
from pipetune.report.tried import far_out, outlier_sentence
from pipetune.report.values import Figure
from tests.core.sessions import session

STEADY = (1.01, 0.99, 1.02, 1.0, 0.98, 1.01, 1.03, 0.99)


def test_the_far_ones_are_found_furthest_first() -> None:
    assert far_out(STEADY) == ()
    assert far_out((*STEADY, 1.6, 0.3)) == pytest.approx((0.3, 1.6))
    assert far_out((1.0, 5.0, 1.0)) == ()  # three pairs have no far and near
    assert far_out((1.0,) * 8) == ()


def test_the_sentence_says_how_many_and_that_they_count() -> None:
    assert outlier_sentence(STEADY) == ""
    one = outlier_sentence((*STEADY, 0.412))
    assert one == "1 of 9 pairs lies far from the others (0.41x); it counts in the interval."
    assert "4 of 24 pairs lie" in outlier_sentence((*STEADY * 2, *STEADY[:4], 3.0, 4.0, 5.0, 6.0))
    assert "..." in outlier_sentence((*STEADY * 2, *STEADY[:4], 3.0, 4.0, 5.0, 6.0))


def test_the_chart_marks_what_is_outside() -> None:
    trial = replace(session().trials[0], ratios=(*STEADY, 9.0), gain=Interval(1.0, 0.9, 1.1, 9), kind="search")
    page = html(replace(session(), trials=(trial,)))
    assert "far from the others" in page
    assert page.count("a pair outside the scale") == 1
    assert page.count('<circle class="pair"') == len(STEADY)


def test_pairs_without_an_interval_are_drawn_too() -> None:
    macros = environment("none").get_template("blocks.html.j2").module
    drawn = macros.forest(Forest(Figure(), ratio_axis([]), (1.0, 1.05)))  # type: ignore[attr-defined]
    assert drawn.count('<circle class="pair"') == 2 and "median" not in drawn
