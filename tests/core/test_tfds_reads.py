"""Reads by TensorFlow Datasets in a pipeline, and the field of ReadConfig that an edit corresponds to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core import storage
from pipetune.core.edits import Edit, Insert, Remove, SetArgument, SetOption
from pipetune.core.pipeline import Value
from tests.core.tfds_pipelines import CALL, DECODED, READ, made_by_tfds
from tests.words import pipeline


def test_pipeline_of_script_has_no_tfds_reads() -> None:
    own = pipeline(f"{DECODED} | batch 4")
    assert not list(storage.tfds_reads(own)) and storage.tfds_read_of(own, "n1") is None
    keras = replace(CALL, method="image_dataset_from_directory", library="keras")
    others = replace(own, nodes=tuple(replace(node, location=keras) for node in own))
    assert not list(storage.tfds_reads(others))


def test_operators_of_one_tfds_call() -> None:
    words = DECODED.replace(" | interleave", " | shuffle 8 seed=3 | interleave")
    read = made_by_tfds(pipeline(f"{words} | map | prefetch 2 | map | batch 4"), 8)
    (found,) = storage.tfds_reads(read)
    assert [node.op for node in found.operators] == [
        "from_tensor_slices", "shuffle", "interleave", "assert_cardinality", "with_options", "map", "map", "prefetch"
    ]  # fmt: skip
    assert found.interleave.id == "n2" and found.decode is not None and found.decode.id == "n5"
    assert found.shuffle is not None and found.shuffle.id == "n1" and found.shard is None
    assert found.call == "tfds.load" and (found.cycle_length(read), found.block_length) == (16, 16)
    assert storage.tfds_read_of(read, "n7") == found and storage.tfds_read_of(read, "n8") is None
    assert storage.description(read, found).startswith("tfds.load (train.py:40) reads its files shuffled with its seed")


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (SetArgument("n5", "num_parallel_calls", 2), None),  # a map of the script
        (SetArgument("n3", "num_parallel_calls", 2), None),  # with_options takes none
        (SetArgument("n4", "deterministic", False), None),
        (SetArgument("n1", "deterministic", False), None),
        (SetOption("deterministic", False), None),
        (Insert("n1", "cache", "cache@n1"), None),
        (Remove("n5"), None),
        (Remove("n4"), None),
        (SetArgument("n1", "cycle_length", 32), ("interleave_cycle_length", 32)),
        (SetArgument("n1", "block_length", 4), ("interleave_block_length", 4)),
        (SetArgument("n1", "num_parallel_calls", -1), ("num_parallel_calls_for_interleave_files", -1)),
        (SetArgument("n4", "num_parallel_calls", 2), ("num_parallel_calls_for_decode", 2)),
    ],
)
def test_read_config_field_of_edit(edit: Edit, expected: tuple[str, Value] | None) -> None:
    read = made_by_tfds(pipeline(f"{DECODED} | map | batch 4"), 5)
    assert storage.read_config_field(read, edit) == expected


def test_read_config_text_of_several_edits() -> None:
    read = made_by_tfds(pipeline(f"{READ} | map | prefetch 2"), 4)
    edits = [SetArgument("n1", "cycle_length", 3), SetArgument("n1", "num_parallel_calls", -1), Remove("n3")]
    text = storage.read_config_text(storage.read_config_fields(read, edits))
    assert text == (
        "tfds.ReadConfig(interleave_cycle_length=3, num_parallel_calls_for_interleave_files=tf.data.AUTOTUNE, "
        "skip_prefetch=True)"
    )
