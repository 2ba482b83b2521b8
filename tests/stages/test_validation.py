"""What each dataset of a script costs; when validation is studied, what is tried, and what becomes of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import Consumption
from pipetune.core.distribution import DATASET, InputDistribution
from pipetune.core.edits import Consent, Insert, Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.results import DatasetCost, Outcome, RejectionReason, Trial
from pipetune.core.session import DatasetResult, PatchResult, Rejection, Session
from pipetune.core.settings import Command, Settings
from pipetune.measure.caches import with_full_caches
from pipetune.source.emit import Emission
from pipetune.stages import dataset_costs
from pipetune.stages import validation as stage
from pipetune.stages.dataset_costs import with_validation_shares
from pipetune.stages.emission import emission_for_validation, inherited_by
from pipetune.stages.profiling import take_profile
from pipetune.stages.study import Study
from tests.source.recorder import record, recorded, shape
from tests.stages.studies import study_here, study_of
from tests.words import pipeline

Dataset = tf.data.Dataset


def test_cost_is_measured_for_each_dataset_of_script(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Consumption(Dataset.range(10), "checked", "evaluation", "evaluate", wall_seconds=2.0, cpu_seconds=1.0)
    taken.whole_call = True
    unknown = Consumption(Dataset.range(40).filter(lambda x: x % 2 == 0).batch(4), "data", "validation", "fit")
    study = study_here(Dataset.range(64).batch(4), taken, unknown)
    monkeypatch.setattr(dataset_costs, "_OTHER_SECONDS", 0.05)
    monkeypatch.setattr("pipetune.stages.profiling._COST_SECONDS", 0.1)
    dataset_costs.measure_dataset_costs(study, take_profile(study))
    train, checked, validation = (result.cost for result in study.journal.session.datasets)
    assert train is not None and train.element_wall_seconds and train.element_cpu_seconds
    assert train.epoch_elements == 16 and train.epoch_wall_seconds
    assert checked is not None and (checked.taken_wall_seconds, checked.taken_cpu_seconds) == (2.0, 1.0)
    assert checked.whole_call and checked.element_wall_seconds and checked.epoch_elements == 10
    assert validation is not None and validation.epoch_elements == 5 and validation.epoch_wall_seconds
    assert validation.whole_pass


def test_validation_is_measured_before_what_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = [Consumption(Dataset.range(99).batch(4), f"words{index}", "adapt", "adapt") for index in range(3)]
    unknown = Consumption(Dataset.range(40).filter(lambda x: x % 2 == 0).batch(4), "data", "validation", "fit")
    monkeypatch.setattr(dataset_costs, "_OTHER_SECONDS", 0.2)
    monkeypatch.setattr(dataset_costs, "_OTHERS_SECONDS", 1.0)
    study = study_here(Dataset.range(64).batch(4), *uses, unknown)
    dataset_costs.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    cost = study.journal.session.datasets[-1].cost
    assert cost is not None and cost.epoch_elements == 5


def test_pass_whose_end_is_not_seen_costs_what_is_seen_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Dataset.range(1000).map(lambda x: tf.numpy_function(lambda one: time.sleep(0.01) or one, [x], tf.int64))
    use = Consumption(slow.filter(lambda x: x >= 0), "held_out", "validation", "fit")
    monkeypatch.setattr(dataset_costs, "_OTHER_SECONDS", 0.05)
    monkeypatch.setattr(dataset_costs, "_OTHERS_SECONDS", 0.5)
    study = study_here(Dataset.range(64).batch(4), use)
    dataset_costs.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    cost = study.journal.session.datasets[1].cost
    assert cost is not None and cost.epoch_elements is not None and 1 < cost.epoch_elements < 1000
    assert not cost.whole_pass and cost.epoch_wall_seconds


def test_dataset_whose_elements_took_the_script_long_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the only element of `ratings.batch(1_000_000)`, for which all records are read."""
    monkeypatch.setattr(dataset_costs, "_OTHER_SECONDS", 0.05)
    uses = [
        Consumption(Dataset.range(64).batch(4), name, "preview", "iter", elements=2, wall_seconds=seconds)
        for name, seconds in (("titles", 2.0), ("shown", 0.01))
    ]
    study = study_here(Dataset.range(64).batch(4), *uses)
    dataset_costs.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    costs = [result.cost for result in study.journal.session.datasets[1:]]
    assert [one is not None and one.element_wall_seconds is not None for one in costs] == [False, True]


