"""`granted-cores`: not proposed where TensorFlow detects the cores correctly, part of every trial where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import SetOption, needs_comparison
from pipetune.core.pipeline import AUTOTUNE
from pipetune.rewrites import baselines, propose_all
from pipetune.rewrites.pricing import CPU_BUDGET, MEMORY_BUDGET, POOL_SIZE, core_limits
from pipetune.search.composing import numbers_for, shape_of, structural
from pipetune.testing.rules import check_no_proposal, check_proposes, context
from tests.rewrites.tables import outlines

SILENT: list[tuple[str, dict[str, Any]]] = [
    ("range 9 | map AUTOTUNE", {}),
    ("range 9 | map AUTOTUNE", {"detected_cores": 2}),
    ("range 9 | map AUTOTUNE", {"detected_cores": 1}),
    ("range 9 | map AUTOTUNE", {"detected_cores": 64, "options": {CPU_BUDGET: 4, POOL_SIZE: 4}}),
    ("range 9 | map AUTOTUNE", {"cores": 64, "detected_cores": 64}),
]


@pytest.mark.parametrize(("words", "fields"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any]) -> None:
    said = check_no_proposal("granted-cores", words, **fields)
    assert len(said) == ("options" in fields)


def test_proposed_options() -> None:
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
        wanted = one in parallel or one.rule == "granted-cores"
        assert held == ({CPU_BUDGET: 2, POOL_SIZE: 2} if wanted else {}), one
        assert any("available to the container" in note for note in one.notes) == (
            wanted and one.rule != "granted-cores"
        )


def test_parallel_maps_with_other_numbers_stay_interchangeable() -> None:
    rewrites, _ = propose_all(context("range 9 | map random", cores=4, detected_cores=64))
    maps = [one for one in rewrites if one.rule == "parallel-map"]
    assert len({shape_of(one) for one in maps}) == 1
    chosen = [one for one in structural(rewrites) if one.rule == "parallel-map"]
    assert len(chosen) == 1 and len(numbers_for(chosen[0], rewrites)) == 2
    own = next(one for one in rewrites if one.rule == "granted-cores")
    assert ("option", CPU_BUDGET) in shape_of(own)


def test_autotune_baseline_is_limited_to_available_cores() -> None:
    described = context("range 9 | map | batch 2").pipeline
    plain = baselines.autotune_plan(described, 64, cores=2, detected_cores=2)
    bound = baselines.autotune_plan(described, 64, cores=2, detected_cores=64)
    assert not any(isinstance(edit, SetOption) for edit in plain.edits)
    assert bound.edits[-2:] == core_limits(context("range 9", detected_cores=64))
    assert baselines.defaults_plan(described).edits == ()  # the original is not changed


def test_thread_and_budget_options_need_no_comparison() -> None:
    assert not needs_comparison(core_limits(context("range 9", detected_cores=64)))
    assert needs_comparison([SetOption("deterministic", False)])


def test_buffer_budget_is_set_only_by_the_rules_own_rewrite() -> None:
    words, half = "range 9 | map random | batch 2", 2**30
    rewrites, _ = propose_all(context(words, detected_cores=64, buffer_budget_bytes=half))
    holding = [one.rule for one in rewrites if SetOption(MEMORY_BUDGET, half) in one.edits]
    assert holding == ["granted-cores"]
    (said,) = check_no_proposal("granted-cores", words, buffer_budget_bytes=half)  # the cores are detected correctly
    assert f"options.{MEMORY_BUDGET} = {half}" in said.why
    assert check_no_proposal("granted-cores", words, buffer_budget_bytes=half, options={MEMORY_BUDGET: 5}) == []
