"""`numpy-function`: where it is proposed and where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.functions import FunctionVariant
from pipetune.rewrites import find_rule
from pipetune.rewrites.conflicts import find_conflict
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

NAME = "numpy-function"
_CALLS = "map python arrays=yes"

SILENT: list[tuple[str, str | None]] = [
    # No map calls Python with eager tensors.
    ("range 9", None),
    ("range 9 | map", None),
    ("range 9 | map unknown", None),
    ("range 9 | map python", None),
    ("range 9 | map python print", None),
    ("from_generator", None),
    ("range 9 | filter python arrays=yes", None),
    ("range 9 | interleave python arrays=yes", None),
    ("range 9 | flat_map python arrays=yes", None),
    # The Python code needs tensors.
    ("range 9 | map python arrays=no", "needs x as a tensor"),
    ("range 9 | map 4 python arrays=no | batch 2", "needs x as a tensor"),
]

FORM = FunctionVariant.ARRAYS

FIRES: list[tuple[str, list[str]]] = [
    (f"range 9 | {_CALLS}", [f"EXACT n1 {FORM}"]),
    (f"range 9 | {_CALLS} AUTOTUNE | batch 2", [f"EXACT n1 {FORM}"]),
    (f"range 9 | {_CALLS} random variable=w print | shuffle 9", [f"EXACT n1 {FORM}"]),
    (f"range 9 | {_CALLS} | ignore_errors | {_CALLS}", [f"EXACT n1 {FORM}", f"EXACT n3 {FORM}"]),
]


@pytest.mark.parametrize(("words", "why"), SILENT)
def test_no_proposal(words: str, why: str | None) -> None:
    silences = check_no_proposal(NAME, words)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


@pytest.mark.parametrize(("words", "expected"), FIRES)
def test_proposed_edits(words: str, expected: list[str]) -> None:
    assert outlines(check_proposes(NAME, words)) == expected


@pytest.mark.parametrize(("share", "fires"), [(None, True), (0.6, True), (0.95, True), (0.96, False), (1.1, False)])
def test_small_saving_is_not_proposed(share: float | None, fires: bool) -> None:
    described = context(f"range 9 | {_CALLS}")
    assert described.profile is not None
    shares = {FORM: share} if share is not None else None
    operators = tuple(replace(one, variant_shares=shares) for one in described.profile.operators)
    rewrites, silences = proposals(
        find_rule(NAME), replace(described, profile=replace(described.profile, operators=operators))
    )
    assert bool(rewrites) is fires and len(rewrites) + len(silences) == 1


def test_may_be_joined_by_parallel_calls_with_consent() -> None:
    described = context(f"range 9 | {_CALLS}")
    (arrays,) = proposals(find_rule(NAME), described)[0]
    parallel = proposals(find_rule("parallel-map"), described)[0]
    assert parallel and all(find_conflict(described, [arrays, one]) == "" for one in parallel)
