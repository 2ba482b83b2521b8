"""The verdict, the context of rules, rules that are left out, rewrites that replace AUTOTUNE, and a plan's patch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from benchmarks.recorded import rewrite
from pipetune.core.edits import Consent, Insert, Plan, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.measurement import Interval, Rate, RunFailed
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Stage
from pipetune.core.results import Comparison, EqualityCheck, Prediction
from pipetune.core.time_plan import VALIDATION_SECONDS, Part
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from pipetune.rewrites import propose_all
from pipetune.rewrites.rule import RuleContext
from pipetune.search.state import SearchState
from pipetune.stages import planning
from pipetune.stages.emission import make_patch
from pipetune.stages.planning import give_verdict, replaces_autotune
from pipetune.stages.study import rule_context
from tests.stages.studies import DIAGNOSIS, PROFILE, executed, numbers, study_of
from tests.words import pipeline


def test_epochs_are_in_rule_context_if_certain() -> None:
    one = study_of(numbers())
    for epochs, steps, certain in ((None, None, True), (7, 50, True), (7, 50, False)):
        use = replace(one.subject.use, epochs=epochs, steps_per_epoch=steps, epochs_certain=certain)
        one.subject = replace(one.subject, use=use)
        context = rule_context(one, PROFILE, DIAGNOSIS)
        assert (context.epochs, context.steps_per_epoch) == (epochs if certain else None, steps)
        assert context.epochs_in_loop == epochs


def test_operators_that_other_datasets_read_are_in_rule_context() -> None:
    cached = tf.data.Dataset.range(9).cache()
    one = study_of(cached.map(lambda x: x + 1).batch(2))
    assert not rule_context(one, PROFILE, DIAGNOSIS).read_by_others
    other = live.read(cached.take(2)), one.subject.use
    one.subject = replace(one.subject, other_datasets=(other,))
    assert rule_context(one, PROFILE, DIAGNOSIS).read_by_others == {"n0", "n1"}


@pytest.mark.parametrize(("make", "varies"), [(range, False), (np.random.permutation, True)])
def test_what_python_returns_is_read_twice(make: Callable[[int], Iterable[int]], varies: bool) -> None:
    spec = tf.TensorSpec([], tf.int64)
    one = study_of(tf.data.Dataset.from_generator(lambda: iter(make(99)), output_signature=spec).batch(4))
    operators = tuple(OperatorProfile(name, Stage.EXTRACT, cpu_seconds=1e-3, visits=1.0) for name in ("n0", "n1"))
    profile = planning.complete_profile(one, replace(PROFILE, operators=operators))
    assert [operator.varies for operator in profile.operators] == [varies, False]
    context = replace(rule_context(one, profile, DIAGNOSIS), epochs=9)
    offered = [one for one in propose_all(context)[0] if Consent.PYTHON_CACHE in one.needs]
    assert bool(offered) is not varies


def test_excluded_rules_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study_of(numbers())
    one.settings = replace(one.settings, without=frozenset({"cache"}))
    tried: list[str] = []

    def search(state: SearchState, **_more: object) -> None:
        tried.extend(candidate.rule for candidate in state.candidates)
        raise RunFailed("the test has seen enough")

    monkeypatch.setattr(planning, "complete_profile", lambda study, profile: profile)
    monkeypatch.setattr(planning, "watch_autotune", lambda study: None)
    monkeypatch.setattr(planning, "propose_all", lambda context: ([rewrite("cache"), rewrite("prefetch")], []))
    monkeypatch.setattr(planning, "search", search)
    with pytest.raises(RunFailed, match="seen enough"):
        planning.find_plan(one, PROFILE, DIAGNOSIS)
    assert tried == ["prefetch"]


@pytest.mark.parametrize(("share", "kept"), [(0.01, 0.0), (0.06, VALIDATION_SECONDS), (None, 0.0)])
def test_time_is_kept_for_validation_where_it_is_studied_without_a_plan(share, kept, monkeypatch) -> None:
    one = study_of(numbers(), budget_seconds=60.0)
    one.journal.update_dataset(share=share)

    def search(state: SearchState, **_more: object) -> None:
        state.budget.decide()
        raise RunFailed("the test has seen enough")

    monkeypatch.setattr(planning, "complete_profile", lambda study, profile: profile)
    monkeypatch.setattr(planning, "watch_autotune", lambda study: None)
    monkeypatch.setattr(planning, "validation_costs_much", lambda *_: share is not None)
    monkeypatch.setattr(planning, "search", search)
    with pytest.raises(RunFailed, match="seen enough"):
        planning.find_plan(one, PROFILE, DIAGNOSIS)
    assert one.time_plan.ends(Part.INFORMATION) == pytest.approx(60 - kept)


@pytest.mark.parametrize(("words", "edits", "replaces"), [
    ("range | map num_parallel_calls=AUTOTUNE | batch 4", (SetArgument("n1", "num_parallel_calls", 2),), True),
    ("range | map num_parallel_calls=4 | batch 4", (SetArgument("n1", "num_parallel_calls", 2),), False),
    ("range | map num_parallel_calls=4 | batch 4", (SetArgument("n1", "num_parallel_calls", AUTOTUNE),), False),
    # parallelized by a default graph pass
    ("range | map | batch 4", (SetArgument("n1", "num_parallel_calls", 2),), True),
    ("range | map random | batch 4", (SetArgument("n1", "num_parallel_calls", 2),), False),
    ("range | batch 4 | prefetch AUTOTUNE", (SetArgument("n2", "buffer_size", 1),), True),
    ("range | batch 4 | prefetch 2", (SetArgument("n2", "buffer_size", 1),), False),
    ("range | batch 4", (Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 1}),), False),
])  # fmt: skip
def test_rewrite_that_sets_autotuned_argument_replaces_autotune(words, edits, replaces) -> None:
    context, one = RuleContext(pipeline(words), cores=2), Rewrite("a-rule", "n1", Safety.EXACT, edits, "")
    assert replaces_autotune(one, context) is replaces
    assert replaces_autotune(replace(one, rule="freeze-autotune"), context)


def test_rewrite_changes_only_what_a_cache_stores_if_one_is_downstream_of_it() -> None:
    read = pipeline("range | map | batch 4 | map | prefetch 2")

    def parallel(node: str) -> Rewrite:
        return Rewrite("parallel-map", node, Safety.EXACT, (SetArgument(node, "num_parallel_calls", 2),), "")

    cache = Rewrite("cache", "n2", Safety.EXACT, (Insert("n2", "cache", "cache@n2"),), "")
    for node, above in (("n1", True), ("n2", True), ("n3", False)):
        one = parallel(node)
        assert planning._is_above_cache(read, one, Plan("tuned", (one, cache))) is above
    assert not planning._is_above_cache(read, cache, Plan("tuned", (parallel("n1"), cache)))


def test_training_gains_no_more_than_its_wait_nor_than_the_processors_give(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study_of(numbers())
    one.machine = replace(one.machine, cores_granted=2.0)
    consumer = ConsumerProfile("keras-fit", real_seconds=0.066, bound_seconds=0.014, bound_cpu_seconds=0.022)
    profile = replace(PROFILE, consumer=consumer, examples_per_element=32.0)
    waits = replace(DIAGNOSIS, wait_share=Interval(0.75, 0.7, 0.8, pairs=4, method="test"))
    prediction = Prediction(1000.0, cpu_seconds_per_example=0.078 / 32)
    for shares, most in ((False, 5.0), (True, 0.066 * 2 / (0.078 + 0.022))):
        monkeypatch.setattr(type(one.runner), "shares_processors", shares)
        assert planning._most_gain(one, profile, waits, prediction) == pytest.approx(most)
    # In a step as written threads spun less than on the repeated batch; the plan takes 10 ms more than what is written.
    monkeypatch.setattr(planning, "_predict", lambda *_: Prediction(900.0, cpu_seconds_per_example=0.068 / 32))
    whole = replace(profile, consumer=replace(consumer, real_cpu_seconds=0.080))
    assert planning._most_gain(one, whole, waits, prediction) == pytest.approx(0.066 * 2 / 0.090)
    idle = replace(profile, consumer=replace(consumer, real_cpu_seconds=0.120))
    assert planning._most_gain(one, idle, waits, prediction) == pytest.approx(0.066 * 2 / 0.100)
    prediction = Prediction(why="nobody knows")
    assert planning._most_gain(one, profile, waits, prediction) == pytest.approx(5.0)
    assert planning._most_gain(one, profile, replace(waits, wait_share=None), prediction) is None


def test_input_takes_a_share_of_the_processors_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study_of(numbers())
    one.machine = replace(one.machine, cores_granted=2.0)
    profile = replace(PROFILE, consumer=ConsumerProfile("keras-fit", bound_seconds=0.010), examples_per_element=32.0)
    prediction = Prediction(1000.0, cpu_seconds_per_example=0.005 / 32)
    for shares, taken in ((True, pytest.approx(0.25)), (False, None)):
        monkeypatch.setattr(type(one.runner), "shares_processors", shares)
        assert planning._cpu_share(one, profile, prediction) == taken
        assert planning._cpu_share(one, profile, Prediction(why="nobody knows")) is None


def test_first_batch_of_smaller_shuffle_buffers_is_nobodys() -> None:
    rates = {name: Rate(first_batch_seconds=0.1, peak_rss_mib=50.0) for name in ("defaults", "autotune")}
    profile = replace(PROFILE, first_element_seconds=8.0, peak_rss_mib=900.0, cut_buffers={"n1": 64})
    shown = planning._with_own_buffers(rates, profile)
    assert (shown["defaults"].first_batch_seconds, shown["defaults"].peak_rss_mib) == (8.0, 900.0)
    assert shown["autotune"].first_batch_seconds is None
    whole = planning._with_own_buffers(rates, replace(profile, cut_buffers={}))
    assert [whole[name].first_batch_seconds for name in rates] == [0.1, 0.1]


SCRIPT = """import tensorflow as tf
dataset = tf.data.Dataset.range(512).batch(8)
dataset.shuffle(16)
dataset = dataset.prefetch(8)
"""


def test_mistakes_of_pipeline_and_source_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    one = study_of(executed(path, SCRIPT)["dataset"])
    give_verdict(one, PROFILE)
    found = one.journal.session.findings
    assert [(finding.code, finding.line) for finding in found] == [("prefetch-batch-size", 4), ("dropped-result", 3)]
    assert {finding.file for finding in found} == {str(path)}
    give_verdict(one, PROFILE)
    assert one.journal.session.findings == found, "each is told once"


# -- the patch of a plan of which source can say a part only


SHORT = "import tensorflow as tf\nds = tf.data.Dataset.range(64).map(lambda x: x * 2).batch(4)\n"
PARALLEL = Rewrite("parallel-map", "n1", Safety.EXACT, (SetArgument("n1", "num_parallel_calls", 2),), "")
NOT_WRITTEN = Rewrite("threads", "n2", Safety.EXACT, (SetOption("autotune.cpu_budget", "a text"),), "")
WHOLE = Plan("tuned", (PARALLEL, NOT_WRITTEN))


@pytest.mark.parametrize("equal", [True, False])
def test_part_of_a_plan_is_written_only_if_it_yields_the_same_data(equal, tmp_path, monkeypatch) -> None:
    compared: list[str] = []

    def compare(_: TensorFlowRunner, plan: Plan) -> Comparison:
        compared.append(plan.key)
        return Comparison(Safety.EXACT, (EqualityCheck("values", equal), EqualityCheck("epochs", equal)), 9, 3)

    monkeypatch.setattr(TensorFlowRunner, "compare", compare)
    path = tmp_path / "train.py"
    path.write_text(SHORT)
    study = study_of(executed(path, SHORT)["ds"], directory=str(tmp_path))
    study.journal.update_dataset(plan=WHOLE, diagnosis=DIAGNOSIS)
    patch = make_patch(study, WHOLE)
    assert compared == [PARALLEL.key]
    assert bool(patch.diff) is equal and patch.covered == ((PARALLEL.key,) if equal else ())
    assert equal or "same data" in patch.not_covered[-1].why
    assert bool(make_patch(study, Plan("rest", (PARALLEL,))).diff) is equal  # what is left once a rewrite has failed
    assert compared == [PARALLEL.key] * 2
    study.journal.update_dataset(plan=Plan("tuned", (PARALLEL,)))
    assert make_patch(study, Plan("tuned", (PARALLEL,))).diff and len(compared) == 2  # the search has compared it
