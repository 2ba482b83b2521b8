"""`bucket-batches`: where padding is told of and batches stay, and where batches by length are offered."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.editing import apply_edits
from pipetune.core.padding import BUCKETS, Padding
from pipetune.model.memory import by_operator
from pipetune.model.trust import why_not
from pipetune.rules import propose_all
from pipetune.rules.conflicts import conflict
from pipetune.testing.rules import check_fires, check_silent, context
from tests.rules.outline import outlines

_LINES = "TextLineDataset elements=9000 bytes=90 | map bytes=50"
_PADDED = "padded_batch 8 padding=0.4:9+17:0.1"

SILENT: list[tuple[str, dict[str, Any], str]] = [
    ("range 9 | map | batch 8", {}, ""),
    (f"{_LINES} | padded_batch 8", {}, ""),  # nobody measured any, or every element is as large
    (f"{_LINES} | padded_batch 8 padding=0.09:9+17:0.01", {}, ""),
    (f"{_LINES} | {_PADDED}", {"profiled": False}, ""),
    (f"{_LINES} | padded_batch 8 padding=0.4:no", {}, "pads with values of its own"),
    (f"{_LINES} | {_PADDED} drop_remainder=True", {}, "of each length would be"),
    (f"{_LINES} | padded_batch 8 padding=0.2:9:0.17", {}, "in batches by length 17% would still be"),
    (f"{_LINES} | {_PADDED}", {"partial_read": True}, "training stops before"),
    (f"{_LINES} | {_PADDED} | take 5", {}, "take (train.py:4) behind it"),
    (f"{_LINES} | {_PADDED} | skip 5", {}, "skip (train.py:4) behind it"),
    (f"{_LINES} | {_PADDED} | shard 2 index=0", {}, "another number of them"),
    (f"{_LINES} | {_PADDED} | cache", {}, "cache (train.py:4) behind it"),
    (f"{_LINES} | {_PADDED} | unbatch", {}, "unbatch"),
    (f"{_LINES} | {_PADDED} | batch 2", {}, "would get other batches"),
    (f"{_LINES} | {_PADDED} | filter", {}, "filter"),
    (f"{_LINES} | {_PADDED} | enumerate", {}, "enumerate"),
    (f"{_LINES} | {_PADDED} | map random", {}, "more than work on the batch"),
    (f"{_LINES} | {_PADDED} | map python", {}, "more than work on the batch"),
    (f"{_LINES} | {_PADDED} | map variable=w", {}, "more than work on the batch"),
    (f"a = {_LINES} | {_PADDED}; b = range 9; zip a b", {}, "zip"),
]


@pytest.mark.parametrize(("words", "fields", "says"), SILENT)
def test_silent(words: str, fields: dict[str, Any], says: str) -> None:
    said = check_silent("bucket-batches", words, **fields)
    assert bool(said) == bool(says)
    assert all(says in silence.why and "padding" in silence.why for silence in said)


_BUCKETS = "batch_size=8,element_length_func=(0,),unpacked=True,bucket_boundaries=(9, 17)"

FIRES = [
    f"{_LINES} | {_PADDED}",
    f"{_LINES} | shuffle 99 | {_PADDED} | prefetch AUTOTUNE",
    f"{_LINES} | {_PADDED} | map | shuffle 9 | repeat",
]


@pytest.mark.parametrize("words", FIRES)
def test_fires(words: str) -> None:
    (rewrite,) = check_fires("bucket-batches", words)
    assert outlines([rewrite]) == [f"REORDERS {BUCKETS}({_BUCKETS})>{rewrite.node} -{rewrite.node}"]
    assert "40% of the bytes" in rewrite.summary and "in 3 buckets 10% would be" in rewrite.summary
    assert "33% less" in rewrite.summary
    assert rewrite.predicted_bytes == 3 * 8 * 50


def test_what_is_saved_is_a_share_of_the_batches_as_they_are() -> None:
    # Of 100 bytes 60 are elements. In batches a tenth of which is padding they fill 66.7.
    assert Padding(share=0.4, bucketed_share=0.1).saved_share == pytest.approx(1 / 3)
    assert Padding(share=0.4, bucketed_share=0.4).saved_share == 0
    assert Padding(share=0.1, bucketed_share=1.0).saved_share == 0


def test_the_operator_put_in_is_known_to_the_model() -> None:
    told = context(f"{_LINES} | {_PADDED} | prefetch 2")
    assert told.profile is not None
    (rewrite,) = check_fires("bucket-batches", f"{_LINES} | {_PADDED} | prefetch 2")
    edited = apply_edits(told.pipeline, rewrite.edits)
    assert [node.op for node in edited] == ["TextLineDataset", "map", BUCKETS, "prefetch"]
    assert edited[f"{BUCKETS}@n2"].cardinality == -2
    assert by_operator(edited, told.profile)[f"{BUCKETS}@n2"] == 3 * 8 * 50
    assert "batches by length" in why_not(edited, told.profile)


def test_it_stands_beside_a_prefetch_behind_the_batch() -> None:
    told = context(f"{_LINES} | {_PADDED}")
    rewrites, _ = propose_all(told)
    buckets = next(one for one in rewrites if one.rule == "bucket-batches")
    prefetch = next(one for one in rewrites if one.rule == "prefetch")
    plan = sorted([buckets, prefetch], key=rewrites.index)
    assert conflict(told, plan) == ""
    edited = apply_edits(told.pipeline, [edit for one in plan for edit in one.edits])
    assert [node.op for node in edited] == ["TextLineDataset", "map", BUCKETS, "prefetch"]