@pytest.mark.parametrize(
    ("seconds", "after", "read", "known"),
    [
        (0.02, lambda cached: cached.batch(4), True, True),  # 0.16 s to fill it
        (0.5, lambda cached: cached.batch(4), True, False),  # 4 s
        (0.02, lambda cached: cached.prefetch(2), False, False),  # nothing is left to measure
    ],
)
def test_validation_that_the_script_caches_costs_what_its_later_passes_take(
    seconds, after, read, known, monkeypatch
) -> None:
    calls, filled = [], []

    def wait(number: Any) -> Any:
        calls.append(number)
        time.sleep(seconds)
        return number

    def fill(*given: Any, **limits: Any) -> Any:
        full = with_full_caches(*given, **limits)
        filled.append(len(calls))
        return full

    monkeypatch.setattr(dataset_costs, "with_full_caches", fill)
    slow = Dataset.range(8).map(lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.int64), []))
    study = study_here(Dataset.range(64).batch(4), Consumption(after(slow.cache()), "held_out", "validation", "fit"))
    dataset_costs.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    cost = study.journal.session.datasets[1].cost
    assert cost is not None and (cost.element_wall_seconds is not None) is known
    assert not known or filled == [len(calls)]
    assert bool(calls) is read


def test_validation_whose_input_takes_much_of_an_epoch_is_warned_about() -> None:
    def result(role: str, cost: DatasetCost, *, ops: tuple[str, ...] = ("range",)) -> DatasetResult:
        nodes = tuple(Node(f"n{index}", op, (f"n{index - 1}",) if index else ()) for index, op in enumerate(ops))
        return DatasetResult(Pipeline(nodes, role), role, cost=cost)

    profile = Profile((), ConsumerProfile("loop", real_seconds=0.01))
    training = result("training", DatasetCost(epoch_elements=1000))
    cheap = result("validation", DatasetCost(element_wall_seconds=0.001, epoch_elements=100))
    after_skip = DatasetCost(element_wall_seconds=0.001, epoch_elements=100, first_wall_seconds=9.9)
    dear = result("validation", after_skip, ops=("range", "map", "skip"))
    slower = result("validation", DatasetCost(element_wall_seconds=0.1 / 24, epoch_elements=100))
    assert dataset_costs.with_validation_shares([training, slower], profile, most_saved=0.1)[1].share is None
    beside = dataset_costs.with_validation_shares([training, cheap, result("evaluation", after_skip)], profile)
    assert dataset_costs.validation_findings(beside) == []
    (found,) = dataset_costs.validation_findings(dataset_costs.with_validation_shares([training, dear], profile))
    whole = "By its input alone, validation takes at least 50 % of the time for training and validation: 10 s of 20 s."
    assert found.message == whole  # with what the model computes, it takes more
    assert found.hint.startswith("--dataset validation analyzes it. Move skip()")
    (_, saved) = dataset_costs.with_validation_shares([training, slower], profile, most_saved=0.5)
    assert saved.share == pytest.approx(0.04) and dataset_costs.validation_findings([training, saved]) == []
    rare, often = (result("validation", replace(after_skip, training_steps=steps)) for steps in (30_000, 250))
    endless = result("training", DatasetCost())
    rated = dataset_costs.with_validation_shares([endless, rare, often, dear], profile)
    assert [one.share for one in rated] == [None, None, pytest.approx(0.04 / (0.01 + 0.04 + 10 / 30_000)), None]


def test_another_dataset_that_each_step_reads_is_told_where_it_takes_much_of_the_step() -> None:
    profile = Profile((), ConsumerProfile("loop", real_seconds=0.01))

    def told(milliseconds: float, *, in_turn: bool = True) -> list[str]:
        cost = DatasetCost(element_wall_seconds=milliseconds / 1000)
        other = DatasetResult(Pipeline((Node("n0", "range"),), "others"), "preview", cost=cost, in_turn=in_turn)
        return [one.message for one in dataset_costs.second_input_findings([other], profile)]

    (message,) = told(2.5)
    assert message.startswith("Each training step takes an element of others, too. It needs up to 2.5 ms of the 10 ms")
    assert told(0.4) == told(2.5, in_turn=False) == []
    assert "up to 1,200 ms of the 10 ms" in told(1200)[0]


def test_validation_follows_as_many_steps_as_fit_takes_in_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = Consumption(Dataset.range(8), "held_out", "validation", "fit", every=2)
    study = study_here(Dataset.range(1000), held_out)
    study.subject.use.steps_per_epoch = 10
    monkeypatch.setattr(dataset_costs, "_OTHERS_SECONDS", 0.0)
    dataset_costs.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    training, validation = (result.cost for result in study.journal.session.datasets)
    assert training is not None and training.epoch_elements == 1000
    assert validation is not None and validation.training_steps == 20


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
    assert [rewrite.rule for rewrite in result.plan.rewrites] == ["split-early", "cache"]
    assert [node.op for node in result.tuned or ()] == ["range", "skip", "map", "batch", "cache"]
    assert result.comparison is not None and result.comparison.proven
    assert result.patch.expected == ("a", "b") and result.order is not None and result.input_speedup is None
    assert one.journal.session.patch is None and one.journal.session.datasets[0].plan is None
    assert one.journal.studies_training and one.journal.session.seconds["validation"] >= 0


