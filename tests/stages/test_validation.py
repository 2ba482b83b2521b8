"""When validation is studied, what is tried, and what becomes of it; seconds and source text are given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import Consumption
from pipetune.core.distribution import DATASET, InputDistribution
from pipetune.core.edits import Consent, Insert, Plan, Rewrite, Safety, SetArgument
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.results import DatasetCost, Interval, Outcome, Trial
from pipetune.core.session import DatasetResult, PatchResult, Rejection, RejectionReason, Session
from pipetune.core.settings import Command, Settings
from pipetune.source.emit import Emission
from pipetune.stages import validation as stage
from pipetune.stages.dataset_costs import with_validation_shares
from pipetune.stages.emission import inherited_by
from pipetune.stages.study import Study
from tests.stages.studies import study_of
from tests.words import pipeline

Dataset = tf.data.Dataset
PROFILE = Profile((), ConsumerProfile("keras-fit", real_seconds=0.01))
COST = DatasetCost(element_wall_seconds=0.01, epoch_elements=10, first_wall_seconds=0.9)


def split(function: Any = lambda x: x * 2) -> Any:
    return Dataset.range(100).map(function).skip(60).batch(4)


def study(validation: Any = None, *, cost: DatasetCost = COST, **settings: Any) -> Study:
    """A study of a script whose training takes 1 s an epoch, and whose validation costs `cost`."""
    use = Consumption(split() if validation is None else validation, "validation", "validation", "fit")
    made = study_of(Dataset.range(400).batch(4), use, budget_seconds=60.0, trials=False, quick=True)
    made.settings = replace(Settings(), **settings)
    made.patch_is_verified = True
    training, result = made.journal.session.datasets
    training = replace(training, cost=DatasetCost(epoch_elements=100))
    datasets = with_validation_shares((training, replace(result, cost=cost)), PROFILE)
    made.journal.update(datasets=tuple(datasets))
    return made


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the stage is told in place of passes and source text: change it before the call."""
    told: dict[str, Any] = {"seconds": 0.25, "refused": "", "digests": ("a", "b")}

    def emission(_session: Any, _result: Any, plan: Plan, _inherited: Plan) -> Emission:
        refused = tuple(Rejection(one.rule, one.node, told["refused"]) for one in plan.rewrites if told["refused"])
        covered = () if refused else tuple(one.key for one in plan.rewrites)
        return Emission({"train.py": ("old", "new")}, covered, refused)

    monkeypatch.setattr("pipetune.stages.study.OTHERS_COMPARISON_SECONDS", 60.0)  # however busy the machine is
    monkeypatch.setattr(stage, "emission_for_validation", emission)
    monkeypatch.setattr(stage, "patch_of", lambda _study, found, _plan: PatchResult("diff", covered=found.covered))
    monkeypatch.setattr(stage, "pass_seconds", lambda _dataset, **_limits: told["seconds"])
    monkeypatch.setattr(stage, "expected_digests", lambda _dataset, seed: told["digests"])
    return told


def test_plan_that_keeps_the_data_and_shortens_a_pass_is_to_be_verified(given: dict[str, Any]) -> None:
    one = study()
    assert stage.tune_validation(one, None)
    result = one.journal.session.validation
    assert result is not None and result.plan is not None and result.patch is not None
    assert [rewrite.rule for rewrite in result.plan.rewrites] == ["split-early", "cache"]
    assert [node.op for node in result.tuned or ()] == ["range", "skip", "map", "batch", "cache"]
    assert result.comparison is not None and result.comparison.proven
    assert result.patch.expected == ("a", "b") and result.order is not None and result.input_speedup is None
    assert one.journal.session.patch is None and one.journal.session.datasets[0].plan is None
    assert one.journal.studies_training and one.journal.session.seconds["validation"] >= 0


def test_no_cache_is_tried_for_a_pass_whose_end_was_not_seen(given: dict[str, Any]) -> None:
    one = study(cost=replace(COST, whole_pass=False))
    assert stage.tune_validation(one, None)
    result = one.journal.session.validation
    assert result is not None and result.plan is not None
    assert [rewrite.rule for rewrite in result.plan.rewrites] == ["split-early"]


