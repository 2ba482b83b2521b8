"""The session as `tune`, `profile` and `load` return it: properties, tables, one line, and the frame of a notebook."""

from __future__ import annotations

import math
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

import pipetune
from pipetune.api import TunedSession
from pipetune.core.edits import Safety
from pipetune.core.session_file import save
from pipetune.report.html import html
from tests.report import sessions as samples


def test_properties_of_a_proven_session(tmp_path: Path) -> None:
    session = samples.photos()
    save(session, tmp_path / "session.json")
    tuned = pipetune.load(tmp_path)
    assert (tuned.outcome, tuned.verdict) == ("proven", "input-bound")
    assert tuned.speedup == session.training.speedup and tuned.speedup is not None
    assert tuned.input_speedup == session.datasets[0].input_speedup
    assert tuned.input_wait == session.datasets[0].diagnosis.wait_share  # type: ignore[union-attr]
    assert tuned.patch == session.patch.diff and "+++ b/" in tuned.patch
    assert tuned.warnings == session.findings and tuned.warnings


def test_rewrites_are_those_of_the_plan_with_their_places_and_gains() -> None:
    session = samples.photos()
    found = TunedSession(session).rewrites
    assert [one.rule for one in found] == [one.rule for one in session.plan.rewrites]
    assert {one.safety for one in found} <= set(Safety)
    assert all(one.file == samples.INPUT and one.line for one in found)
    assert [one.gain for one in found] == [session.datasets[0].gains.get(one.key) for one in session.plan.rewrites]


@pytest.mark.parametrize("name", ["bare", "failed", "no_dataset"])
def test_what_was_not_measured_is_missing(name: str) -> None:
    tuned = TunedSession(samples.ALL[name]())
    assert (tuned.outcome, tuned.verdict, tuned.rewrites, tuned.patch) == ("failed", "undetermined", (), "")
    assert tuned.speedup is tuned.input_speedup is tuned.input_wait is tuned.plan is None
    assert tuned.trials_frame().empty and tuned.rates_frame().empty
    assert repr(tuned) == "<pipetune session: failed>"


@pytest.mark.parametrize(("name", "line"), [
    ("photos", "<pipetune session: proven, training 1.36x (1.34 to 1.38), input wait 28 % (26 to 31 %)>"),
    ("likely", "<pipetune session: likely, training 1.31x (1.08 to 1.57) not proven, input wait 11 % ("),
    ("input_only", "<pipetune session: proven, input alone"),
    ("busy", "<pipetune session: not-input-bound, input wait"),
])  # fmt: skip
def test_one_line_says_outcome_gain_and_wait(name: str, line: str) -> None:
    session = samples.ALL[name]()
    if name == "input_only":
        assert session.training is not None and session.training.speedup is None
    assert repr(TunedSession(session)).startswith(line)


def test_trials_frame_has_one_row_per_trial() -> None:
    session = samples.photos()
    frame = TunedSession(session).trials_frame()
    columns = ["plan", "kind", "unit", "outcome", "gain", "low", "high", "pairs", "seconds", "why"]
    assert list(frame.columns) == columns and len(frame) == len(session.trials)
    for row, trial in zip(frame.itertuples(), session.trials, strict=True):
        assert (row.outcome, row.unit, row.why) == (trial.outcome, trial.unit, trial.why)
        assert row.plan == (" + ".join(one.rule for one in trial.plan.rewrites) or trial.plan.name)
        assert row.gain == trial.gain.median if trial.gain else math.isnan(row.gain)
    assert {"float64"} == {str(frame[name].dtype) for name in ("gain", "low", "high", "pairs", "seconds")}


def test_rates_frame_has_one_row_per_measured_variant() -> None:
    session = samples.photos()
    frame = TunedSession(session).rates_frame()
    rates = session.datasets[0].rates
    assert list(frame["variant"]) == [name for name in ("off", "defaults", "autotune", "tuned") if name in rates]
    by_name = frame.set_index("variant")["examples_per_second"]
    assert by_name["tuned"] == rates["tuned"].examples_per_second


def test_rate_of_a_plan_that_was_not_confirmed_is_no_row() -> None:
    session = samples.photos()
    without = replace(session, datasets=(replace(session.datasets[0], plan=None), *session.datasets[1:]))
    assert "tuned" in session.datasets[0].rates
    assert "tuned" not in set(TunedSession(without).rates_frame()["variant"])


@pytest.mark.parametrize("name", ["photos", "hostile"])
def test_html_is_the_report_in_a_frame(name: str) -> None:
    session = samples.ALL[name]()
    frame = TunedSession(session)._repr_html_()
    begin, page, *_ = frame.split('"')
    assert (begin, frame.count("<")) == ("<iframe srcdoc=", 2), "nothing of a session gets out of the frame"
    assert unescape(page) == html(session) and "allow-same-origin" not in frame
