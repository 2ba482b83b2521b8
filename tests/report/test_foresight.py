"""Predicted beside measured, and what if: in the view, the page, Markdown, the terminal and the plot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.results import PredictedRate, Scenario
from pipetune.core.session import Session
from pipetune.report.foresight import Foresight
from pipetune.report.html import html
from pipetune.report.markdown import markdown
from pipetune.report.terminal import summary_text
from pipetune.report.view import make_view
from tests.report import sessions as samples

PREDICTIONS = (
    PredictedRate("off", "off", 800.0, 1000.0),
    PredictedRate("defaults", "defaults", 1100.0, 1000.0),
    PredictedRate("cache@n3", "cache <b>", 5000.0, None),
    PredictedRate("opaque", "opaque", None, 700.0, "map runs Python code"),
)
WHAT_IF = (
    Scenario("as it is", 40.0, 40.0, "input", "n3", "cores"),
    Scenario("2 times the cores", 80.0, 50.0, "model", "n3", "cores"),
    Scenario("8 replicas on this host", 40.0, 5.0, "input", None, "consumer"),
)


def session(**changes: object) -> Session:
    whole = samples.photos()
    main = whole.main_dataset
    assert main is not None
    changed = replace(main, plan=None, **{"predictions": PREDICTIONS, "what_if": WHAT_IF, **changes})  # type: ignore[arg-type]
    return replace(whole, datasets=(changed, *whole.datasets[1:]))


def seen(**changes: object) -> Foresight:
    main = make_view(session(**changes)).main
    assert main is not None
    return main.foresight


def test_each_plan_has_its_error_where_both_are_known() -> None:
    rows = {row.label: row for row in seen().rows}
    assert rows["off"].error.text == "-20 %"
    assert rows["defaults"].error.text == "+10 %"
    assert not rows["cache <b>"].error.known and not rows["opaque"].error.known
    assert rows["opaque"].predicted.why == "not predicted: map runs Python code"
    assert seen().mean_error.value == pytest.approx(0.15)
    assert "15 % on average over 2 plans" in seen().sentence
    assert "Not predicted: map runs Python code." in seen().sentence


def test_the_plan_stands_with_its_confirmed_rate() -> None:
    whole = samples.photos()
    main = whole.main_dataset
    assert main is not None and main.plan is not None and main.predicted is not None
    chosen = PredictedRate(main.plan.key, "both", 1.0, 1.0)
    changed = replace(main, predictions=(*PREDICTIONS, chosen))
    view = make_view(replace(whole, datasets=(changed, *whole.datasets[1:]))).main
    assert view is not None
    (row,) = [row for row in view.foresight.rows if row.label == "the plan"]
    assert row.measured.value == main.rates["tuned"].examples_per_second
    assert row.predicted.value == main.predicted.examples_per_second
    assert "both" not in {row.label for row in view.foresight.rows}


def test_points_lie_on_the_line_where_both_agree() -> None:
    points = {point.label: point for point in seen().points}
    assert set(points) == {"off", "defaults"}
    assert points["off"].measured == points["defaults"].measured
    assert points["off"].predicted < points["off"].measured < points["defaults"].predicted
    assert all(0 < place < 100 for point in points.values() for place in (point.measured, point.predicted))
    same = seen(predictions=(PredictedRate("off", "off", 500.0, 500.0),)).points[0]
    assert same.measured == pytest.approx(same.predicted)


def test_what_binds_is_named_with_its_place() -> None:
    first, cores, replicas = seen().scenarios
    assert "map" in first.binds and ":24" in first.binds
    assert cores.binds == "the model" and cores.step.value == pytest.approx(1 / 50)
    assert replicas.binds == "taking elements one by one"
    assert first.input.value == pytest.approx(40 * 32)


def test_nothing_is_shown_where_nothing_was_foreseen() -> None:
    empty = seen(predictions=(), what_if=())
    assert not empty.rows and not empty.scenarios and not empty.points
    assert 'id="foresight"' not in html(samples.busy())


def test_every_form_tells_it() -> None:
    page = html(session())
    assert 'id="foresight"' in page and 'class="scatter"' in page
    assert "cache &lt;b&gt;" in page and "cache <b>" not in page
    text = markdown(session())
    assert "### Predicted and measured" in text and "### What if" in text
    assert "2 times the cores" in summary_text(session())


def test_why_there_is_no_what_if_is_told() -> None:
    told = html(session(what_if=(Scenario("as it is", why="map runs Python code"),)))
    assert "Not predicted: map runs Python code." in told


def test_more_cores_are_not_said_to_bring_less_than_there_is() -> None:
    assert "2 times the cores" in seen().short
    slow = (replace(WHAT_IF[0], input_rate=1.0), replace(WHAT_IF[1], input_rate=2.0))
    assert seen(what_if=slow).short == ""
