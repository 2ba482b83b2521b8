"""The share of its cost that a function keeps when it decodes only the crop."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.functions import FunctionVariant
from pipetune.measure.variant_costs import measure_shares
from pipetune.pipelines import live
from pipetune.probes import decoding
from tests.rewrites.on_data.jpegs import jpeg


def test_only_croppable_functions_are_measured() -> None:
    images = [jpeg("4:2:0", 320, 320, seed=number) for number in range(8)]
    dataset = tf.data.Dataset.from_tensor_slices(images)
    dataset = dataset.map(lambda data: tf.image.random_crop(tf.io.decode_jpeg(data, channels=3), [16, 16, 3]))
    source = live.read(dataset.map(lambda image: tf.cast(image, tf.float32)).batch(4))
    told = decoding.annotate_crops(source, source.pipeline)
    shares = measure_shares(source, told, seconds=60)
    assert set(shares) == {"n1"} and shares["n1"].variants is not None
    assert shares["n1"].variants[FunctionVariant.DECODE_AND_CROP] > 0


def test_function_without_a_crop_is_not_measured() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([jpeg("gray", 20, 20)])
    source = live.read(dataset.map(lambda data: tf.io.decode_jpeg(data, channels=3)))
    assert measure_shares(source, decoding.annotate_crops(source, source.pipeline), seconds=60) == {}
