"""What a study knows of the script, which of its datasets are tuned, and errors in what only informs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from tensorflow.python.data.ops import debug_mode

from pipetune import workflow
from pipetune.capture.consumption import Consumption, NoConsumer
from pipetune.core.errors import PipetuneError
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.core.time_plan import AFTER_NO_SECONDS, Part
from pipetune.pipelines import live
from pipetune.stages.study import Study, Subject, examples_of_batches
from tests.stages.studies import numbers, study_of

Dataset = tf.data.Dataset


def _fixed(dataset: Any) -> bool:
    use = Consumption(dataset=dataset, variable="train", role="training", consumer_call="test")
    return Subject(live.read(dataset, name="train"), NoConsumer("nobody trains"), use).randomness_fixed


def test_datasets_in_debug_mode_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_mode, "DEBUG_MODE", True)
    with pytest.raises(PipetuneError, match="debug mode"):
        _fixed(Dataset.range(9))


def test_seed_and_deterministic_option_fix_randomness() -> None:
    assert _fixed(Dataset.range(9).shuffle(3, seed=1))
    assert not _fixed(Dataset.range(9).shuffle(3))
    for asked in (True, False):
        options = tf.data.Options()
        options.deterministic = asked
        assert _fixed(Dataset.range(9).with_options(options)) is asked


def test_validation_is_tuned_first_and_previews_are_not() -> None:
    def use(role: str, elements: int) -> tuple[Any, Consumption]:
        dataset = Dataset.range(9)
        return live.read(dataset), Consumption(dataset, role, role, "for", elements=elements)

    others = (use("preview", 3), use("adapt", 40), use("preview", 500), use("validation", 0), use("evaluation", 9))
    source, training = use("training", 20)
    subject = Subject(source, NoConsumer("alone"), training, others)
    assert subject.others_worth_tuning() == [3, 4, 1, 2]


@pytest.mark.parametrize("seed", [None, 1])
def test_study_of_another_dataset_keeps_what_the_script_does_elsewhere(seed: int | None) -> None:
    made = study_of(Dataset.range(9).shuffle(3, seed=seed), Consumption(Dataset.range(9), "check", "validation", "fit"))
    saves = ResumePoint(ResumeMethod.ITERATOR_STATE, "tf.train.Checkpoint(iterator=...)")
    made.subject = replace(made.subject, resuming=(ResumePoint(ResumeMethod.SKIP, "skip(3)", node="n0"), saves))
    other = made.for_other(0).subject
    assert other.resuming == (saves,), "the other is about an operator of training"
    assert other.written_files is made.subject.written_files
    assert other.randomness_fixed is (seed is not None)


TEN = Dataset.range(10)


@pytest.mark.parametrize(("dataset", "examples"), [
    (TEN.batch(4), 4),
    (TEN.batch(4).shuffle(2).repeat().prefetch(2), 4),
    (TEN.batch(40), 10),
    (TEN.batch(2).batch(3), 3),
    (TEN.map(lambda x: tf.zeros([x])).padded_batch(4), 4),
    (TEN.batch(4).map(lambda x: x[:1]), None),
    (TEN.batch(4).unbatch(), None),
    (TEN, None),
])  # fmt: skip
def test_examples_are_read_from_the_pipeline_only_where_it_shows_them(dataset: Any, examples: int | None) -> None:
    assert examples_of_batches(live.read(dataset).pipeline) == examples


def test_state_that_a_function_draws_from_is_as_it_was() -> None:
    """The examples of one element are only known from one: its functions run, and read ahead behind a prefetch."""
    drawn = tf.Variable(0, dtype=tf.int64)
    dataset = Dataset.range(64).batch(4).map(lambda rows: rows + drawn.assign_add(1)).prefetch(2)
    assert study_of(dataset).runner.examples_per_element == 4.0
    assert int(drawn) == 0


def test_examples_of_an_element_are_found_without_filling_the_shuffle() -> None:
    read: list[Any] = []

    def count(number: Any) -> Any:
        read.append(number)
        return number

    numbers = Dataset.range(5000).map(lambda x: tf.ensure_shape(tf.numpy_function(count, [x], tf.int64), []))
    assert study_of(numbers.shuffle(5000).batch(4).map(tf.abs)).runner.examples_per_element == 4.0
    assert 4 <= len(read) < 1000


# -- what is measured after the decision


@pytest.mark.parametrize(("owner", "name", "studied", "note"), [
    (workflow, "measure_epochs", None, "only inform, ended with an error (KeyError: 'theirs')"),
    (Study, "for_other", "all", "another dataset ended with an error (KeyError: 'theirs')"),
])  # fmt: skip
def test_error_after_the_decision_loses_nothing(monkeypatch, capsys, owner, name, studied, note) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("theirs")

    monkeypatch.setattr(owner, name, fails)
    other = Consumption(numbers(), "check", "validation", "Model.fit")
    study = study_of(numbers(), *([other] if studied else []), trials=False, budget_seconds=5.0)
    study.settings = replace(study.settings, dataset=studied)
    session = workflow.analyze(study)
    assert session.status == "done" and session.complete
    assert session.main_dataset.profile is not None and (studied or session.main_dataset.cost is not None)
    assert any(note in one for one in session.notes)
    assert "in fails" in capsys.readouterr().err


@pytest.mark.parametrize("much", [False, True])
def test_analysis_ends_soon_after_a_no_unless_validation_costs_much(monkeypatch, much) -> None:
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