@pytest.mark.parametrize(
    ("noted", "behind"), [((), "batch"), (("batch",), "prefetch"), (("batch", "prefetch"), "batch")]
)
def test_of_places_for_a_cache_one_that_needs_no_note_is_taken(given, monkeypatch, noted, behind) -> None:
    emission = stage.emission_for_validation

    def with_notes(session: Any, result: Any, plan: Plan, inherited: Plan) -> Emission:
        after = result.pipeline[plan.rewrites[-1].node].op
        return replace(emission(session, result, plan, inherited), notes=("A new parameter.",) * (after in noted))

    monkeypatch.setattr(stage, "emission_for_validation", with_notes)
    one = study(Dataset.range(40).map(lambda x: x * 2).batch(4).prefetch(2))
    assert stage.tune_validation(one, None)
    tuned = one.journal.session.validation.tuned
    (cache,) = [node for node in tuned or () if node.op == "cache"]
    assert tuned[cache.inputs[0]].op == behind


def test_no_cache_is_tried_for_a_pass_whose_end_was_not_seen(given: dict[str, Any]) -> None:
    one = study(cost=replace(COST, whole_pass=False))
    assert stage.tune_validation(one, None)
    result = one.journal.session.validation
    assert [rewrite.rule for rewrite in result.plan.rewrites] == ["split-early"]


REORDER = frozenset({Consent.REORDER})


def in_other_orders() -> Any:
    """Data in an order that no cache leaves as it is: the shuffle cannot move past the filter."""
    pairs = Dataset.zip((Dataset.range(40), Dataset.range(40)))  # as `image_dataset_from_directory` does, in memory
    return pairs.shuffle(9).filter(lambda x, y: x == y).map(lambda x, y: x * y).batch(4)


def test_cache_that_freezes_an_order_is_offered_and_needs_approval(given: dict[str, Any]) -> None:
    one = study(in_other_orders(), without=frozenset({"parallel-map"}))
    assert not stage.tune_validation(one, None)
    result = one.journal.session.datasets[1]
    (offer,) = result.offered
    assert (offer.rewrite.rule, offer.consent, offer.gain) == ("cache", "--allow reorder", None)
    assert offer.why == "A pass takes 0.25 s with it and 1 s without."
    assert "freezes the order" in offer.rewrite.notes[-1]
    assert result.plan is None and result.rejected == () and one.journal.session.validation is None
    allowed = study(in_other_orders(), allow=REORDER)
    assert stage.tune_validation(allowed, None)
    result = allowed.journal.session.validation
    assert [node.op for node in result.tuned or ()][-1] == "cache" and result.offered == ()
    assert result.comparison is not None and result.comparison.proven


@pytest.mark.parametrize("told", [{"seconds": 0.95}, {"refused": "The call is shared."}])
def test_cache_that_freezes_an_order_for_nothing_is_not_offered(given: dict[str, Any], told: Any) -> None:
    given.update(told)
    one = study(in_other_orders(), without=frozenset({"parallel-map"}))
    assert not stage.tune_validation(one, None)
    assert one.journal.session.datasets[1].offered == ()


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


@pytest.mark.parametrize(("told", "why", "reason"), [
    ({"seconds": 0.95}, "A pass takes 0.95 s with it and 1 s without.", RejectionReason.NOT_FASTER),
    ({"refused": "The call is shared."}, "The call is shared.", None),
])  # fmt: skip
def test_what_is_not_worth_it_is_rejected(given: dict[str, Any], told: Any, why: str, reason: Any) -> None:
    given.update(told)
    one = study()
    assert not stage.tune_validation(one, None)
    rejected = one.journal.session.datasets[1].rejected
    assert [part.rule for part in rejected] == ["split-early", "cache"]
    assert all(part.why.startswith(why) and part.reason is reason for part in rejected)
    assert one.journal.session.validation is None


def test_cache_stands_alone_where_source_has_no_form_for_the_move_that_excludes_it(given, monkeypatch) -> None:
    def without_moves(session: Any, result: Any, plan: Plan, inherited: Plan) -> Emission:
        covered = tuple(one.key for one in plan.rewrites if one.rule == "cache")
        return Emission({"train.py": ("old", "new")}, covered, ())

    monkeypatch.setattr(stage, "emission_for_validation", without_moves)
    windows = Dataset.range(100).window(3, 1, 1, True).flat_map(lambda window: window.batch(3))
    one = study(windows.map(lambda x: x * 2).skip(60).batch(4))  # no cache behind that batch: see the test of rules
    assert stage.tune_validation(one, None)
    result = one.journal.session.validation
    assert [node.op for node in result.tuned or ()] == ["range", "window", "flat_map", "map", "skip", "cache", "batch"]


