"""One table of what was tried: each change once, with its state."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.edits import Insert, Move, Plan, Remove, SetArgument, SetOption, SplitFunction
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.measurement import Interval
from pipetune.core.results import Outcome, RejectionReason, Trial
from pipetune.core.session import Rejection
from pipetune.report.blocks import Forest, ratio_axis
from pipetune.report.html import environment, html
from pipetune.report.tried import far_out, outlier_sentence
from pipetune.report.words import Figure, edit_words, plan_text
from tests.core.sessions import session as one_trial
from tests.report import sessions as samples
from tests.report.reading import table, texts, with_main, with_part


def rows_of(session):
    return [(row.cells[0].text, row.state) for row in table(session, "tried").rows]


def test_a_row_draws_the_pairs_of_its_interval_on_the_axis_of_all():
    """Its words are in the golden Markdown."""
    parallel, prefetch, *_ = table(samples.photos(), "tried").rows
    assert not parallel.cells[4].forest.pairs, "its interval is over the rest of the plan, its trial had another one"
    assert len(prefetch.cells[4].forest.pairs) == 8
    assert prefetch.cells[4].forest.axis == parallel.cells[4].forest.axis


def test_a_plan_that_the_patch_does_not_cover_is_in_the_plan_alone():
    session = with_part(samples.photos(), "patch", covered=(samples.PARALLEL.key,))
    assert rows_of(session)[:2] == [("parallel-map", "in the patch"), ("prefetch", "in the plan")]


def test_what_a_rewrite_gains_over_the_others_is_no_gain_over_the_current_pipeline():
    """The plan without a cache that gained 34x was shown as faster by these 34x."""
    session = samples.photos()
    other = replace(samples.PREFETCH, rule="map-fusion")
    rest = Trial(Plan("tuned", (other,)), Outcome.ACCEPTED, "", Interval(33.8, 20.3, 57.5, 4), "ablation")
    assert rows_of(replace(session, trials=(*session.trials, rest))) == rows_of(session)


def test_a_candidate_is_likely():
    assert rows_of(samples.likely())[:2] == [("parallel-map", "likely"), ("prefetch", "likely")]
    missing = table(samples.likely(), "tried").rows[0].cells[3]
    assert not missing.text and missing.why == "not measured on its own"
    alone = Plan("tuned", (samples.PARALLEL,))
    tried = replace(samples.likely(), trials=(Trial(alone, Outcome.UNDECIDED, "", ratios=(1.2, 1.4)),))
    row = table(with_main(tried, "candidate", plan=alone), "tried").rows[0]
    assert row.cells[4].forest.pairs == (1.2, 1.4) and texts(row)[-1].endswith("The interval holds 80 of 100 cases.")


def rejections(*rejected):
    return table(with_main(replace(samples.photos(), trials=()), rejected=rejected), "tried").rows


def test_rejections_for_one_reason_are_one_row():
    untried = Rejection("freeze", "n6", "not tried: no time was left", reason=RejectionReason.NO_TIME)
    (row,) = [row for row in rejections(untried, untried) if row.cells[0].text == "freeze"]
    assert row.state == "undecided" and texts(row)[-1] == "Not tried: no time was left. (2 variants)"


def test_every_reason_has_a_state():
    rows = rejections(*(Rejection(reason.value, "n6", "why", reason=reason) for reason in RejectionReason))
    assert {row.cells[0].text for row in rows if row.state} >= {reason.value for reason in RejectionReason}


BEFORE_DRAWS = SplitPosition.BEFORE_DRAWS


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (SetArgument("n3", "num_parallel_calls", -1), "map: num_parallel_calls=AUTOTUNE"),
        (SetArgument("n6", "count", -1), "repeat: count=infinite"),
        (SetArgument("n4", "buffer_size", True), "shuffle: buffer_size=True"),
        (Insert("n6", "prefetch", "p", {"buffer_size": 2}), "insert prefetch(buffer_size=2) after repeat"),
        (Remove("n4"), "remove shuffle"),
        (Move("n4", "n2"), "move shuffle behind map"),
        (SetOption("deterministic", False), "options: deterministic=False"),
        (SetArgument("prefetch@n9", "buffer_size", 4), "prefetch: buffer_size=4"),
        (SplitFunction("n3", FunctionSplit(BEFORE_DRAWS)), f"map: cut its function in two {BEFORE_DRAWS}"),
        (Insert("head@n3", "cache", "c", {"filename": ""}), "insert cache() after the first part of map"),
    ],
)
def test_edit_words(edit, text):
    assert edit_words(edit, samples.photo_pipeline()) == text


def test_plans_in_words():
    assert plan_text(Plan("defaults")) == ("defaults", "")
    assert plan_text(Plan("", (samples.PARALLEL, samples.PREFETCH))) == ("parallel-map + prefetch", "")


# -- pairs far from the others: shown, not hidden

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
    four = outlier_sentence((*STEADY * 2, *STEADY[:4], 3.0, 4.0, 5.0, 6.0))
    assert "4 of 24 pairs lie" in four and "..." in four


def test_the_chart_marks_what_is_outside() -> None:
    trial = replace(one_trial().trials[0], ratios=(*STEADY, 9.0), gain=Interval(1.0, 0.9, 1.1, 9), kind="search")
    page = html(replace(one_trial(), trials=(trial,)))
    assert "far from the others" in page
    assert page.count("a pair outside the scale") == 1
    assert page.count('<circle class="pair"') == len(STEADY)


def test_pairs_without_an_interval_are_drawn_too() -> None:
    macros = environment("none").get_template("blocks.html.j2").module
    drawn = macros.forest(Forest(Figure(), ratio_axis([]), (1.0, 1.05)))  # type: ignore[attr-defined]
    assert drawn.count('<circle class="pair"') == 2 and "median" not in drawn


# -- the axis of ratios: positions a page can draw


def ratio(low: float, middle: float, high: float) -> Figure:
    return Figure("x", "y", middle, low, high)


def test_ratio_axis_holds_every_interval_and_one():
    axis = ratio_axis([ratio(0.8, 0.9, 1.0), ratio(3.0, 4.0, 5.0), Figure()])
    places = [axis.at(value) for value in (0.8, 1.0, 5.0)]
    assert places == sorted(places) and all(0 < place < 1 for place in places)
    assert any(label == "1x" for _, label in axis.ticks)
    assert axis.at(0.0) == 0.0 and axis.at(1e9) == 1.0


@given(st.floats(0.01, 1.0), st.floats(1.0, 500.0))
def test_tick_labels_do_not_touch(low, high):
    places = [place for place, _ in ratio_axis([ratio(low, 1.0, high)]).ticks]
    assert all(after - before >= 0.14 for before, after in pairwise(places))
