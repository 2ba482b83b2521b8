"""`late-cast`: where it is proposed and where not, and the memory it saves."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import apply_edits
from pipetune.core.functions import FunctionVariant
from pipetune.rewrites import find_rule
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

NAME = "late-cast"
_SOURCE = "TFRecordDataset elements=100 bytes=1k"
_CAST = "map cpu=10ms bytes=4k cuts=end:1k head=80%"
_PAYS = f"{_CAST} saves=4ms"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No batch, none that takes elements unchanged, or an operator between them that changes them.
    (f"{_SOURCE} | {_PAYS}", {}, None),
    (f"{_SOURCE} | {_PAYS} | prefetch", {}, None),
    (f"{_SOURCE} | {_PAYS} | batch 1", {}, None),
    (f"{_SOURCE} | {_PAYS} | padded_batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | ragged_batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | map | batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | filter | batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | unique | batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | snapshot | batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | opaque | batch 4", {}, None),
    (f"{_SOURCE} | {_PAYS} | with_options | batch 4", {}, None),
    (f"a = {_SOURCE} | {_PAYS}; b = range 9; zip a b | batch 4", {}, None),
    # It was not probed, it cannot be split, or the intermediate elements are no smaller.
    (f"{_SOURCE} | map bytes=4k | batch 4", {}, None),
    (f"{_SOURCE} | map bytes=4k cuts=end:no | batch 4", {}, None),
    (f"{_SOURCE} | map cpu=10ms bytes=4k cuts=end:4k head=80% saves=4ms | batch 4", {}, None),
    (f"{_SOURCE} | map cpu=10ms bytes=4k cuts=end:9k head=80% saves=4ms | batch 4", {}, None),
    (f"{_SOURCE} | map cpu=10ms cuts=end:1k head=80% saves=4ms | batch 4", {}, None),
    # The function has other effects.
    (f"{_SOURCE} | {_PAYS} random | batch 4", {}, "draws random numbers"),
    (f"{_SOURCE} | {_PAYS} python | batch 4", {}, "runs Python"),
    (f"{_SOURCE} | {_PAYS} variable=w | batch 4", {}, "reads the variable w"),
    (f"{_SOURCE} | {_PAYS} writes | batch 4", {}, "writes a variable"),
    (f"{_SOURCE} | {_PAYS} table | batch 4", {}, "table"),
    (f"{_SOURCE} | {_PAYS} print | batch 4", {}, "PrintV2"),
    (f"{_SOURCE} | {_PAYS} | batch 4 | ignore_errors", {}, "ignore_errors"),
    (f"{_SOURCE} | {_PAYS} | cache kept | batch 4", {}, "a file"),
    # It gains too little.
    (f"{_SOURCE} | {_PAYS} | cache | shuffle 90 | batch 4", {}, "in every epoch"),
    (f"{_SOURCE} | {_CAST} saves=100us | shuffle 90 | batch 4", {}, "too little"),
    (f"{_SOURCE} | {_CAST} saves=0us | batch 4", {}, "save none"),
    (f"{_SOURCE} | map cpu=10ms bytes=4k cuts=end:1k | batch 4", {}, "not measured"),
    (f"{_SOURCE} | {_PAYS} | batch 4", {"profiled": False}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])
    assert why is not None or not silences


_CUT = "n1 cut in front of ops that treat every number by itself"
_BIG = "map cpu=10ms bytes=4M cuts=end:1M head=80% saves=0us"

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"{_SOURCE} | {_PAYS} | batch 4", {}, [f"EXACT {_CUT} n1>n2"]),
    (f"{_SOURCE} | {_PAYS} AUTOTUNE | shuffle 9 | repeat | batch 4 | prefetch", {}, [f"EXACT {_CUT} n1>n4"]),
    (f"{_SOURCE} | {_PAYS} | prefetch 2 | take 9 | skip 1 | shard 2 index=0 | batch 4", {}, [f"EXACT {_CUT} n1>n6"]),
    (f"{_SOURCE} | {_PAYS} | batch 4 drop_remainder=True | map random", {}, [f"EXACT {_CUT} n1>n2"]),
    (f"{_SOURCE} | map random | {_PAYS} | batch 4", {}, [f"EXACT {_CUT} n2>n3".replace("n1 cut", "n2 cut")]),
    (f"{_SOURCE} | {_PAYS} 2 deterministic=False | batch 4", {}, [f"REORDERS {_CUT} n1>n2"]),
    (f"{_SOURCE} | map cpu=10ms bytes=4k cuts=end:1k+Exp head=80% saves=4ms | batch 4", {},
     [f"APPROXIMATE {_CUT} n1>n2"]),
    # Saving memory is a gain too.
    (f"{_SOURCE} | {_BIG} | shuffle 90 | batch 4", {}, [f"EXACT {_CUT} n1>n3"]),
    (f"{_SOURCE} | {_BIG} | cache | batch 4", {}, [f"EXACT {_CUT} n1>n3"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert outlines(check_proposes(NAME, words, **fields)) == expected


def test_table_without_proposals_is_longer() -> None:
    assert len(SILENT) > len(FIRES)


def test_operators_between_hold_less_memory() -> None:
    (rewrite,) = check_proposes(NAME, f"{_SOURCE} | {_BIG} | cache | shuffle 30 | prefetch 5 | repeat | batch 4")
    assert rewrite.predicted_bytes == -(100 + 30 + 5) * 3e6
    assert "cache (train.py:3)" in rewrite.notes[0] and "386 MiB less" in rewrite.notes[0]
    (rewrite,) = check_proposes(NAME, f"{_SOURCE} | {_PAYS} | batch 4")
    assert rewrite.predicted_bytes == 0 and "of the input's CPU time was saved" in rewrite.notes[0]


def test_tail_is_called_on_batches() -> None:
    words = f"{_SOURCE} | {_PAYS} | shuffle 9 | batch 4 | prefetch"
    (rewrite,) = check_proposes(NAME, words)
    edited = apply_edits(context(words).pipeline, rewrite.edits)
    assert [node.id for node in edited] == ["n0", "head@n1", "n2", "n3", "n1", "n4"]
    tail = edited["n1"].function
    assert tail is not None and tail.form is FunctionVariant.TAIL_ON_BATCHES and tail.called_on_batches
    assert edited["n2"].inputs == ("head@n1",) and edited["n4"].inputs == ("n1",)


def test_other_rules_do_not_move_maps_past_the_same_batch() -> None:
    described = context(f"{_SOURCE} | {_PAYS} | map rows=exact | batch 4")
    assert proposals(find_rule(NAME), described)[0] == []
    described = context(f"{_SOURCE} | {_PAYS} rows=exact | batch 4")
    (late,) = proposals(find_rule(NAME), described)[0]
    (whole,) = proposals(find_rule("vectorize-map"), described)[0]
    assert "exclude each other" in find_conflict(described, [whole, late])
