"""Last batches filled up, as text: where this is not offered, and where it is written."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from pipetune.core.distribution import Definition, FunctionSource, StandaloneParts
from pipetune.core.pipeline import Pipeline
from tests.source.test_standalone import PARSE, files, parts, photos
from tests.source.test_standalone_kinds import ROWS, emit, function

BATCHED = parts(ROWS, ("batch", {"batch_size": 4}))


def with_spec(made: StandaloneParts, spec: str) -> StandaloneParts:
    return replace(made, pipeline=Pipeline(tuple(replace(node, spec=spec) for node in made.pipeline)))


def defines(text: str) -> set[str]:
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (parts(ROWS, ("map", {}, PARSE)), "multiworker"),  # no batches
        (parts(files(9), ("padded_batch", {"batch_size": 4})), "multiworker"),  # each with another length
        (with_spec(BATCHED, "RaggedTensorSpec(...)"), "multiworker"),
        (BATCHED, "horovod"),
        (BATCHED, "service"),
        (BATCHED, "parameter-server"),
    ],
)
def test_fill_is_not_offered_without_a_last_batch_per_worker(made: StandaloneParts, kind: str) -> None:
    written = emit(made, kind)
    assert not written.fills and "full_batches" not in defines(written.text) and "fill=" not in written.text


def test_fill_is_not_offered_after_a_failure_or_a_name_clash() -> None:
    failed = emit(BATCHED, "multiworker", no_fill="a batch has 3 of 4 rows")
    assert not failed.fills and any("a batch has 3 of 4 rows" in note for note in failed.notes)
    made = parts(ROWS, ("map", {}, PARSE), ("batch", {"batch_size": 4}))
    for name in ("full_batches", "fill"):
        named = FunctionSource(name, (Definition(name, f"from helpers import {name}"),))
        written = emit(replace(made, functions={"n1": named}), "multiworker")
        assert not written.fills and f".map({name})" in written.text


@pytest.mark.parametrize("kind", ["mirrored", "multiworker", "tpu"])
def test_dropped_remainder_can_be_kept_and_filled(kind: str) -> None:
    written = emit(photos(14), kind)
    text = ast.unparse(function(written.text, "dataset_fn"))
    assert written.fills and "full_batches" in defines(written.text)
    assert text.startswith("def dataset_fn(input_context, *, fill=False):")
    assert ".batch(batch_size, drop_remainder=not fill)" in text
    assert "if fill:\n        dataset = full_batches(dataset, batch_size, replicas)" in text
    assert text.index("full_batches") < text.index(".prefetch(")
    assert "replicas = input_context.num_replicas_in_sync // workers" in text
    assert any("is not scaled" in note for note in written.notes)


@pytest.mark.mission("B7.offer")
def test_kept_remainder_stays_kept() -> None:
    text = ast.unparse(function(emit(BATCHED, "multiworker").text, "dataset_fn"))
    assert "drop_remainder" not in text and "full_batches(dataset, batch_size, replicas)" in text


def test_rows_that_fill_a_tpu_batch_have_no_index() -> None:
    indexed = ast.unparse(function(emit(photos(14), "tpu").text, "indexed_dataset_fn"))
    assert "full_batches(dataset, batch_size, replicas)" in indexed and "tf.where(real, indexed[0], -1)" in indexed
    assert "if fill" not in indexed
    padded = emit(parts(files(9), ("padded_batch", {"batch_size": 4})), "tpu")
    assert not padded.indexed and any("last batch would be partial" in note for note in padded.notes)
