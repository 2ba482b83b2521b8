"""The suggestion to decode at a smaller scale: where it is made and where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.profile import Finding
from pipetune.rewrites.jpeg import suggest_smaller_decoding
from pipetune.testing.rules import context

_RESIZES = "map calls=DecodeJpeg+ResizeBilinear shrink=2"

SILENT = [
    # No JPEG is decoded by a map, or it was not probed.
    "range 9",
    "range 9 | map",
    "range 9 | map unknown",
    "range 9 | map calls=DecodeImage+ResizeBilinear",
    "range 9 | map calls=DecodeJpeg+ResizeBilinear",
    "range 9 | map calls=DecodeJpeg+Slice crop=yes",
    "range 9 | filter calls=DecodeJpeg shrink=2",
    "range 9 | flat_map calls=DecodeJpeg shrink=2",
    # The image is needed at full resolution.
    "range 9 | map calls=DecodeJpeg shrink=no",
    # The function has other effects.
    f"range 9 | {_RESIZES} python",
    f"range 9 | {_RESIZES} variable=w",
    f"range 9 | {_RESIZES} writes",
    f"range 9 | {_RESIZES} table",
    f"range 9 | {_RESIZES} print",
    # Errors are dropped downstream.
    f"range 9 | {_RESIZES} | ignore_errors",
    f"range 9 | {_RESIZES} random | shuffle 9 | batch 2 | ignore_errors | prefetch",
]


def advice(words: str, share: float | None = 0.4) -> list[Finding]:
    described = context(words)
    assert described.profile is not None
    operators = tuple(replace(one, shrinking_share=share) for one in described.profile.operators)
    return list(suggest_smaller_decoding(replace(described, profile=replace(described.profile, operators=operators))))


@pytest.mark.parametrize("words", SILENT)
def test_no_suggestion(words: str) -> None:
    assert advice(words) == []


@pytest.mark.parametrize(
    "words", [f"range 9 | {_RESIZES} random 4 | batch 2", "range 9 | ignore_errors | map shrink=2"]
)
def test_suggestion_names_saving_call_and_difference(words: str) -> None:
    (found,) = advice(words)
    assert found.code == "decode-smaller" and found.file is not None and found.line is not None
    assert "At 1/2 of their rows and columns it costs 60% less." in found.message
    assert found.hint.startswith("Use tf.io.decode_jpeg(contents, ratio=2).")
    assert "1.0% of the maximum" in found.hint
    assert "at least 2 times as large" in found.hint


@pytest.mark.parametrize(("share", "said"), [(None, 0), (0.89, 1), (0.94, 0), (1.02, 0)])
def test_small_or_unmeasured_saving_is_not_suggested(share: float | None, said: int) -> None:
    assert len(advice(f"range 9 | {_RESIZES} random | batch 2", share)) == said
