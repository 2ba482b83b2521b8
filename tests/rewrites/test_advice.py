"""Advice that makes no edit: length buckets, decoding at a smaller scale, what can replace a Python generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipetune.core.profile import ConsumerProfile, Finding, PaddingShares
from pipetune.rewrites.decode_and_crop import suggest_smaller_decoding
from pipetune.rewrites.pad_batches import suggest_length_buckets
from pipetune.rewrites.parallel_map import suggest_python_alternatives
from tests.rewrites.tables import Row, rows, with_measured, with_profile
from tests.rules import context

_LINES = "TextLineDataset elements=9000 bytes=90 | map bytes=50"
_PADDED = f"{_LINES} | padded_batch 8 padding=0.4:9+17:0.1"

NO_BUCKETS: list[Row] = [
    (f"{_LINES} | padded_batch 8", None),  # not measured, or every element has the same size
    (f"{_LINES} | padded_batch 8 padding=[0.09:9+17:0.01 or 0.2:9:0.17]", None),
    (f"{_LINES} | padded_batch 8 padding=0.4:no", None),  # pads with values of its own
    (f"{_PADDED} drop_remainder=True", None),
    (_PADDED, {"profiled": False}, None),
    (_PADDED, {"partial_read": True}, None),
    (f"{_PADDED} | [take 5 or skip 5 or shard 2 index=0 or cache or unbatch or batch 2 or filter or enumerate]", None),
    (f"{_PADDED} | map [random or python or variable=w]", None),
    (f"a = {_PADDED}; b = range 9; zip a b", None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "nothing"), rows(NO_BUCKETS))
def test_no_buckets_are_suggested(words: str, fields: dict[str, Any], nothing: None) -> None:
    assert list(suggest_length_buckets(context(words, **fields))) == []


@pytest.mark.parametrize("words", [_PADDED, f"{_PADDED} | map | shuffle 9 | repeat"])
def test_suggestion_names_padding_and_call(words: str) -> None:
    (found,) = suggest_length_buckets(context(words))
    assert found.code == "bucket-batches" and found.file is not None and found.line is not None
    for part in ("40 % of the bytes are padding", "in 3 buckets, it would be 10 %: 33 % fewer"):
        assert part in found.message
    call = "bucket_by_sequence_length(lambda *element: tf.shape(element[0])[0], [9, 17], [8] * 3)"
    assert found.hint.startswith(f"Use {call} instead of padded_batch.")


def test_saved_share_is_relative_to_the_current_batches() -> None:
    # Of 100 bytes 60 are elements. In batches with a tenth of padding they take 66.7.
    assert PaddingShares(share=0.4, bucketed_share=0.1).saved_share == pytest.approx(1 / 3)
    assert PaddingShares(share=0.1, bucketed_share=1.0).saved_share == 0


_RESIZES = "map calls=DecodeJpeg+ResizeBilinear shrink=2"

NO_SMALLER: list[Row] = [
    # No JPEG is decoded by a map, or it was not probed.
    ("range 9 | map[ or  unknown or  calls=DecodeImage+ResizeBilinear or  calls=DecodeJpeg+ResizeBilinear]", None),
    ("range 9 | [filter or flat_map] calls=DecodeJpeg shrink=2", None),
    ("range 9 | map calls=DecodeJpeg shrink=no", None),  # the image is needed at full resolution
    (f"range 9 | {_RESIZES} [python or variable=w or writes or table or print]", None),
    # Errors are dropped downstream.
    (f"range 9 | {_RESIZES} | ignore_errors", None),
]


def _smaller(words: str, share: float | None = 0.4, **measured: Any) -> Sequence[Finding]:
    return list(suggest_smaller_decoding(with_measured(context(words), shrinking_share=share, **measured)))


@pytest.mark.parametrize(("words", "fields", "nothing"), rows(NO_SMALLER))
def test_no_smaller_decoding_is_suggested(words: str, fields: dict[str, Any], nothing: None) -> None:
    assert _smaller(words) == []


@pytest.mark.parametrize(
    "words", [f"range 9 | {_RESIZES} random 4 | batch 2", "range 9 | ignore_errors | map shrink=2"]
)
def test_suggestion_names_saving_call_and_difference(words: str) -> None:
    (found,) = _smaller(words)
    assert found.code == "decode-smaller" and found.file is not None and found.line is not None
    assert "At 1/2 of their rows and columns it costs 60 % less." in found.message
    assert found.hint.startswith("Use tf.io.decode_jpeg(contents, ratio=2).")
    assert "1.0 % of the maximum" in found.hint and "at least 2 times as large" in found.hint
    assert [len(_smaller(words, share)) for share in (None, 0.89, 0.94, 1.02)] == [0, 1, 0, 0]
    assert not _smaller(words, visits=0.0)  # a cache of the script has its results
    measured = with_measured(context(words), shrinking_share=0.4)
    maps = {node.id for node in measured.pipeline if node.op == "map"}
    assert not list(suggest_smaller_decoding(measured, cached=maps))  # or that of the plan will have them


_SLOW = "map python cpu=2ms waits=0us bytes=1k"


def _python(words: str, *, input_wall_seconds: float | None = 0.1, **consumer: Any) -> list[Finding]:
    training = ConsumerProfile(kind="keras-fit", **consumer)
    described = with_profile(context(words), consumer=training, input_wall_seconds=input_wall_seconds)
    return list(suggest_python_alternatives(described))


@pytest.mark.parametrize("words", [
    "range 9 | map! | map python cpu=100us waits=0us | batch 32",
    "range 9 | map python cpu=1ms waits=3ms | batch 32",  # others hold the GIL while it waits
    "range 2 | flat_map! calls=PyFunc python | batch 32",
    "from_generator cpu=100us waits=0us | map! | batch 32",  # 3 ms of the 100 ms per batch
])  # fmt: skip
def test_no_alternative_to_python_is_suggested(words: str) -> None:
    assert _python(words) == []


def test_generator_limit_and_alternative_are_suggested() -> None:
    (found,) = _python("from_generator cpu=2ms waits=0us | batch 32", bound_seconds=0.02)
    assert (found.code, found.file, found.line) == ("python-generator", "train.py", 1)
    assert "at most 500 elements/s (2.0 ms each)" in found.message and "hold the GIL" in found.message
    assert "Per training step, that is 64 ms, 3.2 times what the model needs." in found.message
    assert "from_tensor_slices((paths, labels)).map(load" in found.hint and "TFRecords" in found.hint
    (found,) = _python("from_generator cpu=1ms waits=3ms | batch 32", bound_seconds=0.32)
    assert "at most 250 elements/s (4.0 ms each, 75 % of that waiting)" in found.message
    assert "40 % of what the model needs" in found.message
    (found,) = _python("from_generator cpu=2ms | batch 32")
    assert "training step" not in found.message  # no step was measured
    for calls in ("", " calls=PyFunc+GeneratorDataset"):  # with arguments, it calls Python itself, too
        (found,) = _python(f"list_files | interleave! inner=FlatMapDataset python{calls} | batch 32")
        assert found.code == "python-generator" and "interleave (train.py:3) runs Python" in found.message


def test_limit_and_alternative_of_a_map_that_runs_python_are_suggested() -> None:
    (found,) = _python("range 9 | map python cpu=2ms waits=0us | batch 32", bound_seconds=0.02)
    assert (found.code, found.file, found.line) == ("python-map", "train.py", 2)
    assert "at most 500 elements/s (2.0 ms each)" in found.message and "tf.io.read_file" in found.hint


@pytest.mark.parametrize(("words", "advised"), [
    (f"range 9 elements=90 | {_SLOW} elements=90", "put a cache() after it: 90 elements take 87.9 KiB"),
    (f"range 9 elements=90 | shuffle 9 | {_SLOW} elements=90", "put it in front of shuffle(), with a cache()"),
    ("from_generator cpu=2ms waits=0us elements=90 bytes=1k", "put a cache() after it: 90 elements"),
    (f"range 9 elements=90 | {_SLOW} elements=90 | cache", ""),
    (f"range 9 | repeat elements=-1 | {_SLOW} elements=-1", ""),
    ("from_generator cpu=2ms waits=0us bytes=1k", "put a cache() after it: 1,000 elements take 977 KiB"),
    ("from_generator cpu=2ms waits=0us", ""),
])  # fmt: skip
def test_cache_is_suggested_where_it_fits(words: str, advised: str) -> None:
    (found,) = _python(f"{words} | batch 32")
    assert advised in found.hint and ("cache()" in found.hint) == bool(advised)


def test_no_suggestion_without_a_profile() -> None:
    assert list(suggest_python_alternatives(context("from_generator", profiled=False))) == []
    assert _python("from_generator cpu=2ms | batch 32", input_wall_seconds=None) == []
    slow = with_profile(context(f"range 9 | {_SLOW} | batch 32"), input_wall_seconds=0.1)
    assert [len(list(suggest_python_alternatives(slow, cached=one))) for one in ((), ("n1",))] == [1, 0]
