"""Last batches made full, as text: where that is not offered, then where it stands."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Definition, FunctionSource, StandaloneParts
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
        (parts(files(9), ("padded_batch", {"batch_size": 4})), "multiworker"),  # each of another length
        (with_spec(BATCHED, "RaggedTensorSpec(...)"), "multiworker"),
        (BATCHED, "horovod"),
        (BATCHED, "service"),
        (BATCHED, "parameter-server"),
    ],
)
def test_not_offered_where_there_is_no_last_batch_of_a_worker_to_fill(made: StandaloneParts, kind: str) -> None:
    written = emit(made, kind)
    assert not written.fills and "full_batches" not in defines(written.text) and "fill=" not in written.text


def test_not_offered_where_it_failed_or_where_the_script_has_that_name() -> None:
    failed = emit(BATCHED, "multiworker", no_fill="a batch has 3 of 4 rows")
    assert not failed.fills and any("a batch has 3 of 4 rows" in note for note in failed.notes)
    made = parts(ROWS, ("map", {}, PARSE), ("batch", {"batch_size": 4}))
    for name in ("full_batches", "fill"):
        named = FunctionSource(name, (Definition(name, f"from helpers import {name}"),))
        written = emit(replace(made, functions={"n1": named}), "multiworker")
        assert not written.fills and f".map({name})" in written.text


@pytest.mark.parametrize("kind", ["mirrored", "multiworker", "tpu"])
def test_what_drops_a_remainder_can_keep_it_instead(kind: str) -> None:
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
def test_what_keeps_its_remainder_goes_on_to_do_so() -> None:
    text = ast.unparse(function(emit(BATCHED, "multiworker").text, "dataset_fn"))
    assert "drop_remainder" not in text and "full_batches(dataset, batch_size, replicas)" in text


def test_what_fills_a_batch_of_a_tpu_has_no_index() -> None:
    indexed = ast.unparse(function(emit(photos(14), "tpu").text, "indexed_dataset_fn"))
    assert "full_batches(dataset, batch_size, replicas)" in indexed and "tf.where(real, indexed[0], -1)" in indexed
    assert "if fill" not in indexed
    padded = emit(parts(files(9), ("padded_batch", {"batch_size": 4})), "tpu")
    assert not padded.indexed and any("last batch would be partial" in note for note in padded.notes)
