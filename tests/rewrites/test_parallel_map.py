"""`parallel-map`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Consent
from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

_OFF = {"options": {"experimental_optimization.apply_default_optimizations": False}}

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    ("range 9 | batch 2", {}, None),
    ("range 9 | filter | batch 2", {}, None),
    ("range 9 | scan | batch 2", {}, None),
    ("list_files | interleave | batch 2", {}, None),
    ("range 9 | map variable=w", {}, "reads the variable w"),
    ("range 9 | map variable=w", {"trained_variables": frozenset()}, "reads the variable w"),
    ("range 9 | map variable=w random", {}, "reads the variable w"),
    ("range 9 | map variable=w python", {}, "reads the variable w"),
    ("range 9 | map writes", {}, "writes a variable"),
    ("range 9 | map table", {}, "table"),
    ("range 9 | map print", {}, "PrintV2"),
    ("range 9 | map file", {}, "WriteFile"),
    ("range 9 | map python print", {}, "PrintV2"),
    ("range 9 | map 4 variable=w", {}, "reads the variable w"),
    ("range 9 | map unknown", {}, "nothing is known"),
    ("range 9 | map synchronous=True", {}, "synchronous"),
    # Python code that is measured to compute: its calls would wait for each other.
    ("range 9 | map python cpu=2ms waits=0us", {}, "at most 500 elements/s"),
    ("range 9 | map 4 python cpu=2ms waits=2ms", {}, "at most 250 elements/s (4.0 ms each, 50% of that waiting)"),
    ("range 9 | map python_random python cpu=2ms waits=0us", {"cores": 8}, "under the GIL"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("parallel-map", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


_PYTHON = frozenset({Consent.PYTHON_PARALLEL})

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("range 9 | map", {"cores": 1}, ["EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map", {"cores": 8}, ["EXACT n1.num_parallel_calls=2", "EXACT n1.num_parallel_calls=8"]),
    ("range 9 | map", _OFF, ["EXACT n1.num_parallel_calls=-1", "EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map", {"options": {"experimental_optimization.map_parallelization": False}},
     ["EXACT n1.num_parallel_calls=-1", "EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map | batch 2", {"observed_kernels": {"n1": "MapAndBatch"}}, ["EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map", {"observed_kernels": {"n1": "Map"}},
     ["EXACT n1.num_parallel_calls=-1", "EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map 2", {"cores": 4}, ["EXACT n1.num_parallel_calls=-1", "EXACT n1.num_parallel_calls=4"]),
    ("range 9 | map AUTOTUNE", {}, ["EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map raises reads_file", {}, ["EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map deterministic=True", {"options": {"deterministic": False}},
     ["EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map random", {},
     ["STATISTICAL n1.num_parallel_calls=-1", "STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map seeded", {},
     ["STATISTICAL n1.num_parallel_calls=-1", "STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map AUTOTUNE random", {}, ["STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map python_random", {},
     ["STATISTICAL n1.num_parallel_calls=-1", "STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map python", {},
     ["STATISTICAL n1.num_parallel_calls=-1", "STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map python cpu=2ms waits=3ms", {},  # other calls have the lock while it waits
     ["STATISTICAL n1.num_parallel_calls=-1", "STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map cpu=2ms waits=0us", {}, ["EXACT n1.num_parallel_calls=2"]),
    ("range 9 | map deterministic=False", {}, ["REORDERS n1.num_parallel_calls=2"]),
    ("range 9 | map 4", {"cores": 2, "options": {"deterministic": False}},
     ["EXACT n1.num_parallel_calls=-1", "EXACT n1.num_parallel_calls=2"]),  # elements are reordered already
    ("range 9 | map", {"options": {"deterministic": False}}, ["STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map | with_options deterministic=False", {}, ["STATISTICAL n1.num_parallel_calls=2"]),
    ("range 9 | map random deterministic=False", {},
     ["REORDERS n1.num_parallel_calls=-1", "REORDERS n1.num_parallel_calls=2"]),
    ("range 9 | map | map random", {},
     ["EXACT n1.num_parallel_calls=2",
      "STATISTICAL n2.num_parallel_calls=-1", "STATISTICAL n2.num_parallel_calls=2"]),
    ("range 9 | map variable=w | map 4", {},
     ["EXACT n2.num_parallel_calls=-1", "EXACT n2.num_parallel_calls=2"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("A3.curve")
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("parallel-map", words, **fields)
    assert outlines(rewrites) == expected
    for rewrite in rewrites:
        assert rewrite.needs == (_PYTHON if " python" in words and "python_random" not in words else frozenset())
        assert rewrite.reproducible == rewrite.safety.name.startswith("EXACT")
        assert rewrite.group == f"parallel-map@{rewrite.node}"


def test_reason_names_tensorflows_own_parallelism() -> None:
    from pipetune.testing.rules import context, proposals

    _, silences = proposals("parallel-map", context("range 9 | map"))
    assert ["already" in silence.why for silence in silences] == [True]


def test_each_parallel_call_holds_a_result() -> None:
    rewrites = check_proposes("parallel-map", "range 9 | map random bytes=1k", cores=4)
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [4_000, 2_000, 4_000]
