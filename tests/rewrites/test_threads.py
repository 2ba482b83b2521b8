"""`threads` and `granted-cores`: where they are proposed and where not, and what is part of every trial."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import SetOption, needs_comparison
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.profile import Cause, ConsumerProfile, Diagnosis, Verdict
from pipetune.rewrites import baselines, propose_all
from pipetune.rewrites.rule import RuleContext
from pipetune.rewrites.threads import CPU_BUDGET, KERNEL_THREADS, MEMORY_BUDGET, POOL_SIZE, core_limits
from pipetune.search.composing import numbers_for, shape_of, structural
from tests.rewrites.tables import Row, first, outlines, proposal_test, silent_test, with_profile
from tests.rules import check_no_proposal, check_proposes, context, proposals

_OFF = {"experimental_optimization.apply_default_optimizations": False}

SILENT: list[Row] = [
    ("range 9 | map![ or  AUTOTUNE] | batch 2", ""),  # its kernels stay in their thread
    ("range 9 | [batch 2 spread or map! random spread | batch 2 or map! 1 spread | batch 2]", "do not run in parallel"),
    ("range 9 | map! spread | batch 2", {"options": _OFF}, "do not run in parallel"),
    ("range 9 | map! 2 spread | batch 2", {"cores": 4}, "do not run in parallel"),  # two cores are left for kernels
    ("range 9 | map! AUTOTUNE spread | batch 2", {"cores": 1}, "On 1 core, running a kernel in one thread"),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"profiled": False}, ""),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"options": {KERNEL_THREADS: 2}, "cores": 4}, "sets options.thr"),
    ("range 9 | map! spread | batch 2", "On 2 cores, running a kernel in one thread"),
    ("list_files | interleave 4 cycle_length=4 | map! random spread", "do not run in parallel"),
    ("range 9 | map! AUTOTUNE | batch 2", {"device": "gpu"}, ""),  # no step was measured
]

test_no_proposal = silent_test("threads", SILENT)

FIRES: list[Row] = [
    ("range 9 | map! AUTOTUNE spread | batch 2", {"cores": 4},
     [f"EXACT options.{KERNEL_THREADS}=1", f"EXACT options.{KERNEL_THREADS}=1 options.{POOL_SIZE}=4"]),
    (
        "range 9 | map! spread | batch 2",  # TensorFlow makes it parallel
        {"cores": 8},
        [f"EXACT options.{KERNEL_THREADS}=1", f"EXACT options.{KERNEL_THREADS}=1 options.{POOL_SIZE}=8"],
    ),
    ("range 9 | map! 4 random spread", {"options": {POOL_SIZE: 3}, "cores": 4}, [f"EXACT options.{KERNEL_THREADS}=1"]),
    ("range 9 | map! spread", {"cores": 4, "detected_cores": 64}, [f"EXACT options.{KERNEL_THREADS}=1"]),
]  # fmt: skip

test_proposed_options = proposal_test("threads", FIRES)


def on_accelerator(words: str, *, lost: float, cause: Cause | None, **fields: Any) -> RuleContext:
    """A step of 10 ms with an input of 5 ms; the share `lost` is neither the model's time nor input wait."""
    fields.setdefault("device", "gpu")
    told = context(words, cores=8, diagnosis=Diagnosis(Verdict.INPUT_BOUND, "", cause=cause), **fields)
    consumer = ConsumerProfile("loop", real_seconds=0.01, bound_seconds=0.01 * (1 - lost), input_seconds=0.005)
    return with_profile(told, consumer=consumer)


def test_thread_pool_is_proposed_for_lost_overlap_on_an_accelerator() -> None:
    waiting = on_accelerator("range 9 | map! AUTOTUNE | batch 2", lost=0.2, cause=Cause.OPERATOR)
    (pool,), _ = proposals("threads", waiting)
    assert outlines([pool]) == [f"EXACT options.{POOL_SIZE}=8"]
    assert pool.only_training and "20 % of a step" in pool.summary


@pytest.mark.parametrize(("words", "lost", "cause", "fields"), [
    ("range 9 | map! AUTOTUNE", 0.04, Cause.OPERATOR, {}),
    *(("range 9 | map! AUTOTUNE", 0.2, cause, {}) for cause in (Cause.NO_PREFETCH, Cause.BUFFER, Cause.PYTHON)),
    ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"device": "cpu"}),
    ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"options": {POOL_SIZE: 4}}),
    ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"detected_cores": 64}),
    ("range 9 | map! random", 0.2, Cause.OPERATOR, {}),
    ("range 9 | batch 2", 0.2, Cause.OPERATOR, {}),
])  # fmt: skip
def test_no_thread_pool_for_other_causes(words: str, lost: float, cause: Cause, fields: dict[str, Any]) -> None:
    rewrites, _ = proposals("threads", on_accelerator(words, lost=lost, cause=cause, **fields))
    assert rewrites == []


