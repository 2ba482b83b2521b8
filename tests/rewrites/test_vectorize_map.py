"""`vectorize-map`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import ReplaceFunction
from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

_ROWS = "map rows=exact"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # Nothing to move, or no batch to move it after.
    ("range 9 | batch 2", {}, None),
    (f"range 9 | {_ROWS}", {}, None),
    (f"range 9 | batch 2 | {_ROWS}", {}, None),
    (f"range 9 | {_ROWS} | batch 1", {}, None),
    (f"range 9 | {_ROWS} | batch None", {}, None),
    (f"range 9 | {_ROWS} | padded_batch 2", {}, None),
    (f"range 9 | {_ROWS} | ragged_batch 2", {}, None),
    (f"range 9 | {_ROWS} | window 2", {}, None),
    (f"range 9 | {_ROWS} | rebatch 2", {}, None),
    # The function must not be called on batches.
    ("range 9 | map | batch 2", {}, "unknown how its function behaves on batches"),
    ("range 9 | map rows=no | batch 2", {}, "MatMul mixes rows"),
    ("range 9 | map unknown | batch 2", {}, "nothing is known"),
    (f"range 9 | {_ROWS} python | batch 2", {}, "runs Python"),
    (f"range 9 | {_ROWS} python_random | batch 2", {}, "random"),
    (f"range 9 | {_ROWS} random | batch 2", {}, "once per element"),
    (f"range 9 | {_ROWS} seeded | batch 2", {}, "once per element"),
    (f"range 9 | {_ROWS} variable=w | batch 2", {}, "reads the variable w"),
    (f"range 9 | {_ROWS} variable=w | batch 2", {"trained_variables": frozenset()}, "reads the variable w"),
    (f"range 9 | {_ROWS} writes | batch 2", {}, "writes a variable"),
    (f"range 9 | {_ROWS} table | batch 2", {}, "table"),
    (f"range 9 | {_ROWS} print | batch 2", {}, "PrintV2"),
    (f"range 9 | {_ROWS} file | batch 2", {}, "WriteFile"),
    (f"range 9 | {_ROWS} raises | batch 2", {}, "validates values"),
    (f"range 9 | {_ROWS} | batch 2 | ignore_errors", {}, "ignore_errors"),
    (f"range 9 | {_ROWS} | ignore_errors | batch 2", {}, None),
    # An operator between them does not pass every element on unchanged.
    (f"range 9 | {_ROWS} | filter | batch 2", {}, None),
    (f"range 9 | {_ROWS} | flat_map | batch 2", {}, None),
    (f"range 9 | {_ROWS} | interleave | batch 2", {}, None),
    (f"range 9 | {_ROWS} | unbatch | batch 2", {}, None),
    (f"range 9 | {_ROWS} | cache | batch 2", {}, None),
    (f"range 9 | {_ROWS} | snapshot | batch 2", {}, None),
    (f"range 9 | {_ROWS} | scan | batch 2", {}, None),
    (f"range 9 | {_ROWS} | take_while | batch 2", {}, None),
    (f"range 9 | {_ROWS} | unique | batch 2", {}, None),
    (f"range 9 | {_ROWS} | enumerate | batch 2", {}, None),
    (f"range 9 | {_ROWS} | group_by_window | batch 2", {}, None),
    (f"range 9 | {_ROWS} | with_options | batch 2", {}, None),
    (f"range 9 | {_ROWS} | opaque | batch 2", {}, None),
    (f"range 9 | {_ROWS} | map rows=no | batch 2", {}, "MatMul"),
    # The map has other readers, or the batch joins branches.
    (f"a = range 9 | {_ROWS}; b = a | batch 2; c = a | batch 3; zip b c", {}, None),
    (f"a = range 9 | {_ROWS}; b = range 9; zip a b | batch 2", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("vectorize-map", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | {_ROWS} | batch 2", {}, ["EXACT n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} 4 | batch 2 drop_remainder=True", {}, ["EXACT n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} | shuffle 9 | batch 2", {}, ["EXACT n1>n3 n1 on batches"]),
    (f"range 9 | {_ROWS} | repeat | batch 2", {}, ["EXACT n1>n3 n1 on batches"]),
    (f"range 9 | {_ROWS} | prefetch 2 | batch 2", {}, ["EXACT n1>n3 n1 on batches"]),
    (f"range 9 | {_ROWS} | take 5 | skip 1 | shard 2 index=0 | batch 2", {}, ["EXACT n1>n5 n1 on batches"]),
    (f"range 9 | {_ROWS} | batch 3 | unbatch | batch 2", {}, ["EXACT n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} | batch 2 | map random", {}, ["EXACT n1>n2 n1 on batches"]),
    (f"range 9 | map random | {_ROWS} | batch 2", {}, ["EXACT n2>n3 n2 on batches"]),
    (f"range 9 | {_ROWS} | shuffle 9 | {_ROWS} | batch 2", {},
     ["EXACT n3>n4 n3 on batches", "EXACT n3>n4 n3 on batches n1>n4 n1 on batches"]),
    ("range 9 | map rows=Exp | batch 2", {}, ["APPROXIMATE n1>n2 n1 on batches"]),
    (f"range 9 | map rows=Exp | {_ROWS} | batch 2", {},
     ["EXACT n2>n3 n2 on batches", "APPROXIMATE n2>n3 n2 on batches n1>n3 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 deterministic=False | batch 2", {}, ["REORDERS n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 | batch 2", {"options": {"deterministic": False}}, ["REORDERS n1>n2 n1 on batches"]),
    (f"range 9 | {_ROWS} 2 | batch 2 drop_remainder=True", {"options": {"deterministic": False}},
     ["EXACT n1>n2 n1 on batches"]),  # no short batch that could overtake others
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("A6.vectorized")
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("vectorize-map", words, **fields)
    assert outlines(rewrites) == expected
    assert len({rewrite.group for rewrite in rewrites}) == 1 and not rewrites[0].needs


def test_predicted_bytes_count_shuffle_buffers_between() -> None:
    first = "range 90 elements=90 bytes=10 | map rows=exact bytes=1k | shuffle 50"
    one, both = check_proposes("vectorize-map", f"{first} | map rows=exact bytes=3k | shuffle 200 | batch 3")
    assert one.predicted_bytes == 90 * (1_000 - 3_000)  # no more than all elements
    assert both.predicted_bytes == 90 * (10 - 3_000) + 50 * (10 - 1_000)
    (unknown,) = check_proposes("vectorize-map", "range 90 | map rows=exact | shuffle 50 | batch 3", profiled=False)
    assert unknown.predicted_bytes == 0


def test_edit_has_the_digest_of_the_function_on_batches() -> None:
    (rewrite,) = check_proposes("vectorize-map", f"range 9 | {_ROWS} | batch 2")
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == ["on batches"]


def test_note_names_inexact_ops() -> None:
    (rewrite,) = check_proposes("vectorize-map", "range 9 | map rows=Exp+Log | batch 2")
    assert "Exp, Log" in rewrite.notes[0]
    assert "In a batch Log may treat a denormal" in rewrite.notes[1]
