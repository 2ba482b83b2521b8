"""Trials on what is granted, and TensorFlow's own work in the session: on real datasets, with invented machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.autotuned import PARALLELISM
from pipetune.core.believed import Believed
from pipetune.core.edits import SetArgument, SetOption
from pipetune.core.machine import Machine
from pipetune.core.optimisations import PassState
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.profile import ConsumerProfile, Diagnosis, Profile, Verdict
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.journal import Journal, Silence
from pipetune.rules import propose_all
from pipetune.rules.granted_cores import CPU_BUDGET, POOL_SIZE
from pipetune.stages.own_work import note_autotuned, read_own_work, watch_autotune
from pipetune.stages.planning import baselines_of, facts_of
from pipetune.stages.profiling import AS_WRITTEN
from pipetune.stages.study import Study, Subject
from pipetune.tf.pipelines import live
from pipetune.tf.script.consumers import NoConsumer
from pipetune.tf.script.consumption import Consumption
from tests.core.sessions import MACHINE

PROFILE = Profile((), ConsumerProfile("none"))
DIAGNOSIS = Diagnosis(Verdict.INPUT_BOUND, "")
QUOTA = replace(
    MACHINE, cores_granted=2.0, quota_cores=2.0, cores_affinity=64, believed=Believed(64.0, 1 << 30, 64, 64, 64)
)


def study(dataset: Any, *, machine: Machine = MACHINE, failed: dict[str, str] | None = None) -> Study:
    use = Consumption(dataset, "train", "training", "a test")
    subject = Subject(live.read(dataset), NoConsumer("nobody trains"), use, ())
    settings = Settings(budget_seconds=10.0)
    made = Study(subject, settings, machine, Journal(Session("0", {}), settings, Silence()), failed=failed or {})
    made.journal.update(datasets=subject.results())
    return made


def numbers() -> Any:
    return tf.data.Dataset.range(512).map(lambda x: x * 2).shuffle(16).batch(8)


def test_under_a_quota_every_trial_keeps_to_the_cores_granted() -> None:
    one = study(numbers(), machine=QUOTA)
    assert one.cores == 2
    variants = baselines_of(one)
    held = {edit.name: edit.value for edit in variants["autotune"].edits if isinstance(edit, SetOption)}
    assert held == {CPU_BUDGET: 2, POOL_SIZE: 2}
    assert variants["defaults"].edits == ()
    rewrites, _ = propose_all(facts_of(one, PROFILE, DIAGNOSIS))
    own = [rewrite for rewrite in rewrites if rewrite.rule == "granted-cores"]
    assert len(own) == 1 and "64" in own[0].summary
    for rewrite in rewrites:
        sets = [edit for edit in rewrite.edits if isinstance(edit, SetArgument)]
        calls = [edit.value for edit in sets if edit.name == "num_parallel_calls"]
        options = {edit.name for edit in rewrite.edits if isinstance(edit, SetOption)}
        assert AUTOTUNE not in calls or {CPU_BUDGET, POOL_SIZE} <= options
        assert all(number is None or (isinstance(number, int) and number <= 2) for number in calls)


def test_the_pool_that_runs_is_the_one_the_plan_asks_for() -> None:
    one = study(numbers(), machine=replace(QUOTA, cores_granted=1.0, quota_cores=1.0))
    plan = baselines_of(one)["autotune"]
    reading = one.runner.watch_autotune(plan, seconds=0.2)
    tuned = [value for value in reading.values if value.parameter == PARALLELISM and value.tunable]
    assert tuned and all(value.high == 1 and value.value == 1 for value in tuned)


def test_where_tensorflow_counts_right_nothing_is_bound() -> None:
    one = study(numbers())
    assert not any(isinstance(edit, SetOption) for edit in baselines_of(one)["autotune"].edits)
    rewrites, _ = propose_all(facts_of(one, PROFILE, DIAGNOSIS))
    assert not [rewrite for rewrite in rewrites if rewrite.rule == "granted-cores"]


def test_passes_and_numbers_are_in_the_session() -> None:
    one = study(numbers())
    one.runner.input_window(AS_WRITTEN, seconds=0.1, warmup_seconds=0.1)
    read_own_work(one)
    variants = baselines_of(one)
    one.runner.input_window(variants["autotune"], seconds=0.05, warmup_seconds=0.05)
    note_autotuned(one, variants)
    result = one.journal.result
    assert set(result.autotuned) == {"defaults", "autotune"}
    value = result.autotuned["defaults"].value("n1", PARALLELISM)
    assert value is not None and value.tunable
    assert result.optimisations is not None
    fired = {found.name for found in result.optimisations.passes if found.state is PassState.FIRED}
    assert fired >= {"map_parallelization", "inject_prefetch"}


def test_a_pass_that_ended_a_worker_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study(numbers(), failed={"tensorflow-passes": "was killed by signal 11"})
    monkeypatch.setattr("pipetune.tf.pipelines.optimisations.read", lambda *_: pytest.fail("tried again"))
    read_own_work(one)
    found = one.journal.result.optimisations
    assert found is not None and "signal 11" in found.note


def test_nothing_to_wait_for_where_autotune_has_no_say() -> None:
    one = study(tf.data.Dataset.range(64).map(lambda x: x + 1, num_parallel_calls=2).prefetch(2))
    watch_autotune(one)
    assert one.runner.readings == {}  # never looked at
    one.runner.input_window(AS_WRITTEN, seconds=0.02, warmup_seconds=0.02)
    before = one.runner.readings["defaults"]
    watch_autotune(one)
    assert one.runner.readings["defaults"] is before


def test_who_used_the_cores_is_noted() -> None:
    one = study(numbers())
    one.note_load()
    assert one.journal.session.load is None
    one.runner.input_window(AS_WRITTEN, seconds=0.05, warmup_seconds=0.02)
    one.note_load()
    load = one.journal.session.load
    assert load is not None and load.windows == 1 and load.seconds > 0


def test_what_tensorflow_leaves_serial_is_proposed_in_parallel() -> None:
    """A lookup in a table that never changes is stateless, and TensorFlow does not make it parallel all the same."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0], [1], tf.int64, tf.int64), 0)
    one = study(tf.data.Dataset.range(64).map(lambda x: x + 1).map(table.lookup).shuffle(4).batch(2))
    one.runner.input_window(AS_WRITTEN, seconds=0.02, warmup_seconds=0.02)
    context = facts_of(one, PROFILE, DIAGNOSIS)
    assert context.fused == {"n1": "ParallelMap", "n2": "Map"}
    rewrites, silences = propose_all(context)
    autotuned = [one.node for one in rewrites if one.key.endswith("=-1") and one.rule == "parallel-map"]
    assert autotuned == ["n2"]
    assert [one.node for one in silences if "already runs this map in parallel" in one.why] == ["n1"]
