"""`where-to-cond`: where it is proposed and where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import ReplaceFunction, Safety
from pipetune.core.functions import FunctionVariant
from pipetune.rewrites import find_rule
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

NAME = "where-to-cond"
_SELECTS = "map branch=yes"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No map selects large arrays.
    ("range 9", {}, None),
    ("range 9 | map", {}, None),
    ("range 9 | map unknown", {}, None),
    ("range 9 | map calls=SelectV2 random", {}, None),
    ("range 9 | filter branch=yes", {}, None),
    ("range 9 | flat_map branch=yes", {}, None),
    ("range 9 | interleave branch=yes", {}, None),
    ("range 9 | scan branch=yes", {}, None),
    # The graph does not show that it is the same.
    ("range 9 | map branch=no", {}, "their shapes may differ"),
    ("range 9 | map branch=no random", {}, "their shapes may differ"),
    ("range 9 | map branch=no python", {}, "their shapes may differ"),
    # The function has other effects.
    (f"range 9 | {_SELECTS} python", {}, "runs Python"),
    (f"range 9 | {_SELECTS} python_random variable=state", {}, "reads the variable state"),
    (f"range 9 | {_SELECTS} variable=w", {}, "reads the variable w"),
    (f"range 9 | {_SELECTS} writes", {}, "writes a variable"),
    (f"range 9 | {_SELECTS} table", {}, "table"),
    (f"range 9 | {_SELECTS} print", {}, "PrintV2"),
    (f"range 9 | {_SELECTS} random file", {}, "WriteFile"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FORM = FunctionVariant.BRANCHING

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | {_SELECTS}", {}, [f"EXACT n1 {FORM}"]),
    (f"range 9 | {_SELECTS} random AUTOTUNE | batch 2", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_SELECTS} seeded | shuffle 9", {"randomness_fixed": True}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_SELECTS} reads_file raises", {}, [f"EXACT n1 {FORM}"]),
    (f"range 9 | {_SELECTS} raises | ignore_errors", {}, [f"EXACT n1 {FORM}"]),
    (f"range 9 | {_SELECTS} | batch 2 | {_SELECTS}", {}, [f"EXACT n1 {FORM}", f"EXACT n3 {FORM}"]),
    (f"a = range 9 | {_SELECTS}; b = range 9; zip a b | batch 2", {}, [f"EXACT n1 {FORM}"]),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert outlines(check_proposes(NAME, words, **fields)) == expected


def test_table_without_proposals_is_longer() -> None:
    assert len(SILENT) > len(FIRES)


def test_summary_and_notes() -> None:
    (rewrite,) = check_proposes(NAME, f"range 9 | {_SELECTS} random")
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == ["branched"]
    assert rewrite.reproducible and rewrite.safety is Safety.STATISTICAL
    assert "train.py:2" in rewrite.summary and "same random numbers" in rewrite.notes[0]


@pytest.mark.parametrize(("share", "fires"), [(None, True), (0.4, True), (0.95, True), (0.96, False), (1.02, False)])
def test_small_saving_is_not_proposed(share: float | None, fires: bool) -> None:
    described = context(f"range 9 | {_SELECTS} random | batch 2")
    assert described.profile is not None
    shares = {FORM: share} if share is not None else None
    operators = tuple(replace(one, variant_shares=shares) for one in described.profile.operators)
    priced = replace(described, profile=replace(described.profile, operators=operators))
    rewrites, silences = proposals(find_rule(NAME), priced)
    assert bool(rewrites) is fires and len(rewrites) + len(silences) == 1
    if share == 0.96:
        assert "saves 4% of the cost of map" in silences[0].why and "train.py:2" in silences[0].why


@pytest.mark.parametrize("other", ["rows=exact", "crop=yes calls=DecodeJpeg"])
def test_function_is_replaced_only_once(other: str) -> None:
    described = context(f"range 9 | {_SELECTS} {other} | batch 2")
    (branch,) = proposals(find_rule(NAME), described)[0]
    name = "vectorize-map" if other == "rows=exact" else "decode-and-crop"
    (replaced,) = proposals(find_rule(name), described)[0]
    assert find_conflict(described, [branch]) == find_conflict(described, [replaced]) == ""
    assert "replaced twice" in find_conflict(described, [replaced, branch])
