"""Element specs, parsed from their text in TensorFlow."""

from __future__ import annotations

import pytest

from pipetune.core.pipeline import ElementSpec

IMAGES = ElementSpec("TensorSpec(shape=(None, 8), dtype=tf.float32, name=None)")
FIXED = ElementSpec(
    "(TensorSpec(shape=(4, 8), dtype=tf.float32, name=None), TensorSpec(shape=(4,), dtype=tf.int64, name=None))"
)
MIXED = ElementSpec(
    "{'text': TensorSpec(shape=(4,), dtype=tf.string, name=None), "
    "'words': RaggedTensorSpec(TensorShape([4, None]), tf.int32, 1, tf.int64)}"
)
SCALAR = ElementSpec("TensorSpec(shape=(), dtype=tf.int64, name=None)")
SHAPELESS = ElementSpec("TensorSpec(shape=<unknown>, dtype=tf.uint8, name=None)")
SPARSE = ElementSpec("SparseTensorSpec(TensorShape([2, 3]), tf.int64)")
NOTHING = ElementSpec("")


@pytest.mark.parametrize(
    ("spec", "fixed", "unknown", "unknown_batch"),
    [
        (IMAGES, False, True, True),
        (FIXED, True, False, False),  # although every tensor has the name None
        (MIXED, False, True, False),
        (SCALAR, True, False, False),
        (SHAPELESS, False, False, False),
        (SPARSE, True, False, False),
        (NOTHING, False, False, True),
    ],
)
def test_fixed_and_unknown_sizes(spec: ElementSpec, fixed: bool, unknown: bool, unknown_batch: bool) -> None:
    assert (spec.has_fixed_shapes, spec.has_unknown_sizes) == (fixed, unknown)
    assert spec.has_unknown_batch_size is unknown_batch


def test_structure_and_types() -> None:
    assert [spec.is_tuple for spec in (IMAGES, FIXED, MIXED, NOTHING)] == [False, True, False, False]
    assert [spec.is_dense for spec in (IMAGES, FIXED, MIXED, SPARSE, NOTHING)] == [True, True, False, False, True]
    assert MIXED.has_dtype("tf.string") and MIXED.has_dtype("tf.int32") and not FIXED.has_dtype("tf.string")
    assert not SCALAR.has_dtype("tf.int")
    assert MIXED.has_component("words") and not MIXED.has_component("word")


def test_first_sizes_are_known_for_all_components_or_none() -> None:
    assert FIXED.first_sizes == (4, 4)
    assert [spec.first_sizes for spec in (IMAGES, MIXED, SCALAR, SHAPELESS, NOTHING)] == [None] * 5


def test_code_for_first_tensor() -> None:
    assert [spec.first_tensor for spec in (IMAGES, FIXED, MIXED, NOTHING)] == ["", "[0]", "['text']", None]


def test_tensors_are_compared_without_names_and_order() -> None:
    other = ElementSpec(
        "{'label': TensorSpec(shape=(4,), dtype=tf.int64, name='y'), "
        "'image': TensorSpec(shape=(4, 8), dtype=tf.float32, name='x')}"
    )
    assert other.tensors == FIXED.tensors and IMAGES.tensors != FIXED.tensors
