"""`drop-no-op`: where it is proposed and where not."""

from __future__ import annotations

from tests.rewrites.tables import Row, proposal_test, silent_test
from tests.rules import check_proposes

_ALIKE = "map passes=0+1"
_PASS, _PASSES = "experimental_optimization.noop_elimination", "experimental_optimization.apply_default_optimizations"
_OFF = {"options": {_PASS: False}}
_BY_ITSELF = "TensorFlow removes"
_RESTARTED = "how often its iteration is restarted"

SILENT: list[Row] = [
    # It has an effect.
    ("range 9 | map[ or  passes=-1 or  passes=0+-1 or  passes=1+0 or  passes=0+0 or  unknown]", _OFF, ""),
    ("range 9 | map passes=0+1 spec=other", _OFF, ""),  # it sets shapes, or renames components
    (f"range 9 | {_ALIKE} [raises or print or file or python or random or seeded or variable=w or writes or table]",
     _OFF, ""),
    ("range 9 | take [9 or 0 or None]", _OFF, ""),
    ("range 9 | skip [1 or -1]", _OFF, ""),
    ("range 9 | repeat[ or  2 or  0]", _OFF, ""),
    ("range 9 | [shard 2 index=0 or batch 1 or batch 2 | batch 2 or batch 2 | unbatch or filter or flat_map]",
     _OFF, ""),
    ("range 9 | [interleave cycle_length=1 or enumerate or scan or cache | cache or assert_cardinality]", _OFF, ""),
    ("range 9 | [with_options or opaque or shuffle 2]", _OFF, ""),
    ("range 9 | shuffle 1[ or  seed=3]", _OFF, "draws a seed"),
    ("range 9 | shuffle 9 | batch 2 | repeat 1", _OFF, _RESTARTED),
    ("range 9 | shuffle 9 seed=3 | repeat 1", _RESTARTED),
    # A single prefetch, or an operator between two.
    ("range 9 | prefetch 2[ or  | map | prefetch 2 or  | batch 2 | prefetch 2]", ""),
    ("a = range 9 | prefetch 2; b = a | prefetch 2; c = a | batch 2; zip b c", ""),
    ("range 9 | map [variable=w or writes] | prefetch 2 | prefetch 4", "reads the variable w"),
    ("range 9 | map file | prefetch 2 | prefetch 4", "side effect"),
    # TensorFlow does it.
    (f"range 9 | [{_ALIKE} or take -1 or skip 0 or repeat 1 or shard 1 index=0]", _BY_ITSELF),
    ("range 9 | skip 0", {"options": {_PASSES: False, _PASS: True}}, _BY_ITSELF),
]  # fmt: skip

FIRES: list[Row] = [
    (f"range 9 | {_ALIKE}[ | batch 2 or  4 or  4 deterministic=False]", _OFF, ["EXACT -n1"]),
    (f"range 9 | {_ALIKE} | batch 2", {"options": {_PASSES: False}}, ["EXACT -n1"]),
    ("range 9 spec=x | map passes=0 spec=x", _OFF, ["EXACT -n1"]),
    ("range 9 | take -1 | skip 0 | shard 1 index=0 | repeat 1", _OFF, [f"EXACT -n{n}" for n in (1, 2, 3, 4)]),
    ("range 9 | map random | skip 0", _OFF, ["EXACT -n2"]),
    (f"a = range 9 | {_ALIKE}; b = a | batch 2; c = a | batch 3; zip b c", _OFF, ["EXACT -n1"]),
    # The smaller of two prefetches.
    ("range 9 | prefetch [2 | prefetch 4 or 2 | prefetch 2 or 90 | prefetch AUTOTUNE or 0 | prefetch 1]",
     ["EXACT -n1"]),
    ("range 9 | prefetch [4 | prefetch 2 or AUTOTUNE | prefetch 90]", ["EXACT -n2"]),
    ("range 9 | prefetch AUTOTUNE | prefetch AUTOTUNE | batch 2", ["EXACT -n1"]),
]  # fmt: skip

test_operator_stays = silent_test("drop-no-op", SILENT)
test_no_op_is_removed = proposal_test("drop-no-op", FIRES)


def test_removed_prefetch_frees_its_buffer() -> None:
    (rewrite,) = check_proposes("drop-no-op", "range 9 static_bytes=100 | prefetch 2 | prefetch 4")
    assert rewrite.predicted_bytes == -200
