"""Steps as measured, in the report and as a trace."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import StepSeries
from pipetune.report.blocks import Series
from pipetune.report.exports import trace
from pipetune.report.html import html
from tests.report import sessions as samples
from tests.report.reading import blocks, ids, sentences, with_main


def session_of(**series: StepSeries):
    return with_main(samples.photos(), step_series=series)


def test_each_step_is_a_column_of_model_and_wait():
    current, tuned = blocks(samples.photos(), Series, "steps")
    assert len(current.columns) == len(tuned.columns) == 60
    assert [part.kind for part in current.columns[1]] == ["model", "wait"]
    model, wait = current.columns[1]
    assert wait.share / (model.share + wait.share) == pytest.approx(0.0279 / 0.0981)
    assert current.marks == (40,)


def test_long_steps_are_cut_and_both_series_have_one_scale():
    current, tuned = blocks(samples.photos(), Series, "steps")
    assert max(sum(part.share for part in column) for column in current.columns) == pytest.approx(1.0)
    assert tuned.columns[1][0].share == pytest.approx(0.0702 / 0.3924)


def test_steps_whose_wait_cannot_be_told_are_whole():
    session = session_of(defaults=StepSeries((0.01, 0.03) * 10, None, why="the input is pulled inside a tf.function"))
    (series,) = blocks(session, Series, "steps")
    assert [part.kind for column in series.columns for part in column] == ["step"] * 20
    assert sentences(session, "steps")[0] == "The input is pulled inside a tf.function."


def test_without_steps_there_is_no_such_part():
    assert "steps" not in ids(session_of())
    assert "steps" not in ids(session_of(defaults=StepSeries(why="no time was left")))


def test_a_plan_that_is_not_proven_has_no_steps():
    assert len(blocks(with_main(samples.photos(), plan=None), Series, "steps")) == 1


def test_the_page_draws_every_column_and_the_end_of_the_epoch():
    page = html(samples.photos())
    part = page[page.index('id="steps"') : page.index('id="tried"')]
    assert part.count("fill-model") == 2 * 60 and part.count('<line class="mark"') == 2


# -- trace


def events(session):
    return json.loads(trace(session))["traceEvents"]


def test_a_trace_has_the_documented_form():
    """Complete events have name, ph, ts, dur, pid and tid; metadata events name processes and threads."""
    for event in events(samples.photos()):
        assert event["ph"] in ("X", "M") and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["ts"], float | int) and event["name"]
        else:
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]


def test_steps_follow_each_other_and_have_the_measured_lengths():
    training = [one for one in events(samples.photos()) if one["ph"] == "X" and (one["pid"], one["tid"]) == (1, 1)]
    assert len(training) == 2 * 60
    for before, after in pairwise(training):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"], abs=0.01)
    second = [one for one in training if one["args"]["step"] == 1]
    assert [one["name"] for one in second] == ["waiting for data", "model"]
    assert [one["dur"] for one in second] == pytest.approx([27_900, 70_200])
    assert [one["args"]["step"] for one in training if one["args"]["new_epoch"]] == [40, 40]


def test_operators_are_in_the_thread_they_share_and_end_when_the_element_is_taken():
    found = events(samples.photos())
    threads = [one["args"]["name"] for one in found if one["name"] == "thread_name" and one["pid"] == 1]
    assert threads[0] == "training" and threads[1] == "input thread 1: map, map, shuffle, batch and repeat"
    inside = [one for one in found if one["ph"] == "X" and one["tid"] == 2 and one["args"]["step"] == 5]
    assert [one["name"] for one in inside] == ["map", "map", "shuffle", "batch", "repeat"]
    assert inside[1]["args"]["source"] == "photo_input.py:24" and inside[1]["args"]["mean"]
    taken = next(one for one in found if one["name"] == "model" and one["args"]["step"] == 5)
    assert inside[-1]["ts"] + inside[-1]["dur"] == pytest.approx(taken["ts"], abs=0.01)
    assert not [one for one in found if one["pid"] == 2 and one["tid"] > 1], "those of the plan are not known"


def test_a_session_without_steps_says_why_there_is_no_trace():
    with pytest.raises(PipetuneError, match=r"no recorded training steps.* No time was left\.") as caught:
        trace(session_of(defaults=StepSeries(why="no time was left")))
    assert "--budget" in caught.value.hint
