"""The baselines."""

from __future__ import annotations

import pytest

from pipetune.core.edits import apply_edits
from pipetune.rewrites.baselines import autotune_plan, baseline_plan, off_plan, parallelism_edits
from pipetune.rewrites.rule import RuleContext
from tests.rewrites.tables import outlines
from tests.rules import check_well_formed
from tests.words import pipeline


def test_off_plan_disables_everything_but_autotune() -> None:
    plan = off_plan(pipeline("range 9 | map | batch 2"))
    edited = apply_edits(pipeline("range 9 | map | batch 2"), plan.edits)
    assert edited.options == {
        "experimental_optimization.apply_default_optimizations": False,
        "experimental_optimization.inject_prefetch": False,
    }
    assert edited.nodes == pipeline("range 9 | map | batch 2").nodes


AUTOTUNE: list[tuple[str, str]] = [
    ("range 9 | map | batch 2", "n1.num_parallel_calls=-1 prefetch(buffer_size=-1)>n2"),
    ("range 9 | map 4 random | batch 2", "n1.num_parallel_calls=-1 prefetch(buffer_size=-1)>n2"),
    ("range 9 | map AUTOTUNE | batch 2 | prefetch 2", "n3.buffer_size=-1"),
    ("range 9 | map AUTOTUNE | batch 2 | prefetch 2 | with_options", "n3.buffer_size=-1"),
    ("range 9 | map synchronous=True | batch 2", "prefetch(buffer_size=-1)>n2"),
    ("list_files | interleave | batch 2",
     "n2.cycle_length=6 n2.block_length=1 n2.num_parallel_calls=-1 prefetch(buffer_size=-1)>n3"),
    ("list_files | interleave cycle_length=4 block_length=2 | batch 2",
     "n2.num_parallel_calls=-1 prefetch(buffer_size=-1)>n3"),
    ("list_files | interleave AUTOTUNE | batch 2", "n2.cycle_length=2 n2.block_length=1 prefetch(buffer_size=-1)>n3"),
    ("range 9 | batch 2 num_parallel_calls=3 | prefetch AUTOTUNE | map AUTOTUNE | prefetch 1", "n4.buffer_size=-1"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), AUTOTUNE)
def test_autotune_plan_sets_autotune_everywhere(words: str, expected: str) -> None:
    plan = autotune_plan(pipeline(words), 6)
    assert outlines(list(plan.rewrites)) == [f"STATISTICAL {expected}"]
    check_well_formed(apply_edits(pipeline(words), plan.edits))


def test_autotune_plan_is_empty_without_anything_to_tune() -> None:
    assert autotune_plan(pipeline("range 9 | batch 2 | prefetch AUTOTUNE"), 6).rewrites == ()


def test_parallelism_edits_set_every_number_up_to_the_cycle_length() -> None:
    words = "list_files | interleave cycle_length=3 | map | map synchronous=True | batch 2 | prefetch 1"
    known = pipeline(words)
    edited = apply_edits(known, parallelism_edits(RuleContext(known, cores=4), lambda node: 4, prefetch=5))
    assert [node.argument("num_parallel_calls") for node in edited] == [None, None, 3, 4, None, None, None]
    assert edited.output.argument("buffer_size") == 5
    assert baseline_plan("cores", known, (), "Nothing.").rewrites == ()