def test_single_threaded_kernels_need_comparison() -> None:
    alone, with_pool = check_proposes("threads", "range 9 | map! AUTOTUNE spread | batch 2", cores=4)
    assert needs_comparison(alone.edits) and needs_comparison(with_pool.edits)
    assert not needs_comparison(with_pool.edits[1:])
    assert not alone.only_training and "map (train.py:2)" in alone.summary


CORES_SILENT: list[Row] = [
    ("range 9 | map AUTOTUNE", ""),
    ("range 9 | map AUTOTUNE", {"detected_cores": 2}, ""),
    ("range 9 | map AUTOTUNE", {"detected_cores": 64, "options": {CPU_BUDGET: 4, POOL_SIZE: 4}}, "The script itself"),
]

test_no_limit = silent_test("granted-cores", CORES_SILENT)


def test_proposed_limits() -> None:
    rewrites = check_proposes("granted-cores", "range 9 | map | batch 2", detected_cores=64)
    assert outlines(rewrites) == [f"EXACT options.{CPU_BUDGET}=2 options.{POOL_SIZE}=2"]
    assert "2 cores" in rewrites[0].summary and "64" in rewrites[0].summary
    only = check_proposes("granted-cores", "range 9 | map", cores=1, detected_cores=64, options={CPU_BUDGET: 4})
    assert outlines(only) == [f"EXACT options.{POOL_SIZE}=1"]


def test_rewrites_with_autotuned_calls_are_limited_to_available_cores() -> None:
    words = "list_files elements=9 | interleave cycle_length=4 | map random | batch 2"
    rewrites, _ = propose_all(context(words, detected_cores=64))
    parallel = [one for one in rewrites if AUTOTUNE in [getattr(edit, "value", None) for edit in one.edits]]
    assert {one.rule for one in parallel} >= {"parallel-map", "parallel-interleave"}
    for one in rewrites:
        held = {edit.name: edit.value for edit in one.edits if isinstance(edit, SetOption)}
        own = one.rule == "granted-cores"
        assert held == ({CPU_BUDGET: 2, POOL_SIZE: 2} if own or one in parallel else {}), one
        assert any("available to the container" in note for note in one.notes) == (one in parallel and not own)


def test_readers_in_parallel_are_limited_to_available_cores() -> None:
    described = context("list_files elements=9 | flat_map | batch 2", detected_cores=64)
    found = [one for one in propose_all(described)[0] if one.rule == "read-shards"]
    assert found and all(limit in one.edits for one in found for limit in core_limits(described))


def test_parallel_maps_with_other_numbers_stay_interchangeable() -> None:
    rewrites, _ = propose_all(context("range 9 | map random", cores=4, detected_cores=64))
    maps = [one for one in rewrites if one.rule == "parallel-map"]
    assert len({shape_of(one) for one in maps}) == 1
    chosen = [one for one in structural(rewrites) if one.rule == "parallel-map"]
    assert len(chosen) == 1 and len(numbers_for(chosen[0], rewrites)) == 2
    assert (SetOption, CPU_BUDGET) in shape_of(first(rewrites, "granted-cores"))


def test_autotune_baseline_is_limited_to_available_cores() -> None:
    plain, bound = (
        baselines.autotune_plan(context("range 9 | map | batch 2", cores=2, detected_cores=detected))
        for detected in (2, 64)
    )
    assert not any(isinstance(edit, SetOption) for edit in plain.edits)
    assert bound.edits[-2:] == core_limits(context("range 9", detected_cores=64))


def test_buffer_budget_is_set_only_by_the_rules_own_rewrite() -> None:
    words, half = "range 9 | map random | batch 2", 2**30
    rewrites, _ = propose_all(context(words, detected_cores=64, buffer_budget_bytes=half))
    holding = [one.rule for one in rewrites if SetOption(MEMORY_BUDGET, half) in one.edits]
    assert holding == ["granted-cores"]
    (said,) = check_no_proposal("granted-cores", words, buffer_budget_bytes=half)  # the cores are detected correctly
    assert f"options.{MEMORY_BUDGET} = {half}" in said.why
    assert check_no_proposal("granted-cores", words, buffer_budget_bytes=half, options={MEMORY_BUDGET: 5}) == []
