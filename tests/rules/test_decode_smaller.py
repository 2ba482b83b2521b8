"""`decode-smaller`: where it must stay silent, where it fires; it is offered, and never applied without consent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import ReplaceFunction, Safety
from pipetune.core.functions import FunctionForm
from pipetune.core.settings import Settings
from pipetune.rules import find_rule
from pipetune.rules.conflicts import conflict
from pipetune.search.offers import missing_consent
from pipetune.testing.rules import check_fires, check_silent, context, proposals
from tests.rules.outline import outlines

NAME = "decode-smaller"
_RESIZES = "map calls=DecodeJpeg+ResizeBilinear shrink=2"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No JPEG is decoded by a map, or nobody asked.
    ("range 9", {}, None),
    ("range 9 | map", {}, None),
    ("range 9 | map unknown", {}, None),
    ("range 9 | map calls=ResizeBilinear random", {}, None),
    ("range 9 | map calls=DecodeImage+ResizeBilinear", {}, None),
    ("range 9 | map calls=DecodePng+ResizeBilinear", {}, None),
    ("range 9 | map calls=DecodeJpeg+ResizeBilinear", {}, None),
    ("range 9 | map calls=DecodeJpeg+Slice crop=yes", {}, None),
    ("range 9 | filter calls=DecodeJpeg shrink=2", {}, None),
    ("range 9 | flat_map calls=DecodeJpeg shrink=2", {}, None),
    ("range 9 | interleave calls=DecodeJpeg shrink=2", {}, None),
    # The image is needed as it is.
    ("range 9 | map calls=DecodeJpeg shrink=no", {}, "uses the size of the image"),
    ("range 9 | map calls=DecodeJpeg shrink=no random | batch 2", {}, "uses the size of the image"),
    ("range 9 | map calls=DecodeJpeg shrink=no | ignore_errors", {}, "uses the size of the image"),
    # The function does more than that.
    (f"range 9 | {_RESIZES} python", {}, "runs Python"),
    (f"range 9 | {_RESIZES} python_random variable=state", {}, "reads the variable state"),
    (f"range 9 | {_RESIZES} variable=w", {}, "reads the variable w"),
    (f"range 9 | {_RESIZES} writes", {}, "writes a variable"),
    (f"range 9 | {_RESIZES} table", {}, "table"),
    (f"range 9 | {_RESIZES} print", {}, "PrintV2"),
    (f"range 9 | {_RESIZES} file", {}, "WriteFile"),
    # Errors are dropped below.
    (f"range 9 | {_RESIZES} | ignore_errors", {}, "ignore_errors below"),
    (f"range 9 | {_RESIZES} random | shuffle 9 | batch 2 | ignore_errors | prefetch", {}, "ignore_errors below"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_silent(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_silent(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (f"range 9 | {_RESIZES}", {}, [f"APPROXIMATE n1 {FunctionForm.HALF_SCALE}"]),
    (f"range 9 | {_RESIZES} random 4 | batch 2", {}, [f"APPROXIMATE n1 {FunctionForm.HALF_SCALE}"]),
    (f"range 9 | {_RESIZES} raises reads_file", {}, [f"APPROXIMATE n1 {FunctionForm.HALF_SCALE}"]),
    ("range 9 | map shrink=4", {}, [f"APPROXIMATE n1 {FunctionForm.QUARTER_SCALE}"]),
    ("range 9 | ignore_errors | map shrink=8", {}, [f"APPROXIMATE n2 {FunctionForm.EIGHTH_SCALE}"]),
    (f"range 9 | {_RESIZES} | cache | map random", {"randomness_fixed": True},
     [f"APPROXIMATE n1 {FunctionForm.HALF_SCALE}"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_fires(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert outlines(check_fires(NAME, words, **fields)) == expected


def test_the_silent_table_is_the_longer_one() -> None:
    assert len(SILENT) > len(FIRES)


def test_what_it_says_and_asks_for() -> None:
    (rewrite,) = check_fires(NAME, "range 9 | map shrink=4 random")
    (edit,) = rewrite.edits
    assert isinstance(edit, ReplaceFunction) and edit.digest == "shrunk"
    assert edit.apart == pytest.approx(0.3)  # above what was seen: other images may be further apart
    assert "1/4 of their rows and columns" in rewrite.summary and "train.py:2" in rewrite.summary
    assert rewrite.summary.endswith("columns: pixels are up to 20.0% of the greatest value apart.")
    assert "1.0% of the greatest value apart on average (9 elements: all)" in rewrite.notes[0]
    assert "at least 4 times as large" in rewrite.notes[1]
    assert missing_consent(rewrite, Settings()) == "--allow approximate"


@pytest.mark.parametrize(("share", "fires"), [(None, True), (0.4, True), (0.89, True), (0.94, False), (1.02, False)])
def test_what_saves_little_is_not_offered(share: float | None, fires: bool) -> None:
    described = context(f"range 9 | {_RESIZES} random | batch 2")
    assert described.profile is not None
    operators = tuple(replace(one, shrinking_share=share) for one in described.profile.operators)
    priced = replace(described, profile=replace(described.profile, operators=operators))
    rewrites, silences = proposals(find_rule(NAME), priced)
    assert bool(rewrites) is fires and len(rewrites) + len(silences) == 1
    if share == 0.4:
        assert "columns: it costs 60% less, and pixels are up to" in rewrites[0].summary
    if share == 0.94:
        assert "saves 6% of what map" in silences[0].why


def test_a_function_is_replaced_once() -> None:
    described = context(f"range 9 | {_RESIZES} rows=exact | batch 2")
    (smaller,) = proposals(find_rule(NAME), described)[0]
    (vectorized,) = proposals(find_rule("vectorize-map"), described)[0]
    assert smaller.safety is Safety.APPROXIMATE
    assert "replaced twice" in conflict(described, [vectorized, smaller])
