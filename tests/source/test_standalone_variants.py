"""Variants within a module as text: last batches filled up, and rows with their index; where there are none and why."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from pipetune.core.distribution import Definition, FunctionSource, SourceText, StandaloneParts
from pipetune.core.functions import FunctionFacts
from pipetune.core.pipeline import Node, Pipeline
from tests.source.test_standalone import FACTS, ROWS, files, parts, photos
from tests.source.test_standalone_kinds import dataset_calls, emit, function

BATCHED = parts(ROWS, "batch 4")


def with_spec(made: StandaloneParts, spec: str) -> StandaloneParts:
    return replace(made, pipeline=Pipeline(tuple(replace(node, spec=spec) for node in made.pipeline)))


def defines(text: str) -> set[str]:
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (parts(ROWS, "map parse"), "multiworker"),  # no batches
        (parts(files(9), "padded_batch 4"), "multiworker"),  # each with another length
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
    made = parts(ROWS, "map parse | batch 4")
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
    padded = emit(parts(files(9), "padded_batch 4"), "tpu")
    assert not padded.indexed and any("last batch would be partial" in note for note in padded.notes)


SLICES = SourceText(9, expression="tf.data.Dataset.from_tensor_slices(([1, 2], [3, 4]))")


def calls(made: StandaloneParts) -> list[str]:
    return dataset_calls(emit(made, "multiworker").text, "indexed_dataset_fn")


def why_not(made: StandaloneParts) -> str:
    """The reason for writing `dataset_fn` without an indexed variant."""
    written = emit(made, "multiworker")
    assert not written.indexed and "indexed" not in written.text.replace("has no form with indices", "")
    assert "in_order(" not in written.text and function(written.text, "dataset_fn")
    (note,) = [note for note in written.notes if note.startswith("it has no form with indices")]
    return note


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("batch 4 | map parse | unbatch | batch 4", "batch makes one element of several"),
        ("unbatch | batch 4", "unbatch makes several elements of one"),
        ("unique | batch 4", "unique compares elements"),
        ("window 3 | flat_map parse | batch 4", "window makes datasets of elements"),
        ("flat_map parse | flat_map parse | batch 4", "an index has room for two numbers"),
        ("interleave 2 augment | batch 4", "may be others each time"),
        ("repeat -1 | skip 5 | batch 4", "the data never ends"),
    ],
)
def test_no_index_where_elements_are_split_or_combined(steps: str, reason: str) -> None:
    assert reason in why_not(parts(files(9), steps))


def test_no_index_where_rows_of_a_file_are_shuffled_while_read() -> None:
    made = parts(files(9), "interleave 2 read | batch 4")
    shuffles = ("TFRecordDataset", "ShuffleDatasetV3")
    nodes = (replace(node, inner=shuffles) if node.op == "interleave" else node for node in made.pipeline)
    assert "may be others each time" in why_not(replace(made, pipeline=Pipeline(tuple(nodes))))


def test_no_index_where_the_script_uses_the_same_name() -> None:
    made = parts(files(9), "map parse | batch 4")
    named = FunctionSource("in_order", (Definition("in_order", "from helpers import in_order"),))
    written = emit(replace(made, functions={"n1": named}), "multiworker")
    assert not written.indexed and any("calls something else in_order" in note for note in written.notes)
    assert "from helpers import in_order" in written.text


def test_indices_are_added_to_file_names_before_sharding() -> None:
    assert "".join(calls(photos(14))) == (
        ".from_tensor_slices((tf.range(len(files), dtype=tf.int64), files)).shard(workers, worker).shuffle(14)"
        ".interleave(numbering_rows(tf.data.TFRecordDataset), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
        ".map(keeping_index(parse), num_parallel_calls=2).map(keeping_index(augment)).shuffle(256)"
        ".batch(batch_size).prefetch(2 * replicas)"  # every row, once
    )


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (ROWS, ".range(1000).map(lambda number: (tf.cast(number, tf.int64), number))"),
        (SLICES, ".from_tensor_slices((tf.range(9, dtype=tf.int64), ([1, 2], [3, 4])))"),
        (SourceText(1, expression="tf.data.Dataset.from_tensors(7)"), ".from_tensors(7).enumerate()"),
    ],
)
def test_rows_in_memory_are_numbered_at_the_source(source: SourceText, written: str) -> None:
    assert calls(parts(source, "batch 4"))[0] == written


def test_range_values_are_numbered_by_position() -> None:
    source = Node("n0", "range", arguments={"start": 10, "stop": 0, "step": -2}, cardinality=5)
    made = StandaloneParts(
        Pipeline((source, Node("n1", "batch", ("n0",), {"batch_size": 2}))),
        {"n0": SourceText(5, expression="tf.data.Dataset.range(10, 0, -2)")},
    )
    assert calls(made)[0] == (".range(10, 0, -2).map(lambda number: ((tf.cast(number, tf.int64) - 10) // -2, number))")


def test_predicates_do_not_receive_the_index_and_tuples_are_unpacked() -> None:
    keep = FunctionFacts(name="keep", digest="d")
    made = parts(ROWS, "filter keep | map parse | batch 4", functions={**FACTS, "keep": keep})
    several = replace(made.functions["n2"], unpacks_tuple=True)
    written = calls(replace(made, functions={**made.functions, "n2": several}))
    assert ".filter(without_index(lambda x: x > 0))" in written
    assert ".map(keeping_index(parse, several=True))" in written


def test_reader_records_are_numbered_within_their_file() -> None:
    reader = parts(files(9), "TFRecordDataset | batch 4")
    assert ".flat_map(numbering_rows(lambda name: tf.data.TFRecordDataset(name)))" in calls(reader)
    extra = {"n1": {"compression_type": '"GZIP"', "num_parallel_reads": "4"}}
    assert (
        ".interleave(numbering_rows(lambda name: tf.data.TFRecordDataset(name, compression_type='GZIP')), "
        "cycle_length=4, num_parallel_calls=4)"
    ) in calls(replace(reader, extra_arguments=extra))


def test_only_a_parameter_server_repeats_what_has_an_index() -> None:
    repeats = dataset_calls(emit(photos(14), "parameter-server").text, "indexed_dataset_fn")
    assert ".repeat()" in repeats  # its workers must not run out of data
    assert ".repeat()" not in dataset_calls(emit(photos(14), "service").text, "indexed_dataset_fn")


def test_index_that_failed_its_check_is_left_out_with_the_reason() -> None:
    written = emit(photos(14), "multiworker", no_index="with 2 workers it went wrong")
    assert not written.indexed and written.notes[-1].endswith("in order: with 2 workers it went wrong")
