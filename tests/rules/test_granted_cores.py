"""`granted-cores`: silent where TensorFlow counts right, and in every trial where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import SetOption, needs_proof
from pipetune.core.pipeline import AUTOTUNE
from pipetune.rules import baselines, propose_all
from pipetune.rules.granted_cores import CPU_BUDGET, MEMORY_BUDGET, POOL_SIZE, bounds
from pipetune.search.composing import numbers_for, shape_of, structural
from pipetune.testing.rules import check_fires, check_silent, context
from tests.rules.outline import outlines

SILENT: list[tuple[str, dict[str, Any]]] = [
    ("range 9 | map AUTOTUNE", {}),
    ("range 9 | map AUTOTUNE", {"cores_believed": 2}),
    ("range 9 | map AUTOTUNE", {"cores_believed": 1}),
    ("range 9 | map AUTOTUNE", {"cores_believed": 64, "options": {CPU_BUDGET: 4, POOL_SIZE: 4}}),
    ("range 9 | map AUTOTUNE", {"cores": 64, "cores_believed": 64}),
]


@pytest.mark.parametrize(("words", "fields"), SILENT)
def test_silent(words: str, fields: dict[str, Any]) -> None:
    said = check_silent("granted-cores", words, **fields)
    assert len(said) == ("options" in fields)


def test_fires() -> None:
    rewrites = check_fires("granted-cores", "range 9 | map | batch 2", cores_believed=64)
    assert outlines(rewrites) == [f"EXACT options.{CPU_BUDGET}=2 options.{POOL_SIZE}=2"]
    assert "2 cores" in rewrites[0].summary and "64" in rewrites[0].summary
    only = check_fires("granted-cores", "range 9 | map", cores=1, cores_believed=64, options={CPU_BUDGET: 4})
    assert outlines(only) == [f"EXACT options.{POOL_SIZE}=1"]


def test_every_rewrite_that_leaves_calls_to_autotune_is_kept_to_what_is_granted() -> None:
    words = "list_files elements=9 | interleave cycle_length=4 | map random | batch 2"
    rewrites, _ = propose_all(context(words, cores_believed=64))
    parallel = [one for one in rewrites if AUTOTUNE in [getattr(edit, "value", None) for edit in one.edits]]
    assert {one.rule for one in parallel} >= {"parallel-map", "parallel-interleave"}
    for one in rewrites:
        held = {edit.name: edit.value for edit in one.edits if isinstance(edit, SetOption)}
        wanted = one in parallel or one.rule == "granted-cores"
        assert held == ({CPU_BUDGET: 2, POOL_SIZE: 2} if wanted else {}), one
        assert any("grants" in note for note in one.notes) == (wanted and one.rule != "granted-cores")


def test_numbers_still_stand_for_each_other() -> None:
    rewrites, _ = propose_all(context("range 9 | map random", cores=4, cores_believed=64))
    maps = [one for one in rewrites if one.rule == "parallel-map"]
    assert len({shape_of(one) for one in maps}) == 1
    chosen = [one for one in structural(rewrites) if one.rule == "parallel-map"]
    assert len(chosen) == 1 and len(numbers_for(chosen[0], rewrites)) == 2
    own = next(one for one in rewrites if one.rule == "granted-cores")
    assert ("option", CPU_BUDGET) in shape_of(own)


def test_the_autotune_baseline_is_the_rival_at_its_best() -> None:
    described = context("range 9 | map | batch 2").pipeline
    plain = baselines.autotune_plan(described, 64, cores=2, cores_believed=2)
    bound = baselines.autotune_plan(described, 64, cores=2, cores_believed=64)
    assert not any(isinstance(edit, SetOption) for edit in plain.edits)
    assert bound.edits[-2:] == bounds(context("range 9", cores_believed=64))
    assert baselines.defaults_plan(described).edits == ()  # as written is as written


def test_threads_and_budgets_change_no_values() -> None:
    assert not needs_proof(bounds(context("range 9", cores_believed=64)))
    assert needs_proof([SetOption("deterministic", False)])


def test_the_budget_for_buffers_goes_with_the_rules_own_rewrite_alone() -> None:
    words, half = "range 9 | map random | batch 2", 2**30
    rewrites, _ = propose_all(context(words, cores_believed=64, buffers_granted=half))
    holding = [one.rule for one in rewrites if SetOption(MEMORY_BUDGET, half) in one.edits]
    assert holding == ["granted-cores"]
    (said,) = check_silent("granted-cores", words, buffers_granted=half)  # the cores are counted right
    assert f"options.{MEMORY_BUDGET} = {half}" in said.why
    assert check_silent("granted-cores", words, buffers_granted=half, options={MEMORY_BUDGET: 5}) == []
