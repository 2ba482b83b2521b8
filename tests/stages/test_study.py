"""When the randomness of a script counts as fixed, and which of its datasets are tuned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from tensorflow.python.data.ops import debug_mode

from pipetune.capture.consumption import Consumption, NoConsumer
from pipetune.core.errors import PipetuneError
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import live
from pipetune.stages.study import Subject, examples_of_batches
from tests.stages.studies import study_of

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


@pytest.mark.parametrize(
    ("dataset", "examples"),
    [
        (TEN.batch(4), 4),
        (TEN.batch(4).shuffle(2).repeat().prefetch(2), 4),
        (TEN.batch(40), 10),
        (TEN.batch(2).batch(3), 3),
        (TEN.map(lambda x: tf.zeros([x])).padded_batch(4), 4),
        (TEN.batch(4).map(lambda x: x[:1]), None),
        (TEN.batch(4).unbatch(), None),
        (TEN, None),
    ],
)
def test_examples_are_read_from_the_pipeline_only_where_it_shows_them(dataset: Any, examples: int | None) -> None:
    assert examples_of_batches(live.read(dataset).pipeline) == examples


def test_state_that_a_function_draws_from_is_as_it_was() -> None:
    """The examples of one element are only known from one: its functions run, and read ahead behind a prefetch."""
    drawn = tf.Variable(0, dtype=tf.int64)
    dataset = Dataset.range(64).batch(4).map(lambda rows: rows + drawn.assign_add(1)).prefetch(2)
    assert study_of(dataset).runner.examples_per_element == 4.0
    assert int(drawn) == 0
