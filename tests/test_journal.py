"""The journal: each step of an analysis is stored in the session and sent to the listener."""

from __future__ import annotations

import pytest

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import DatasetResult, Session
from pipetune.core.settings import Command, Settings
from pipetune.core.time_plan import TimePlan
from pipetune.journal import Journal, Listener


class Heard(Listener):
    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.best: list[str] = []

    def progress(self, phase: str, doing: str, *, best: str, left: float | None) -> None:
        self.events.append((phase, doing))
        self.best.append(best)

    def saved(self, session: Session) -> None:
        self.events.append(("saved", session))

    def bottleneck(self, sentence: str) -> None:
        self.events.append(("bottleneck", sentence))

    def trial_started(self, plan: Plan) -> None:
        self.events.append(("started", plan.key))

    def trial_ended(self, key: str) -> None:
        self.events.append(("ended", key))


def journal() -> tuple[Journal, Heard]:
    heard = Heard()
    datasets = (DatasetResult(Pipeline(()), "training"), DatasetResult(Pipeline(()), "validation"))
    return Journal(Session("1", Command(), datasets=datasets), TimePlan.of(Settings()), heard), heard


def test_seconds_of_failed_phase_are_stored() -> None:
    kept, _ = journal()
    with pytest.raises(RuntimeError), kept.phase("trials", "measuring"):
        raise RuntimeError("lost")
    assert {"trials", "total"} <= set(kept.session.seconds)


def test_each_update_is_saved() -> None:
    kept, heard = journal()
    kept.update_dataset(consumer="Model.fit")
    saved = [session for event, session in heard.events if event == "saved"]
    assert saved == [kept.session]
    assert kept.session.datasets[0].consumer == "Model.fit"


def test_second_dataset_can_be_selected() -> None:
    kept, _ = journal()
    assert kept.studies_training
    kept.select_dataset(1, TimePlan.of(Settings()))
    kept.update_dataset(consumer="alone")
    assert not kept.studies_training
    assert [result.consumer for result in kept.session.datasets] == ["", "alone"]


@pytest.mark.parametrize(("verdict", "heard"), [(Verdict.INPUT_BOUND, ["map is slow."]), (Verdict.NOT_INPUT_BOUND, [])])
def test_bottleneck_is_told_unless_the_input_holds_nothing_back(verdict: Verdict, heard: list[str]) -> None:
    kept, listener = journal()
    kept.report_bottleneck(Diagnosis(verdict, "", bottleneck_sentence="map is slow."))
    assert [said for event, said in listener.events if event == "bottleneck"] == heard


def test_trial_is_announced_ended_and_stored() -> None:
    kept, heard = journal()
    plan = Plan("plan")
    trial = Trial(plan, Outcome.REJECTED, "no gain")
    kept.notify("trying", plan=plan)
    kept.notify("trial", trial=trial)
    kept.notify("stage", name="ablation")
    announced = [event for event in heard.events if event[0] in ("started", "ended")]
    assert announced == [("started", plan.key), ("ended", plan.key)]
    assert kept.session.trials == (trial,)


def test_plan_without_measured_gain_is_not_reported_as_best() -> None:
    """An unmeasured plan had been shown as "best so far" for 80 s."""
    kept, heard = journal()
    plan = Plan("plan")
    kept.notify("best", plan=plan, gain=None)
    kept.report_progress("measuring")
    kept.notify("best", plan=plan, gain=Interval(1.31, 1.2, 1.4, 8))
    kept.report_progress("measuring")
    assert heard.best == ["", "plan, 1.31x"]
