"""What is measured after the decision: an error there is noted, and the analysis is complete without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import workflow
from pipetune.capture.consumption import Consumption
from pipetune.core.time_plan import AFTER_NO_SECONDS, Part
from pipetune.stages.study import Study
from tests.stages.studies import numbers, study_of


def test_error_after_the_decision_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("sweeps")

    monkeypatch.setattr(workflow, "measure_epochs", fails)
    session = workflow.analyze(study_of(numbers(), trials=False, budget_seconds=5.0))
    assert session.status == "done" and session.complete
    dataset = session.main_dataset
    assert dataset is not None and dataset.profile is not None and dataset.cost is not None
    assert any("only inform, ended with an error (KeyError: 'sweeps')" in note for note in session.notes)
    assert "in fails" in capsys.readouterr().err


def test_error_in_another_dataset_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("others")

    monkeypatch.setattr(Study, "for_other", fails)
    other = Consumption(numbers(), "check", "validation", "Model.fit")
    study = study_of(numbers(), other, trials=False, budget_seconds=5.0)
    study.settings = replace(study.settings, dataset="all")
    session = workflow.analyze(study)
    assert session.status == "done" and session.complete
    assert any("another dataset ended with an error (KeyError: 'others')" in note for note in session.notes)


@pytest.mark.parametrize("much", [False, True])
def test_analysis_ends_soon_after_a_no_unless_validation_costs_much(
    monkeypatch: pytest.MonkeyPatch, much: bool
) -> None:
    left = []
    study = study_of(numbers(), budget_seconds=60.0, quick=True)

    def note(*_: Any) -> bool:
        left.append(study.time_plan.left(Part.VERIFICATION))
        return False

    monkeypatch.setattr(workflow, "refine_costs", lambda _, profile, diagnosis: (profile, diagnosis))
    monkeypatch.setattr(workflow, "measure_files", lambda _, profile: profile)
    monkeypatch.setattr(workflow, "should_run_trials", lambda *_: False)
    monkeypatch.setattr(workflow, "validation_costs_much", lambda *_: much)
    monkeypatch.setattr(workflow, "tune_validation", note)
    monkeypatch.setattr(workflow, "inform", note)
    workflow.analyze(study)
    while_tuned, after = left
    assert (while_tuned > AFTER_NO_SECONDS) is much and after <= AFTER_NO_SECONDS
