"""Charts as data: positions a page can draw."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.report import charts
from pipetune.report.timeline import TimelineRow
from pipetune.report.values import Figure
from pipetune.report.view import make_view
from tests.report import sessions as samples


def ratio(low: float, middle: float, high: float) -> Figure:
    return Figure("x (y)", middle, low, high)


def test_lanes_show_three_steps_to_one_scale():
    rows = {row.name: row for row in charts.lanes(make_view(samples.photos()).main.timeline)}
    assert rows["sum"].ends[-1] == pytest.approx(100.0)
    assert rows["tuned"].ends[-1] == pytest.approx(100 * 72.3 / 98.6)
    for row in rows.values():
        models = [bar for bar in row.bars if bar.kind == "model"]
        assert len(models) == charts.STEPS_DRAWN
        assert models[0].width * 98.6 * 3 / 100 == pytest.approx(70.2)


def test_waiting_is_where_the_model_does_not_run():
    row = charts.lanes(make_view(samples.photos()).main.timeline)[1]
    busy = sum(bar.width for bar in row.bars if bar.lane == 1)
    assert busy == pytest.approx(row.ends[-1])  # wait and model fill every step
    first = [bar for bar in row.bars if bar.kind == "wait"][0]  # noqa: RUF015
    model = next(bar for bar in row.bars if bar.kind == "model")
    assert first.start + first.width == pytest.approx(model.start)


def test_the_input_overlaps_the_model_as_much_as_was_found():
    (row,) = charts.lanes(_timeline(period=80.0, alone=30.0, bound=60.0))
    scale = 240.0 / 100
    inputs = [(bar.start * scale, (bar.start + bar.width) * scale) for bar in row.bars if bar.kind == "input"]
    # Waits 20 of 30 ms per step, so 10 ms of each input lie under the step before.
    assert inputs == [pytest.approx(pair) for pair in ((0, 20), (70, 100), (150, 180), (230, 240))]


@given(st.floats(0.1, 1e4), st.floats(0.1, 1e4), st.floats(0.5, 1.5))
def test_bars_stay_inside(alone, bound, share):
    period = (alone + bound) * share
    for row in charts.lanes(_timeline(period=period, alone=alone, bound=bound)):
        for bar in row.bars:
            assert bar.start >= 0 and bar.width >= 0
            assert bar.start + bar.width <= 100 + 1e-6


def test_ratio_axis_holds_every_interval_and_one():
    axis = charts.ratio_axis([ratio(0.8, 0.9, 1.0), ratio(3.0, 4.0, 5.0), Figure()])
    places = [axis.at(value) for value in (0.8, 1.0, 5.0)]
    assert places == sorted(places)
    assert all(0 < place < 100 for place in places)
    assert any(label == "1x" for _, label in axis.ticks)
    assert axis.at(0.0) == 0.0 and axis.at(1e9) == 100.0


@given(st.floats(0.01, 1.0), st.floats(1.0, 500.0))
def test_tick_labels_do_not_touch(low, high):
    places = [place for place, _ in charts.ratio_axis([ratio(low, 1.0, high)]).ticks]
    assert all(after - before >= 9.0 for before, after in pairwise(places))


def test_nothing_measured_has_no_whisker():
    axis = charts.ratio_axis([])
    assert charts.whisker(Figure(), axis) is None
    drawn = charts.whisker(ratio(1.0, 1.05, 1.1), axis, (1.02, 1.08))
    assert drawn.low < drawn.median < drawn.high
    assert len(drawn.pairs) == 2


def test_ladder_bars_are_shares_of_the_fastest():
    bars = dict(charts.ladder_bars(make_view(samples.busy()).main.ladder))
    assert bars["defaults"] == 100.0
    assert bars["tuned"] is None
    assert bars["bound"] == pytest.approx(100 * (32 / 0.2081) / 1127.0)


def test_stages_stack_to_the_whole():
    bars = charts.stage_bars(make_view(samples.photos()).main.operators)
    assert [bar.kind for bar in bars] == ["extract", "transform", "load"]
    assert bars[-1].start + bars[-1].width == pytest.approx(100.0)


def _timeline(*, period: float, alone: float, bound: float):
    from pipetune.report.timeline import Timeline, _row

    row: TimelineRow = _row("defaults", "As written", period / 1e3, alone / 1e3, bound / 1e3, measured=True)
    nothing = Figure()
    return Timeline((row,), nothing, nothing, nothing, nothing, nothing)


def test_the_pairs_beside_the_training_speedup_are_those_of_the_training_step():
    session = samples.photos()
    training = next(trial for trial in session.trials if trial.kind == "verification")
    alone = replace(training, unit="input", ratios=(1.9, 1.8))
    both = make_view(replace(session, trials=(alone, *session.trials)))
    found = charts.confirmation(both.attempts)
    assert found is not None and found.ratios == training.ratios
    only = replace(session, trials=tuple(trial for trial in session.trials if trial is not training))
    assert charts.confirmation(make_view(replace(only, trials=(alone, *only.trials))).attempts) is None