def test_it_takes_more_of_the_time_where_training_is_faster(given: dict[str, Any]) -> None:
    one, plan = study(), Plan("tuned", (Rewrite("prefetch", "n1", Safety.EXACT, (), ""),))
    training, result = one.journal.session.datasets
    before = plan.with_rewrite(Rewrite("cache", "n2", Safety.EXACT, (), ""))  # ablation
    trial = Trial(before, Outcome.ACCEPTED, "", gain=Interval(3.0, 2.0, 4.0, 8), unit="training")
    more = replace(trial, gain=Interval(1.1, 0.9, 1.3, 8), outcome=Outcome.UNDECIDED)  # over the plan so far
    without = replace(trial, plan=plan, gain=Interval(4.0, 3.0, 5.0, 8), kind="ablation")
    cases = (
        ((), 0.04, False),
        ((trial, without), 0.015, False),
        ((without,), 0.04, False),
        ((trial, more), 0.04, True),
    )
    for trials, share, tuned in cases:
        one.journal.update(trials=trials, datasets=(training, replace(result, share=share)))
        assert stage.tune_validation(one, plan) is tuned


@pytest.mark.parametrize(
    ("told", "why", "reason"),
    [
        ({"seconds": 0.95}, "A pass takes 0.95 s with it and 1 s without.", RejectionReason.NOT_FASTER),
        ({"refused": "The call is shared."}, "The call is shared.", None),
    ],
)
def test_what_is_not_worth_it_is_rejected(given: dict[str, Any], told: Any, why: str, reason: Any) -> None:
    given.update(told)
    one = study()
    assert not stage.tune_validation(one, None)
    rejected = one.journal.session.datasets[1].rejected
    assert [part.rule for part in rejected] == ["split-early", "cache"]
    assert all(part.why.startswith(why) and part.reason is reason for part in rejected)
    assert one.journal.session.validation is None


@pytest.mark.parametrize("seed", [None, 5])
def test_draws_that_no_run_repeats_are_passed(given: dict[str, Any], seed: int | None) -> None:
    one = study(split(lambda x: x + tf.random.uniform([], maxval=9, dtype=tf.int64, seed=seed)))
    assert stage.tune_validation(one, None) == (seed is None)
    result = one.journal.session.datasets[1]
    assert result.rejected == ()
    if seed is None:
        assert result.plan is not None and [rewrite.rule for rewrite in result.plan.rewrites] == ["split-early"]
        assert result.comparison is not None and result.comparison.safety is Safety.STATISTICAL


