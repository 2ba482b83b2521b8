"""`serial-map`: where TensorFlow's own parallel maps are turned off, and where they stay."""

from __future__ import annotations

from tests.rewrites.tables import Row, proposal_test, silent_test
from tests.rules import context, proposals

_OPTION = "experimental_optimization.map_parallelization"
_OFF = {"options": {"experimental_optimization.apply_default_optimizations": False}}

SILENT: list[Row] = [
    ("range 9 | [batch 2 or filter | batch 2 or scan | batch 2]", None),
    ("range 9 | map [cpu=31us or cpu=2ms] | batch 2", "in parallel, which suits calls of"),
    ("range 9 | map cpu=3us | map! | batch 2", "in parallel, which suits calls of 10 ms"),
    # TensorFlow leaves them as they are.
    ("range 9 | map [1 or synchronous=True]", None),
    ("range 9 | map 4 [cpu=31us or random or python or deterministic=False or deterministic=True]", None),
    ("range 9 | map [variable=w or writes or table or print or file or random or unknown or python]", None),
    ("range 9 | map", {"options": {_OPTION: False}}, None),
    ("range 9 | map", {"options": {"autotune.enabled": False}}, None),
    ("range 9 | map", _OFF, None),
    ("range 9 | map", {"observed_kernels": {"n1": "Map"}}, None),
    ("range 9 | map", {"profiled": False}, None),
]

FIRES: list[Row] = [
    ("range 9 | map [cpu=3us or cpu=30us] [ or | batch 2]", [f"EXACT options.{_OPTION}=False"]),
    ("range 9 | map cpu=3us | map! random | map! 4 | batch 2", [f"EXACT options.{_OPTION}=False"]),
    ("range 9 | map AUTOTUNE | batch 2", [f"EXACT n1.num_parallel_calls=None options.{_OPTION}=False"]),
    ("range 9 | map | map 4 | map! 4 | batch 2",
     [f"EXACT options.{_OPTION}=False", f"EXACT n2.num_parallel_calls=None options.{_OPTION}=False"]),
    ("a = range 9; b = range 9; c = random | batch 2 | map cpu=3us; choose c a b", [f"EXACT options.{_OPTION}=False"]),
]  # fmt: skip

test_parallel_maps_stay = silent_test("serial-map", SILENT)
test_parallel_maps_are_turned_off = proposal_test("serial-map", FIRES)


def test_functions_are_named() -> None:
    (rewrite,), _ = proposals("serial-map", context("range 9 | map cpu=3us | shuffle 5 | map cpu=4us | batch 2"))
    assert "map (train.py:2), map (train.py:4)" in rewrite.summary
