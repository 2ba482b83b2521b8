"""Facts about every operator; an unknown operator gets the most cautious ones."""

from __future__ import annotations

import pytest

from pipetune.core.operators import (
    CAUTIOUS,
    OPERATORS,
    CountEffect,
    EpochEffect,
    OrderEffect,
    operator_facts,
    public_name,
)

_NAMES = (
    "from_tensor_slices from_tensors from_generator range random TFRecordDataset TextLineDataset "
    "FixedLengthRecordDataset CsvDataset load sparse_tensor_slices map filter flat_map interleave batch "
    "padded_batch ragged_batch unbatch shuffle repeat take skip shard prefetch cache window take_while scan "
    "group_by_window ignore_errors unique concatenate zip choose snapshot rebatch with_options enumerate "
    "assert_cardinality"
)


@pytest.mark.parametrize("name", _NAMES.split(" "))
def test_public_operator_is_in_table(name: str) -> None:
    assert name in OPERATORS
    assert operator_facts(name) is not CAUTIOUS


@pytest.mark.parametrize("name", ["opaque", "bucket_by_moonlight", "", "Map"])
def test_unknown_operator_gets_most_cautious_facts(name: str) -> None:
    found = operator_facts(name)
    assert (found.order, found.count, found.epochs) == (OrderEffect.UNKNOWN, CountEffect.UNKNOWN, EpochEffect.UNKNOWN)
    assert found.random and found.python and found.reads_files
    assert found.takes_function and not found.same_elements and not found.reads_all


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("map", "count", CountEffect.ONE_TO_ONE),
        ("map", "order", OrderEffect.KEEPS),
        ("map", "parallel_argument", "num_parallel_calls"),
        ("filter", "count", CountEffect.FEWER),
        ("flat_map", "count", CountEffect.UNKNOWN),
        ("interleave", "order", OrderEffect.CHANGES),
        ("interleave", "parallel_argument", "num_parallel_calls"),
        ("batch", "batches", True),
        ("batch", "parallel_argument", "num_parallel_calls"),
        ("padded_batch", "parallel_argument", ""),
        ("shuffle", "random", True),
        ("shuffle", "epochs", EpochEffect.DIFFERENT),
        ("repeat", "epochs", EpochEffect.JOINS),
        ("repeat", "count", CountEffect.MORE),
        ("cache", "epochs", EpochEffect.FREEZES),
        ("take", "reads_all", False),
        ("zip", "reads_all", False),
        ("skip", "reads_all", True),
        ("from_generator", "python", True),
        ("from_generator", "epochs", EpochEffect.UNKNOWN),
        ("choose", "random", True),
        ("TFRecordDataset", "reads_files", True),
        ("TFRecordDataset", "source", True),
        ("enumerate", "same_elements", False),
        ("scan", "takes_function", True),
    ],
)
def test_facts_used_by_rules(name: str, field: str, value: object) -> None:
    assert getattr(operator_facts(name), field) == value


def test_operator_with_same_elements_neither_batches_nor_is_a_source() -> None:
    for name, operator in OPERATORS.items():
        assert not (operator.same_elements and operator.batches), name
        assert not (operator.source and operator.same_elements), name


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("TFRecordDatasetV2", "TFRecordDataset"),
        ("ParallelMapDatasetV2", "map"),
        ("GeneratorDataset", "from_generator"),
        ("TensorSliceDataset", "from_tensor_slices"),
        ("ShuffleDatasetV3", "shuffle"),
        ("map", "map"),
        ("TFRecordDataset", "TFRecordDataset"),
        ("NovelDatasetV7", "opaque"),
        ("MatMul", "opaque"),
    ],
)
def test_public_name_of_kernel(kernel: str, name: str) -> None:
    assert public_name(kernel) == name
