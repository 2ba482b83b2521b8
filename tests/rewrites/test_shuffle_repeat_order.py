"""`shuffle-repeat-order`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # Shuffle and repeat keep their order.
    ("range 9 | repeat", {}, None),
    ("list_files | repeat", {}, None),
    ("list_files | interleave | repeat", {}, None),
    ("range 9 | shuffle 9 | cache | repeat", {}, None),
    ("range 9 | shuffle 9 | take 5 | repeat", {}, None),
    ("range 9 | shuffle 9 | skip 5 | repeat", {}, None),
    ("range 9 | shuffle 9 | shard 2 index=0 | repeat", {}, None),
    ("range 9 | shuffle 9 | enumerate | repeat", {}, None),
    ("range 9 | shuffle 9 | scan | repeat", {}, None),
    ("range 9 | shuffle 9 | map variable=w | repeat", {}, None),
    ("range 9 | shuffle 9 | map python | repeat", {}, None),
    ("range 9 | shuffle 9 | unique | repeat", {}, None),
    ("range 9 elements=9 | shuffle 9 | batch 2 drop_remainder=True | repeat", {}, "incomplete batch"),
    ("TFRecordDataset | shuffle 9 | batch 2 drop_remainder=True | repeat", {}, "incomplete batch"),
    ("range 9 | repeat | batch 2 | shuffle 9", {}, None),
    ("range 9 | repeat | take 20 | shuffle 9", {}, None),
    ("range 9 | repeat | enumerate | shuffle 9", {}, None),
    ("a = range 9 | shuffle 9; b = range 9; zip a b | repeat", {}, None),
    # Another order would select other elements.
    ("range 9 | shuffle 9 | repeat | map | take 20", {}, "would otherwise select different elements"),
    ("range 9 | repeat | shuffle 9 | skip 3", {}, "would otherwise select different elements"),
    ("range 9 | shuffle 9 | repeat | enumerate", {}, "would otherwise select different elements"),
    ("range 9 | shuffle 9 | repeat | shard 2 index=0", {}, "would otherwise select different elements"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("shuffle-repeat-order", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("range 9 | shuffle 9 | repeat", {}, ["REORDERS n2>n0"]),
    ("range 9 | shuffle 9 | map | repeat", {}, ["EXACT n3>n1", "REORDERS n3>n0"]),
    ("range 9 | shuffle 9 | map random | repeat", {}, ["REORDERS n3>n1", "REORDERS n3>n0"]),
    ("range 9 | shuffle 9 | batch 2 | repeat", {}, ["REORDERS n3>n1", "REORDERS n3>n0"]),
    ("range 9 | shuffle 9 | batch 2 | repeat 3", {}, ["REORDERS n3>n1", "REORDERS n3>n0"]),
    ("range 8 elements=8 | shuffle 9 | batch 2 drop_remainder=True | repeat", {},
     ["REORDERS n3>n1", "REORDERS n3>n0"]),
    ("range 9 | repeat | shuffle 9", {}, ["REORDERS n1>n2"]),
    ("range 9 | repeat | shuffle 9 | shard 1 index=0", {}, ["REORDERS n1>n2"]),
    ("range 9 | shuffle 9 | map | repeat | take 20", {}, ["EXACT n3>n1"]),
    ("range 9 | repeat 2 | map | shuffle 9 | batch 2", {}, ["REORDERS n1>n3"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("A9.orders")
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("shuffle-repeat-order", words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group == f"place@{rewrite.node}" and not rewrite.needs for rewrite in rewrites)


@pytest.mark.mission("A9.orders")
def test_notes_state_the_effect_on_epochs() -> None:
    behind, first = check_proposes("shuffle-repeat-order", "range 9 | shuffle 9 | batch 2 | repeat")
    assert not behind.epochs_kept and "a batch may hold the end of one" in " ".join(behind.notes)
    assert not first.epochs_kept and "Epochs mix" in " ".join(first.notes)
    (apart,) = check_proposes("shuffle-repeat-order", "range 9 | repeat | shuffle 9")
    assert apart.epochs_kept and "no longer mix" in " ".join(apart.notes)
    fused, _ = check_proposes("shuffle-repeat-order", "range 9 | shuffle 9 | map | repeat")
    assert fused.epochs_kept