@pytest.mark.parametrize("seconds", [0.25, 0.95])
def test_what_the_patch_for_training_changes_is_measured_for_validation(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    shared = Rewrite("parallel-map", "n1", Safety.EXACT, (SetArgument("n1", "num_parallel_calls", 2),), "")
    monkeypatch.setattr(stage, "inherited_by", lambda *_: Plan("validation", (shared,)))
    given["seconds"] = seconds
    one = study(Dataset.range(100).map(lambda x: x * 2).shuffle(9).batch(4), without=frozenset({"cache"}))
    assert stage.tune_validation(one, Plan("tuned", (shared,))) == (seconds < 0.9)
    result = one.journal.session.datasets[1]
    assert result.rejected == ()
    if seconds < 0.9:
        assert result.plan is not None and result.plan.rewrites == (shared,)
        assert result.patch is not None and result.patch.covered == ()


def tried(data: Any, *, epochs: int = 9, allow: frozenset[Consent] = frozenset(), **use: Any) -> list[str]:
    """The rules of what is tried of 10 elements of validation, with 1 MB of memory."""
    made = study(data, allow=allow)
    made.subject.use.epochs, made.subject.use.epochs_certain = epochs, True
    ((source, consumed),) = made.subject.other_datasets
    found, *_ = stage._candidates(
        made, source, replace(consumed, **use), inherited=Plan(""), elements=10, free_bytes=1_000_000.0
    )
    return [one.rule for one in found]


def test_whole_validation_is_cached_where_every_epoch_is_the_same_and_it_fits() -> None:
    plain = Dataset.range(40).map(lambda x: tf.fill([1000], x)).batch(4)
    assert tried(plain) == tried(plain, epochs=3) == tried(plain.prefetch(2)) == ["cache"]
    assert tried(plain, epochs=2) == []  # two passes: only one of them gains
    assert tried(plain, steps_per_epoch=5) == []  # never read to its end
    assert tried(plain.cache()) == tried(Dataset.range(40).shuffle(9).batch(4)) == []
    shuffled = Dataset.range(40).map(lambda x: tf.fill([1000], x)).shuffle(9).batch(4)
    assert tried(plain.shuffle(9)) == tried(shuffled) == tried(shuffled.map(lambda x: x + 1)) == ["cache"]
    assert tried(Dataset.range(40).map(lambda x: tf.fill([9000], x)).batch(4)) == []  # 2.9 MB
    drawn = Dataset.range(40).map(lambda x: tf.random.uniform([9])).batch(4)
    assert tried(drawn) == []
    python = Dataset.range(40).map(lambda x: tf.numpy_function(abs, [x], tf.int64)).batch(4)
    assert tried(python) == []
    assert tried(python, allow=frozenset({Consent.PYTHON_CACHE})) == ["cache"]


def test_validation_is_not_studied_where_it_is_not_wanted(given: dict[str, Any]) -> None:
    one = study()
    without = {"without": frozenset({"split-early", "cache"})}
    for settings in ({"trials": False}, {"dataset": "all"}, {"dataset": "validation"}, without, {}):
        one.settings = replace(Settings(), **settings)  # type: ignore[arg-type]
        one.patch_is_verified = bool(settings)
        assert not stage.tune_validation(one, None), settings
        assert one.journal.session.notes == () and one.journal.session.datasets[1].plan is None


@pytest.mark.parametrize("workers", [1, 2])
def test_validation_is_studied_where_one_process_trains(given: dict[str, Any], workers: int) -> None:
    one = study()
    handover = InputDistribution("MirroredStrategy", 2, DATASET, workers=workers)
    one.subject.use.distributed_input = cast(Any, SimpleNamespace(handover=lambda: handover))
    assert stage.tune_validation(one, None) == (workers == 1)


def test_cheap_validation_is_left_alone(given: dict[str, Any]) -> None:
    one = study(cost=replace(COST, first_wall_seconds=0.0, element_wall_seconds=0.001))
    assert not stage.tune_validation(one, None)
    assert one.journal.session.datasets[1].rejected == ()


def test_what_no_time_was_left_for_is_told(given: dict[str, Any]) -> None:
    one = study(cost=replace(COST, first_wall_seconds=9.0))
    assert not stage.tune_validation(one, None)
    assert one.journal.session.notes == (
        "No time was left to try rewrites of validation within the budget: --dataset validation analyzes it.",
    )


def test_changes_of_shared_calls_that_keep_all_elements_are_inherited() -> None:
    """The words of both pipelines stand at the same lines: they share the calls of the operators they share."""
    training = replace(pipeline("range 100 | map | take 60"), name="training")
    validation = replace(pipeline("range 100 | map | skip 60"), name="validation")
    shared = Rewrite("parallel-map", "n1", Safety.EXACT, (SetArgument("n1", "num_parallel_calls", AUTOTUNE),), "")
    cache = Rewrite("cache", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1"),), "")
    own = Rewrite("prefetch", "n2", Safety.EXACT, (Insert("n2", "prefetch", "p", {"buffer_size": 1}),), "")
    plan = Plan("tuned", (shared, cache, own))
    result = DatasetResult(validation, "validation")
    patch = PatchResult(covered=tuple(one.key for one in plan.rewrites))
    session = Session("0", Command(), datasets=(DatasetResult(training, "training", plan=plan), result), patch=patch)
    assert [one.rule for one in inherited_by(session, result).rewrites] == ["parallel-map"]
    both = replace(session, patch=replace(patch, shared=(cache.key,)))
    assert [one.rule for one in inherited_by(both, result).rewrites] == ["parallel-map", "cache"]
    part = replace(session, patch=replace(patch, covered=(own.key,)))
    assert inherited_by(part, result).rewrites == inherited_by(replace(session, patch=None), result).rewrites == ()
