"""`decode-and-crop`: where it is proposed and where not."""

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

NAME = "decode-and-crop"
_CROPS = "map calls=DecodeJpeg+Slice crop=yes"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No JPEG is decoded by a map.
    ("range 9", {}, None),
    ("range 9 | map", {}, None),
    ("range 9 | map unknown", {}, None),
    ("range 9 | map calls=Slice", {}, None),
    ("range 9 | map calls=ResizeBilinear random", {}, None),
    ("range 9 | filter calls=DecodeJpeg", {}, None),
    ("range 9 | flat_map calls=DecodeJpeg", {}, None),
    ("range 9 | interleave calls=DecodeJpeg+Slice", {}, None),
    ("range 9 | scan calls=DecodeJpeg", {}, None),
    # Other decoders.
    ("range 9 | map calls=DecodeImage+Slice", {}, "decode_image accepts any format"),
    ("range 9 | map calls=DecodePng+Slice", {}, "decode_png"),
    ("range 9 | map calls=DecodeImage random", {}, "decode_image accepts any format"),
    # The whole image is needed, or this is unknown.
    ("range 9 | map calls=DecodeJpeg", {}, "unknown what its function does with the images"),
    ("range 9 | map calls=DecodeJpeg random", {}, "unknown what its function does with the images"),
    ("range 9 | map calls=DecodeJpeg crop=no", {}, "it uses it all"),
    ("range 9 | map calls=DecodeJpeg crop=no random", {}, "it uses it all"),
    ("range 9 | map calls=DecodeJpeg crop=no | ignore_errors", {}, "it uses it all"),
    # The function has other effects.
    (f"range 9 | {_CROPS} python", {}, "runs Python"),
    (f"range 9 | {_CROPS} python_random variable=state", {}, "reads the variable state"),
    (f"range 9 | {_CROPS} variable=w", {}, "reads the variable w"),
    (f"range 9 | {_CROPS} variable=w", {"trained_variables": frozenset()}, "reads the variable w"),
    (f"range 9 | {_CROPS} writes", {}, "writes a variable"),
    (f"range 9 | {_CROPS} table", {}, "table"),
    (f"range 9 | {_CROPS} print", {}, "PrintV2"),
    (f"range 9 | {_CROPS} file", {}, "WriteFile"),
    (f"range 9 | {_CROPS} random print", {}, "PrintV2"),
    # Errors are dropped downstream.
    (f"range 9 | {_CROPS} | ignore_errors", {}, "ignore_errors downstream"),
    (f"range 9 | {_CROPS} random | shuffle 9 | batch 2 | ignore_errors | prefetch", {}, "ignore_errors downstream"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FORM = FunctionVariant.DECODE_AND_CROP

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | {_CROPS}", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} raises", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} reads_file", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} 4 deterministic=False | batch 2", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} | cache | map random | batch 2", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} random | batch 2", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} seeded AUTOTUNE | shuffle 9", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} seeded", {"randomness_fixed": True}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | {_CROPS} python_random", {}, [f"STATISTICAL n1 {FORM}"]),
    (f"range 9 | ignore_errors | {_CROPS}", {}, [f"STATISTICAL n1 {FORM}".replace("n1", "n2")]),
    (f"list_files | {_CROPS} random | {_CROPS}", {}, [f"STATISTICAL n2 {FORM}", f"STATISTICAL n3 {FORM}"]),
    (f"a = range 9 | {_CROPS}; b = range 9; zip a b | batch 2", {}, [f"STATISTICAL n1 {FORM}"]),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert outlines(check_proposes(NAME, words, **fields)) == expected


def test_table_without_proposals_is_longer() -> None:
    assert len(SILENT) > len(FIRES)


def test_summary_and_notes() -> None:
    (rewrite,) = check_proposes(NAME, f"range 9 | {_CROPS} random")
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == ["cropped"]
    assert rewrite.reproducible and rewrite.safety is Safety.STATISTICAL
    assert "train.py:2" in rewrite.summary and "9 elements: all" in rewrite.notes[0]


@pytest.mark.parametrize(("share", "fires"), [(None, True), (0.4, True), (0.9, True), (0.94, False), (1.02, False)])
def test_small_saving_is_not_proposed(share: float | None, fires: bool) -> None:
    described = context(f"range 9 | {_CROPS} random | batch 2")
    assert described.profile is not None
    shares = {FORM: share} if share is not None else None
    operators = tuple(replace(one, variant_shares=shares) for one in described.profile.operators)
    priced = replace(described, profile=replace(described.profile, operators=operators))
    rewrites, silences = proposals(find_rule(NAME), priced)
    assert bool(rewrites) is fires and len(rewrites) + len(silences) == 1
    if share == 0.94:
        assert "saves 6% of the cost of map" in silences[0].why and "train.py:2" in silences[0].why


def test_function_is_replaced_only_once() -> None:
    described = context(f"range 9 | {_CROPS} rows=exact | batch 2")
    (crop,) = proposals(find_rule(NAME), described)[0]
    (vectorized,) = proposals(find_rule("vectorize-map"), described)[0]
    assert find_conflict(described, [crop]) == find_conflict(described, [vectorized]) == ""
    assert "replaced twice" in find_conflict(described, [vectorized, crop])
