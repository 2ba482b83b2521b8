"""CPU quotas in trials, and TensorFlow's optimizations in the session: real datasets, example machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.edits import SetArgument, SetOption
from pipetune.core.machine import DetectedResources
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.results import PARALLELISM
from pipetune.rewrites import propose_all
from pipetune.rewrites.threads import CPU_BUDGET, POOL_SIZE
from pipetune.stages.planning import baselines_of
from pipetune.stages.profiling import ORIGINAL, read_tensorflow_optimizations, store_autotuned, watch_autotune
from pipetune.stages.study import rule_context
from tests.core.sessions import MACHINE
from tests.stages.studies import DIAGNOSIS, PROFILE, numbers, study_of

QUOTA = replace(
    MACHINE,
    cores_granted=2.0,
    quota_cores=2.0,
    cores_affinity=64,
    believed=DetectedResources(64.0, 1 << 30, 64, 64, 64),
)


def test_trials_are_limited_to_available_cores_under_quota() -> None:
    one = study_of(numbers(), machine=QUOTA)
    assert one.cores == 2
    variants = baselines_of(one)
    held = {edit.name: edit.value for edit in variants["autotune"].edits if isinstance(edit, SetOption)}
    assert held == {CPU_BUDGET: 2, POOL_SIZE: 2}
    assert variants["defaults"].edits == ()
    rewrites, _ = propose_all(rule_context(one, PROFILE, DIAGNOSIS))
    own = [rewrite for rewrite in rewrites if rewrite.rule == "granted-cores"]
    assert len(own) == 1 and "64" in own[0].summary
    for rewrite in rewrites:
        sets = [edit for edit in rewrite.edits if isinstance(edit, SetArgument)]
        calls = [edit.value for edit in sets if edit.name == "num_parallel_calls"]
        options = {edit.name for edit in rewrite.edits if isinstance(edit, SetOption)}
        assert AUTOTUNE not in calls or {CPU_BUDGET, POOL_SIZE} <= options
        assert all(number is None or (isinstance(number, int) and number <= 2) for number in calls)


def test_thread_pool_has_size_of_plan() -> None:
    one = study_of(numbers(), machine=replace(QUOTA, cores_granted=1.0, quota_cores=1.0))
    plan = baselines_of(one)["autotune"]
    one.runner.watch_autotune(plan, seconds=0.2)
    reading = one.runner.autotune_readings[plan.key]
    tuned = [value for value in reading.values if value.parameter == PARALLELISM and value.tunable]
    assert tuned and all(value.high == 1 and value.value == 1 for value in tuned)


def test_no_limits_where_detected_cores_are_correct() -> None:
    one = study_of(numbers())
    assert not any(isinstance(edit, SetOption) for edit in baselines_of(one)["autotune"].edits)
    rewrites, _ = propose_all(rule_context(one, PROFILE, DIAGNOSIS))
    assert not [rewrite for rewrite in rewrites if rewrite.rule == "granted-cores"]


def test_graph_passes_and_autotune_values_are_in_session() -> None:
    one = study_of(numbers())
    one.store_load()
    assert one.journal.session.load is None
    one.runner.input_window(ORIGINAL, seconds=0.1, warmup_seconds=0.1)
    read_tensorflow_optimizations(one)
    variants = baselines_of(one)
    one.runner.input_window(variants["autotune"], seconds=0.05, warmup_seconds=0.05)
    store_autotuned(one, variants)
    result = one.journal.result
    assert set(result.autotuned) == {"defaults", "autotune"}
    value = result.autotuned["defaults"].value("n1", PARALLELISM)
    assert value is not None and value.tunable
    assert {found.name for found in result.optimisations.passes} >= {"map_parallelization", "inject_prefetch"}
    one.store_load()
    load = one.journal.session.load
    assert load is not None and load.windows == 2 and load.seconds > 0


def test_no_wait_without_parameters_for_autotune() -> None:
    one = study_of(tf.data.Dataset.range(64).map(lambda x: x + 1, num_parallel_calls=2).prefetch(2))
    watch_autotune(one)
    assert one.runner.autotune_readings == {}  # not read yet
    one.runner.input_window(ORIGINAL, seconds=0.02, warmup_seconds=0.02)
    before = one.runner.autotune_readings["defaults"]
    watch_autotune(one)
    assert one.runner.autotune_readings["defaults"] is before


def test_parallel_map_is_proposed_for_maps_that_tensorflow_runs_serially() -> None:
    """A lookup in a constant table is stateless, but TensorFlow does not run it in parallel."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0], [1], tf.int64, tf.int64), 0)
    one = study_of(tf.data.Dataset.range(64).map(lambda x: x + 1).map(table.lookup).shuffle(4).batch(2))
    one.runner.input_window(ORIGINAL, seconds=0.02, warmup_seconds=0.02)
    context = rule_context(one, PROFILE, DIAGNOSIS)
    assert context.observed_kernels == {"n1": "ParallelMap", "n2": "Map"}
    rewrites, silences = propose_all(context)
    autotuned = [one.node for one in rewrites if one.key.endswith("=-1") and one.rule == "parallel-map"]
    assert autotuned == ["n2"]
    assert [one.node for one in silences if "already runs this map in parallel" in one.why] == ["n1"]
