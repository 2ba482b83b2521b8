"""Element specs, parsed from their text in TensorFlow."""

from __future__ import annotations

import pytest

from pipetune.core.pipeline import ElementSpec

IMAGES = "TensorSpec(shape=(None, 8), dtype=tf.float32, name=None)"
FIXED = "(TensorSpec(shape=(4, 8), dtype=tf.float32, name=None), TensorSpec(shape=(4,), dtype=tf.int64, name=None))"
RAGGED = "RaggedTensorSpec(TensorShape([4, None]), tf.int32, 1, tf.int64)"
MIXED = f"{{'text': TensorSpec(shape=(4,), dtype=tf.string, name=None), 'words': {RAGGED}}}"
SCALAR = "TensorSpec(shape=(), dtype=tf.int64, name=None)"
SHAPELESS = "TensorSpec(shape=<unknown>, dtype=tf.uint8, name=None)"
SPARSE = "SparseTensorSpec(TensorShape([2, 3]), tf.int64)"


@pytest.mark.parametrize(
    ("text", "fixed", "unknown", "unknown_batch", "others"),
    [
        (IMAGES, False, True, True, (False, True, "", None)),
        (FIXED, True, False, False, (True, True, "[0]", (4, 4))),  # fixed although every tensor has the name None
        (MIXED, False, True, False, (False, False, "['text']", None)),
        (SCALAR, True, False, False, (False, True, "", None)),
        (SHAPELESS, False, False, False, (False, True, "", None)),
        (SPARSE, True, False, False, (False, False, None)),
        ("", False, False, True, (False, True, None, None)),
    ],
)
def test_facts_of_spec(text: str, fixed: bool, unknown: bool, unknown_batch: bool, others: tuple[object, ...]) -> None:
    """`others`: whether it is a tuple and dense, code for its first tensor, first sizes known for all or none."""
    spec = ElementSpec(text)
    assert (spec.has_fixed_shapes, spec.has_unknown_sizes) == (fixed, unknown)
    assert spec.has_unknown_batch_size is unknown_batch
    assert (spec.is_tuple, spec.is_dense, spec.first_tensor, spec.first_sizes)[: len(others)] == others


def test_types_and_components() -> None:
    mixed, fixed, scalar = map(ElementSpec, (MIXED, FIXED, SCALAR))
    assert mixed.has_dtype("tf.string") and mixed.has_dtype("tf.int32") and not fixed.has_dtype("tf.string")
    assert not scalar.has_dtype("tf.int")
    assert mixed.has_component("words") and not mixed.has_component("word")


def test_tensors_are_compared_without_names_and_order() -> None:
    other = ElementSpec(
        "{'label': TensorSpec(shape=(4,), dtype=tf.int64, name='y'), "
        "'image': TensorSpec(shape=(4, 8), dtype=tf.float32, name='x')}"
    )
    fixed = ElementSpec(FIXED)
    assert other.tensors == fixed.tensors != ElementSpec(IMAGES).tensors