CACHE = Rewrite("cache", "n2", Safety.EXACT, (Insert("n2", "cache", "cache@n2"),), "")
CALLED = """import tensorflow as tf
def make(n, size):
    ds = tf.data.Dataset.range(n).map(abs)
    ds = ds.batch(size)
    return ds.prefetch(2)
train(make(9, 4))
validate(make(5, 2))
"""


@pytest.mark.parametrize(("more", "both"), [
    ("", True),
    ("make(3, 2)\n", False),  # a third dataset of the same call
    ("def later():\n    test(make(3, 2))\n", False),  # which is made when nobody looks any more
])  # fmt: skip
def test_what_training_and_validation_have_alike_needs_no_parameter(more: str, both: bool, tmp_path: Path) -> None:
    path, recorder = recorded(tmp_path, CALLED + more)
    pipelines = {name: recorder.pipeline(name) for name in ("train", "validate")}
    plan, patch = Plan("train", (CACHE,)), PatchResult("", covered=(CACHE.key,))
    training = DatasetResult(pipelines["train"], "training", plan=plan)
    result = DatasetResult(pipelines["validate"], "validation")
    session = Session("0", Command(), datasets=(training, result), patch=patch)
    found = emission_for_validation(session, result, Plan("validate", (CACHE,)), Plan(""))
    assert found.covered == (CACHE.key,) and found.not_covered == ()
    ((_, (_, new)),) = found.files.items()
    assert ("    ds = ds.batch(size).cache()\n" in new) is both
    assert ("make(9, 4, cache=True)" in new and "make(5, 2, cache=True)" in new) is not both
    patched = record(path, new)
    for name, before in pipelines.items():
        assert shape(patched.pipeline(name)) == shape(apply_edits(before, CACHE.edits))


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
def test_what_the_patch_for_training_changes_is_measured_for_validation(given, monkeypatch, seconds) -> None:
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
    consumed = replace(consumed, **use)
    reorders = Consent.REORDER in allow
    found, *_ = stage._candidates(
        made, source, consumed, inherited=Plan(""), elements=10, free_bytes=1e6, reorders=reorders
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
    names_alone = Dataset.range(40).cache().map(lambda x: tf.fill([1000], x)).batch(4)
    assert tried(names_alone) == ["cache"]  # what the script keeps took no work
    drawn = Dataset.range(40).map(lambda x: tf.random.uniform([9])).batch(4)
    assert tried(drawn) == []
    python = Dataset.range(40).map(lambda x: tf.numpy_function(abs, [x], tf.int64)).batch(4)
    assert tried(python) == []
    assert tried(python, allow=frozenset({Consent.PYTHON_CACHE})) == ["cache"]
    assert tried(in_other_orders()) == [] and tried(in_other_orders(), allow=REORDER) == ["cache"]
    assert tried(drawn, allow=REORDER) == []


def test_validation_is_not_studied_where_it_is_not_wanted(given: dict[str, Any]) -> None:
    one = study()
    without = {"without": frozenset({"split-early", "cache"})}
    for settings in ({"trials": False}, {"dataset": "all"}, without, {}):
        one.settings = replace(Settings(), **settings)  # type: ignore[arg-type]
        one.patch_is_verified = bool(settings)
        assert not stage.tune_validation(one, None), settings
        assert one.journal.session.notes == () and one.journal.session.datasets[1].plan is None


def test_validation_is_studied_where_the_user_names_the_data_trained_on(given: dict[str, Any]) -> None:
    assert stage.tune_validation(study(dataset="training"), None)


@pytest.mark.parametrize("workers", [1, 2])
def test_validation_is_studied_where_one_process_trains(given: dict[str, Any], workers: int) -> None:
    one = study()
    handover = InputDistribution("MirroredStrategy", 2, DATASET, workers=workers)
    one.subject.use.distributed_input = cast(Any, SimpleNamespace(handover=handover))
    assert stage.tune_validation(one, None) == (workers == 1)


NO_TIME = "No time was left to try rewrites of validation within the budget: --dataset validation analyzes it."


@pytest.mark.parametrize(("first", "each", "notes"), [(0.0, 0.001, ()), (9.0, 0.01, (NO_TIME,))], ids=["cheap", "late"])
def test_validation_that_is_cheap_or_takes_too_long_is_left_alone(given, first, each, notes) -> None:
    one = study(cost=replace(COST, first_wall_seconds=first, element_wall_seconds=each))
    assert not stage.tune_validation(one, None)
    assert one.journal.session.datasets[1].rejected == () and one.journal.session.notes == notes


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
