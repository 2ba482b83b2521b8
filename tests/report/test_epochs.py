"""First batch, epochs and drift: what matters in a sentence, all of it in the details."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.measurement import Interval
from pipetune.core.results import DatasetCost, Drift, RunDynamics
from pipetune.report.blocks import Facts, Series
from pipetune.report.step_times import epochs_sentence
from tests.report import sessions as samples
from tests.report.reading import blocks, ids, summary_line, summary_text, table, texts, with_part

QUIET = RunDynamics(0.2, None, 0.028, 0.001, 3, 600, 4, Interval(1.01, 0.98, 1.04, 4), None, (0.028,) * 20)
RISING = tuple(0.02 + 0.001 * index for index in range(20))
DRIFT = Drift(Interval(1.5, 1.4, 1.6, 64), 300, 900, True)
LOUD = RunDynamics(2.1, 1.6, 0.028, 1.7, 0, 600, 0, Interval(5.0, 4.8, 5.2, 3), DRIFT, RISING, ("No epoch ended.",))
TRAINING = DatasetCost(0.5, 0.4, False, 0.028, 0.027, 600)
VALIDATION = DatasetCost(3.0, 5.5, True, 0.028, 0.027, 200)


def shown(course: RunDynamics):
    first, second = samples.photos().datasets
    both = (replace(first, course=course, cost=TRAINING), replace(second, cost=VALIDATION))
    return replace(samples.photos(), datasets=both)


def facts_of(course: RunDynamics):
    return {fact.label: fact for block in blocks(shown(course), Facts, "epochs") for fact in block.facts}


def test_a_run_without_peculiarities_gets_no_line():
    assert epochs_sentence(QUIET) == ""
    assert "start of each epoch" not in summary_text(shown(QUIET))


def test_what_matters_is_one_sentence():
    sentence = epochs_sentence(LOUD)
    for said in ("shuffle buffer takes 1.60 s", "start of each epoch takes 1.70 s", "5.00x (4.80 to 5.20)", "1.50x"):
        assert said in sentence
    assert sentence in summary_line(shown(LOUD))


def test_an_insignificant_drift_is_shown_as_none_found():
    drift = facts_of(LOUD)["drift"]
    assert drift.text.startswith("1.50x") and "from element 300" in drift.note
    once = facts_of(with_part(LOUD, "drift", significant=False))["drift"]
    assert once.text == "not proven" and "1.50x" in once.note
    none = facts_of(with_part(LOUD, "drift", change=Interval(1.1, 0.9, 1.3, 64), significant=False))["drift"]
    assert none.text == "none found" and "1.10x" in none.note
    for course, note in (
        (LOUD, "measured on fresh iterators"),
        (QUIET, "3 ends of epochs"),
        (replace(QUIET, borders=1), "1 end of an epoch"),
    ):
        assert facts_of(course)["extra time where an epoch starts"].note == note


def test_the_course_is_drawn_where_it_is_long_enough():
    (series,) = blocks(shown(LOUD), Series, "epochs")
    assert len(series.columns) == 20 and max(part.share for (part,) in series.columns) == 1.0
    assert not blocks(shown(replace(LOUD, curve=(0.02,) * 7)), Series, "epochs")
    assert "epochs" not in ids(samples.photos())


def test_the_cost_of_every_dataset_is_a_share_of_one_pass_over_all():
    first, second = table(shown(LOUD), "datasets").rows
    assert (first.cells[-1].note, second.cells[-1].note) == ("75 % of all", "25 % of all")
    cut = replace(shown(LOUD), datasets=(replace(shown(LOUD).datasets[1], cost=replace(VALIDATION, whole_pass=False)),))
    assert table(cut, "datasets").rows[0].cells[-1].note == "at least"
    assert (first.cells[3].text, first.cells[3].note) == ("500 ms", "3,840 elements")
    assert (second.cells[3].text, second.cells[3].note) == ("3.00 s", "the whole call")
    assert texts(table(samples.photos(), "datasets").rows[0])[3] == "3,840 elements"
