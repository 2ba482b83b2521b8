"""`freeze-autotune`: where it is proposed and where not; and the baselines."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Consent, Safety, apply_edits
from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AutotuneValues, TunedValue
from pipetune.rewrites import propose_all
from pipetune.rewrites.baselines import autotune_plan, baseline_plan, off_plan, parallelism_edits
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.rule import RuleContext
from tests.rewrites.tables import Row, outlines, silent_test
from tests.rules import check_proposes, check_rewrite, check_well_formed, context, proposals
from tests.words import pipeline


def calls(node: str, value: float, kernel: str = "ParallelMapV2", **more: Any) -> TunedValue:
    return TunedValue(node, kernel, PARALLELISM, value, 1, 8, **{"tunable": True, **more})


def ahead(node: str, value: float, **more: Any) -> TunedValue:
    return TunedValue(node, "Prefetch", BUFFER_SIZE, value, 0, 512, **{"tunable": True, **more})


def reading(*values: TunedValue, **more: Any) -> AutotuneValues:
    return AutotuneValues(values, **{"seconds": 3.0, "converged": True, **more})


def _seen(values: AutotuneValues | None) -> dict[str, Any]:
    return {"autotune_reading": values}


def _number(value: int, node: str = "n1") -> str:
    return f"EXACT {node}.num_parallel_calls={value}"


_MAP = reading(calls("n1", 3))
_CYCLES = calls("n2", 3, "ParallelInterleaveV4")
_EXCEEDS = "exceed its cycle length of 2"

SILENT: list[Row] = [
    ("range 9 | map 4 | batch 2", _seen(None), "not observed"),
    ("range 9 | map AUTOTUNE", _seen(reading(note="The runtime shows no model of this pipeline.")), "no model"),
    ("range 9 | map 4 | prefetch 2", _seen(reading(calls("n1", 4, tunable=False))), "no value for AUTOTUNE to choose"),
    ("range 9 | map AUTOTUNE", _seen(reading(calls("n1", 3), converged=False)), "not settled after 3.0 s"),
    ("range 9 | map AUTOTUNE", {**_seen(_MAP), "options": {"autotune.enabled": False}}, "switched off"),
    ("range 9 | map AUTOTUNE", {**_seen(_MAP), "detected_cores": 64}, "another machine"),
    ("range 9 | map AUTOTUNE python", _seen(_MAP), "runs Python"),
    ("range 9 | map AUTOTUNE variable=w", _seen(_MAP), "reads the variable w"),
    ("range 9 | map AUTOTUNE writes", _seen(_MAP), "writes a variable"),
    ("range 9 | map AUTOTUNE table", _seen(_MAP), "a table that can change"),
    ("range 9 | map AUTOTUNE print", _seen(_MAP), "side effect (PrintV2)"),
    ("range 9 | map AUTOTUNE unknown", _seen(_MAP), "nothing is known about its function"),
    ("range 9 | map AUTOTUNE", _seen(reading(calls("n7", 3))), "reports no value for it"),
    ("range 9 | map AUTOTUNE", _seen(reading(calls("n1", 3, tunable=False), calls("", 2))), "reports no value for it"),
    ("range 9 | map random", _seen(_MAP), "not known to be stateless"),
    ("TFRecordDataset num_parallel_reads=AUTOTUNE", _seen(reading(calls("n0", 2, "ParallelInterleaveV4"))),
     "would change the order"),
    ("list_files | interleave AUTOTUNE cycle_length=2 | batch 2", _seen(reading(_CYCLES)),
     _EXCEEDS),
    ("list_files | interleave AUTOTUNE", {**_seen(reading(_CYCLES)), "cores": 6}, _EXCEEDS),
    ("range 9 | prefetch AUTOTUNE", _seen(reading(ahead("n1", 0))), "never filled"),
    ("range 9 | prefetch AUTOTUNE", _seen(reading(ahead("n1", 9, moved_seconds=2.5))), "still growing after 2.5 s"),
    ("range 9 | prefetch AUTOTUNE", _seen(reading(ahead("", 9))), "reports no value for it"),
    ("range 9 | map 4", _seen(reading(calls("n1", 4, tunable=False), calls("", 2))), ""),  # the script's own number
    ("range 9 | map variable=w | batch 2", _seen(reading(ahead("", 4))), ""),  # TensorFlow decides to read ahead there
    ("range 9 | map 4", _seen(reading(ahead("", 0))), ""),
    ("range 9 | map 4", _seen(reading(ahead("", 4, moved_seconds=2.9))), ""),
]  # fmt: skip

test_no_proposal = silent_test("freeze-autotune", SILENT)


FIRES: list[tuple[str, AutotuneValues, dict[str, Any], str]] = [
    ("range 9 | map", _MAP, {}, _number(3)),  # made parallel by TensorFlow
    ("range 9 | map | batch 2", reading(calls("n1", 2, "MapAndBatch")), {}, _number(2)),
    ("range 9 | batch 2 num_parallel_calls=AUTOTUNE", reading(calls("n1", 2, "ParallelBatch")), {}, _number(2)),
    ("range 9 | map AUTOTUNE | prefetch AUTOTUNE", reading(calls("n1", 3), ahead("n2", 4, moved_seconds=0.4)), {},
     "EXACT n1.num_parallel_calls=3 n2.buffer_size=4"),
    ("range 9 | map AUTOTUNE", reading(calls("n1", 3), ahead("", 5)), {},
     "EXACT n1.num_parallel_calls=3 prefetch(buffer_size=5)>n1"),
    ("range 9 | map variable=w | map AUTOTUNE", reading(calls("n2", 3), ahead("", 5)), {}, _number(3, "n2")),
    ("list_files | interleave AUTOTUNE cycle_length=4 block_length=2", reading(_CYCLES), {}, _number(3, "n2")),
    ("list_files | interleave AUTOTUNE", reading(calls("n2", 2, "ParallelInterleaveV4")), {"cores": 6},
     "EXACT n2.cycle_length=2 n2.block_length=1 n2.num_parallel_calls=2"),
    ("range 9 | map AUTOTUNE random", _MAP, {}, "STATISTICAL n1.num_parallel_calls=3"),
    ("range 9 | map AUTOTUNE python | map AUTOTUNE", reading(calls("n1", 2), calls("n2", 3)), {}, _number(3, "n2")),
]  # fmt: skip


@pytest.mark.parametrize(("words", "seen", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, seen: AutotuneValues, fields: dict[str, Any], expected: str) -> None:
    described = context(words, autotune_reading=seen, **fields)
    rewrites, _ = proposals("freeze-autotune", described)
    assert outlines(rewrites) == [expected]
    only = rewrites[0]
    assert only.predicted_bytes == 0
    assert only.reproducible == (only.safety is Safety.EXACT)
    check_rewrite(only, described.pipeline, rule="freeze-autotune")
    assert find_conflict(described, [only]) == ""


def test_note_states_how_long_autotune_was_observed() -> None:
    (only,) = check_proposes("freeze-autotune", "range 9 | map AUTOTUNE", autotune_reading=_MAP)
    assert "3.0 s" in only.notes[0] and "num_parallel_calls=3" in only.summary


def test_duplicate_of_parallel_map_is_merged_into_it() -> None:
    rewrites, _ = propose_all(context("range 9 | map AUTOTUNE", autotune_reading=reading(calls("n1", 2))))
    assert "freeze-autotune" not in {one.rule for one in rewrites}
    assert sum(one.rule == "parallel-map" for one in rewrites) == 1


# -- the baselines


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
    ("range 9 | map AUTOTUNE | batch 2 | prefetch 2 | with_options", "n3.buffer_size=-1"),
    ("list_files | interleave | batch 2",
     "n2.cycle_length=6 n2.block_length=1 n2.num_parallel_calls=-1 prefetch(buffer_size=-1)>n3"),
    ("list_files | interleave cycle_length=4 block_length=2 | batch 2",
     "n2.num_parallel_calls=-1 prefetch(buffer_size=-1)>n3"),
    ("list_files | interleave AUTOTUNE | batch 2", "n2.cycle_length=2 n2.block_length=1 prefetch(buffer_size=-1)>n3"),
    ("range 9 | batch 2 num_parallel_calls=3 | prefetch AUTOTUNE | map AUTOTUNE | prefetch 1", "n4.buffer_size=-1"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), AUTOTUNE)
def test_autotune_plan_sets_autotune_everywhere(words: str, expected: str) -> None:
    plan = autotune_plan(RuleContext(pipeline(words), serial_cycle_length=6))
    assert outlines(list(plan.rewrites)) == [f"STATISTICAL {expected}"]
    check_well_formed(apply_edits(pipeline(words), plan.edits))


@pytest.mark.parametrize(("operator", "allowed"), [
    ("map writes", False), ("map print", False), ("map table", False), ("map variable=w", False), ("map python", True),
    ("interleave inner=GeneratorDataset", True),
])  # fmt: skip
def test_autotune_plan_leaves_alone_what_must_be_called_as_it_is(operator: str, allowed: bool) -> None:
    known = RuleContext(pipeline(f"range 9 | {operator} | batch 2 | prefetch AUTOTUNE"), serial_cycle_length=6)
    assert autotune_plan(known).rewrites == ()
    assert bool(autotune_plan(known, allow=[Consent.PYTHON_PARALLEL]).rewrites) is allowed
    assert autotune_plan(RuleContext(pipeline("range 9 | map 2 python"))).rewrites, "it runs in parallel as it is"


def test_autotune_plan_is_empty_without_anything_to_tune() -> None:
    assert autotune_plan(RuleContext(pipeline("range 9 | batch 2 | prefetch AUTOTUNE"))).rewrites == ()


def test_parallelism_edits_set_every_number_up_to_the_cycle_length() -> None:
    words = "list_files | interleave cycle_length=3 | map | map synchronous=True | batch 2 | prefetch 1"
    known = pipeline(words)
    edited = apply_edits(known, parallelism_edits(RuleContext(known, cores=4), lambda node: 4, prefetch=5))
    assert [node.argument("num_parallel_calls") for node in edited] == [None, None, 3, 4, None, None, None]
    assert edited.output.argument("buffer_size") == 5
    assert baseline_plan("cores", known, (), "Nothing.").rewrites == ()
