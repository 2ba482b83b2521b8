"""The course of a run in words: only what matters in the terminal, all of it in the page."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.results import DatasetCost, Drift, Interval, RunDynamics
from pipetune.report.course import cost_rows, course_view
from pipetune.report.html import html
from pipetune.report.terminal import summary_text
from tests.report import sessions as samples

QUIET = RunDynamics(0.2, None, 0.028, 0.001, 3, 600, 4, Interval(1.01, 0.98, 1.04, 4), None, (0.028,) * 20)
LOUD = RunDynamics(
    first_seconds=2.1,
    fill_seconds=1.6,
    steady_seconds=0.028,
    border_seconds=1.7,
    borders=0,
    epoch_elements=600,
    epochs=0,
    later=Interval(5.0, 4.8, 5.2, 3),
    drift=Drift(Interval(1.5, 1.4, 1.6, 64), 300, 900, True),
    curve=tuple(0.02 + 0.001 * index for index in range(20)),
    notes=("No epoch ended in the available time: later epochs were not compared.",),
)
TRAINING = DatasetCost(0.5, 0.4, False, 0.028, 0.027, 600)
VALIDATION = DatasetCost(3.0, 5.5, True, 0.028, 0.027, 200)


def shown(course: RunDynamics):
    first, second = samples.photos().datasets
    return replace(
        samples.photos(), datasets=(replace(first, course=course, cost=TRAINING), replace(second, cost=VALIDATION))
    )


def test_a_run_without_peculiarities_gets_no_line():
    assert course_view(shown(QUIET).datasets[0]).sentence == ""
    assert "epoch boundary" not in summary_text(shown(QUIET))


def test_what_matters_is_one_sentence():
    sentence = course_view(shown(LOUD).datasets[0]).sentence
    for said in ("shuffle buffer takes 1.60 s", "epoch border costs 1.70 s", "5.00x (4.80 to 5.20)", "1.50x"):
        assert said in sentence
    assert sentence.split(";")[0] in " ".join(summary_text(shown(LOUD)).split())


def test_an_insignificant_drift_is_shown_as_none_found():
    facts = {fact.label: fact for fact in course_view(shown(LOUD).datasets[0]).facts}
    assert facts["Drift"].text.startswith("1.50x") and "from element 300" in facts["Drift"].note
    once = replace(LOUD, drift=replace(LOUD.drift, significant=False))
    facts = {fact.label: fact for fact in course_view(shown(once).datasets[0]).facts}
    assert facts["Drift"].text == "none proven" and "1.50x" in facts["Drift"].note
    none = replace(LOUD, drift=replace(LOUD.drift, change=Interval(1.1, 0.9, 1.3, 64), significant=False))
    facts = {fact.label: fact for fact in course_view(shown(none).datasets[0]).facts}
    assert facts["Drift"].text == "none found" and "1.10x" in facts["Drift"].note
    assert "fresh iterators" in facts["Epoch border"].note


def test_the_page_has_the_course_and_the_cost_of_every_dataset():
    page = html(shown(LOUD))
    assert 'id="course"' in page and "What each dataset costs" in page
    assert page.count('<rect class="fill fill-input"') >= 20
    old = html(samples.photos())
    assert "Not measured: the input was not run" in old and "What each dataset costs" not in old


def test_shares_are_of_one_pass_over_all():
    first, second = cost_rows(shown(LOUD))
    assert (first.share.text, second.share.text) == ("75 %", "25 %")
    assert second.taken == "the whole call" and first.taken == "3,840"
