"""`bucket-batches`: when it is suggested, and the text of the suggestion."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.profile import PaddingShares
from pipetune.rewrites.bucket_batches import suggest_length_buckets
from pipetune.testing.rules import context

_LINES = "TextLineDataset elements=9000 bytes=90 | map bytes=50"
_PADDED = "padded_batch 8 padding=0.4:9+17:0.1"

SILENT: list[tuple[str, dict[str, Any]]] = [
    ("range 9 | map | batch 8", {}),
    (f"{_LINES} | padded_batch 8", {}),  # not measured, or every element has the same size
    (f"{_LINES} | padded_batch 8 padding=0.09:9+17:0.01", {}),
    (f"{_LINES} | {_PADDED}", {"profiled": False}),
    (f"{_LINES} | padded_batch 8 padding=0.4:no", {}),  # pads with values of its own
    (f"{_LINES} | {_PADDED} drop_remainder=True", {}),
    (f"{_LINES} | padded_batch 8 padding=0.2:9:0.17", {}),
    (f"{_LINES} | {_PADDED}", {"partial_read": True}),
    (f"{_LINES} | {_PADDED} | take 5", {}),
    (f"{_LINES} | {_PADDED} | skip 5", {}),
    (f"{_LINES} | {_PADDED} | shard 2 index=0", {}),
    (f"{_LINES} | {_PADDED} | cache", {}),
    (f"{_LINES} | {_PADDED} | unbatch", {}),
    (f"{_LINES} | {_PADDED} | batch 2", {}),
    (f"{_LINES} | {_PADDED} | filter", {}),
    (f"{_LINES} | {_PADDED} | enumerate", {}),
    (f"{_LINES} | {_PADDED} | map random", {}),
    (f"{_LINES} | {_PADDED} | map python", {}),
    (f"{_LINES} | {_PADDED} | map variable=w", {}),
    (f"a = {_LINES} | {_PADDED}; b = range 9; zip a b", {}),
]


@pytest.mark.parametrize(("words", "fields"), SILENT)
def test_no_suggestion(words: str, fields: dict[str, Any]) -> None:
    assert list(suggest_length_buckets(context(words, **fields))) == []


@pytest.mark.parametrize(
    "words",
    [
        f"{_LINES} | {_PADDED}",
        f"{_LINES} | shuffle 99 | {_PADDED} | prefetch AUTOTUNE",
        f"{_LINES} | {_PADDED} | map | shuffle 9 | repeat",
    ],
)
def test_suggestion_names_padding_and_call(words: str) -> None:
    (found,) = suggest_length_buckets(context(words))
    assert found.code == "bucket-batches" and found.file is not None and found.line is not None
    assert (
        "40% of the bytes are padding" in found.message and "in 3 buckets, it would be 10%: 33% fewer" in found.message
    )
    call = "bucket_by_sequence_length(lambda *element: tf.shape(element[0])[0], [9, 17], [8] * 3)"
    assert found.hint.startswith(f"Use {call} instead of padded_batch.")


def test_saved_share_is_relative_to_the_current_batches() -> None:
    # Of 100 bytes 60 are elements. In batches with a tenth of padding they take 66.7.
    assert PaddingShares(share=0.4, bucketed_share=0.1).saved_share == pytest.approx(1 / 3)
    assert PaddingShares(share=0.4, bucketed_share=0.4).saved_share == 0
    assert PaddingShares(share=0.1, bucketed_share=1.0).saved_share == 0
