"""`freeze-autotune`: where it must stay silent, where it fires."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.autotuned import BUFFER_SIZE, PARALLELISM, AutotuneReading, TunedValue
from pipetune.core.edits import Safety
from pipetune.rules import propose_all
from pipetune.rules.conflicts import conflict
from pipetune.testing.rules import check_fires, check_rewrite, context, proposals
from tests.rules.outline import outlines


def calls(node: str, value: float, kernel: str = "ParallelMapV2", **more: Any) -> TunedValue:
    return TunedValue(node, kernel, PARALLELISM, value, 1, 8, **{"tunable": True, **more})


def ahead(node: str, value: float, **more: Any) -> TunedValue:
    return TunedValue(node, "Prefetch", BUFFER_SIZE, value, 0, 512, **{"tunable": True, **more})


def reading(*values: TunedValue, **more: Any) -> AutotuneReading:
    return AutotuneReading(values, **{"seconds": 3.0, "converged": True, **more})


_MAP = reading(calls("n1", 3))

SILENT: list[tuple[str, AutotuneReading | None, dict[str, Any], str]] = [
    ("range 9 | map 4 | batch 2", None, {}, "not watched"),
    ("range 9 | map AUTOTUNE", None, {}, "not watched"),
    ("range 9 | map AUTOTUNE", reading(note="The runtime shows no model of this pipeline."), {}, "no model"),
    ("range 9 | map 4 | prefetch 2", reading(calls("n1", 4, tunable=False)), {}, "no number that AUTOTUNE chooses"),
    ("range 9 | map 4 | prefetch 2", reading(), {}, "no number that AUTOTUNE chooses"),
    ("range 9 | map AUTOTUNE", reading(calls("n1", 3), converged=False), {}, "not settled after 3.0 s"),
    ("range 9 | map AUTOTUNE", _MAP, {"options": {"autotune.enabled": False}}, "switched off"),
    ("range 9 | map AUTOTUNE", _MAP, {"cores_believed": 64}, "another machine"),
    ("range 9 | map AUTOTUNE python", _MAP, {}, "runs Python"),
    ("range 9 | map AUTOTUNE variable=w", _MAP, {}, "reads the variable w"),
    ("range 9 | map AUTOTUNE writes", _MAP, {}, "writes a variable"),
    ("range 9 | map AUTOTUNE table", _MAP, {}, "a table that can change"),
    ("range 9 | map AUTOTUNE print", _MAP, {}, "side effect (PrintV2)"),
    ("range 9 | map AUTOTUNE unknown", _MAP, {}, "nothing is known about its function"),
    ("range 9 | map AUTOTUNE", reading(calls("n7", 3)), {}, "shows no number for it"),
    ("range 9 | map AUTOTUNE", reading(calls("n1", 3, tunable=False), calls("", 2)), {}, "shows no number for it"),
    ("range 9 | map random", _MAP, {}, "not known to be stateless"),
    ("TFRecordDataset num_parallel_reads=AUTOTUNE", reading(calls("n0", 2, "ParallelInterleaveV4")), {},
     "would change the order"),
    ("list_files | interleave AUTOTUNE cycle_length=2 | batch 2", reading(calls("n2", 3, "ParallelInterleaveV4")), {},
     "exceed its cycle length of 2"),
    ("list_files | interleave AUTOTUNE", reading(calls("n2", 3, "ParallelInterleaveV4")), {"cores": 6},
     "exceed its cycle length of 2"),
    ("range 9 | prefetch AUTOTUNE", reading(ahead("n1", 0)), {}, "never filled"),
    ("range 9 | prefetch AUTOTUNE", reading(ahead("n1", 9, moved_seconds=2.5)), {}, "still grew after 2.5 s"),
    ("range 9 | prefetch AUTOTUNE", reading(ahead("", 9)), {}, "shows no number for it"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "seen", "fields", "why"), SILENT)
def test_silent(words: str, seen: AutotuneReading | None, fields: dict[str, Any], why: str) -> None:
    rewrites, silences = proposals("freeze-autotune", context(words, autotuned=seen, **fields))
    assert not rewrites, rewrites
    assert any(why in silence.why for silence in silences), [silence.why for silence in silences]


QUIET: list[tuple[str, AutotuneReading]] = [
    ("range 9 | map 4", reading(calls("n1", 4, tunable=False), calls("", 2))),  # the script's own number
    ("range 9 | map variable=w | batch 2", reading(ahead("", 4))),  # reading ahead there is TensorFlow's affair
    ("range 9 | map 4", reading(ahead("", 0))),
    ("range 9 | map 4", reading(ahead("", 4, moved_seconds=2.9))),
]


@pytest.mark.parametrize(("words", "seen"), QUIET)
def test_says_nothing_where_autotune_has_no_say(words: str, seen: AutotuneReading) -> None:
    assert proposals("freeze-autotune", context(words, autotuned=seen)) == ([], [])


FIRES: list[tuple[str, AutotuneReading, dict[str, Any], str]] = [
    ("range 9 | map AUTOTUNE", _MAP, {}, "EXACT n1.num_parallel_calls=3"),
    ("range 9 | map", _MAP, {}, "EXACT n1.num_parallel_calls=3"),  # made parallel by TensorFlow
    ("range 9 | map | batch 2", reading(calls("n1", 2, "MapAndBatch")), {}, "EXACT n1.num_parallel_calls=2"),
    ("range 9 | batch 2 num_parallel_calls=AUTOTUNE", reading(calls("n1", 2, "ParallelBatch")), {},
     "EXACT n1.num_parallel_calls=2"),
    ("range 9 | map AUTOTUNE | prefetch AUTOTUNE", reading(calls("n1", 3), ahead("n2", 4, moved_seconds=0.4)), {},
     "EXACT n1.num_parallel_calls=3 n2.buffer_size=4"),
    ("range 9 | map AUTOTUNE", reading(calls("n1", 3), ahead("", 5)), {},
     "EXACT n1.num_parallel_calls=3 prefetch(buffer_size=5)>n1"),
    ("range 9 | map variable=w | map AUTOTUNE", reading(calls("n2", 3), ahead("", 5)), {},
     "EXACT n2.num_parallel_calls=3"),
    ("list_files | interleave AUTOTUNE cycle_length=4 block_length=2", reading(calls("n2", 3, "ParallelInterleaveV4")),
     {}, "EXACT n2.num_parallel_calls=3"),
    ("list_files | interleave AUTOTUNE", reading(calls("n2", 2, "ParallelInterleaveV4")), {"cores": 6},
     "EXACT n2.cycle_length=2 n2.block_length=1 n2.num_parallel_calls=2"),
    ("range 9 | map AUTOTUNE random", _MAP, {}, "STATISTICAL n1.num_parallel_calls=3"),
    ("range 9 | map AUTOTUNE deterministic=False", _MAP, {}, "EXACT n1.num_parallel_calls=3"),
    ("range 9 | map AUTOTUNE python | map AUTOTUNE", reading(calls("n1", 2), calls("n2", 3)), {},
     "EXACT n2.num_parallel_calls=3"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "seen", "fields", "expected"), FIRES)
def test_fires(words: str, seen: AutotuneReading, fields: dict[str, Any], expected: str) -> None:
    described = context(words, autotuned=seen, **fields)
    rewrites, _ = proposals("freeze-autotune", described)
    assert outlines(rewrites) == [expected]
    only = rewrites[0]
    assert only.equal_is_enough and only.predicted_bytes == 0
    assert only.reproducible == (only.safety is Safety.EXACT)
    check_rewrite(only, described.pipeline, rule="freeze-autotune")
    assert conflict(described, [only]) == ""


def test_it_says_how_long_it_looked() -> None:
    (only,) = check_fires("freeze-autotune", "range 9 | map AUTOTUNE", autotuned=_MAP)
    assert "3.0 s" in only.notes[0] and "num_parallel_calls=3" in only.summary


def test_where_another_rule_has_the_number_that_one_is_worth_the_offer() -> None:
    rewrites, _ = propose_all(context("range 9 | map AUTOTUNE", autotuned=reading(calls("n1", 2))))
    assert "freeze-autotune" not in {one.rule for one in rewrites}
    (only,) = [one for one in rewrites if one.rule == "parallel-map"]
    assert only.equal_is_enough and any("3.0 s" in note for note in only.notes)
    assert not any(one.equal_is_enough for one in rewrites if one is not only)


def test_one_number_is_not_written_twice() -> None:
    described = context("range 9 | map AUTOTUNE random", autotuned=_MAP)
    rewrites, _ = propose_all(described)
    freeze = next(one for one in rewrites if one.rule == "freeze-autotune")
    number = next(one for one in rewrites if one.rule == "parallel-map")
    ending = next(one for one in rewrites if one.rule == "prefetch")
    assert "set twice" in conflict(described, [number, freeze])
    assert conflict(described, [ending, freeze]) == ""
