"""Facts about every operator; an unknown operator gets the most cautious ones."""

from __future__ import annotations

import pytest

from pipetune.core.operators import OPERATORS, CountEffect, EpochEffect, OrderEffect, operator_facts, public_name


@pytest.mark.parametrize("name", ["opaque", "bucket_by_moonlight", "", "Map"])
def test_unknown_operator_gets_most_cautious_facts(name: str) -> None:
    found = operator_facts(name)
    assert (found.order, found.count, found.epochs) == (OrderEffect.UNKNOWN, CountEffect.UNKNOWN, EpochEffect.UNKNOWN)
    assert found.random and found.python and found.reads_files
    assert found.takes_function and not found.same_elements and not found.reads_all


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
