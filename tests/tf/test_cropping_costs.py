"""What a function keeps of its cost when it decodes only what it crops."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.tf.measure.cropping_costs import measure_cropping_shares
from pipetune.tf.pipelines import cropping, live
from tests.tf.jpegs import jpeg


def test_what_could_be_cropped_is_measured_and_nothing_else() -> None:
    images = [jpeg("4:2:0", 320, 320, seed=number) for number in range(8)]
    dataset = tf.data.Dataset.from_tensor_slices(images)
    dataset = dataset.map(lambda data: tf.image.random_crop(tf.io.decode_jpeg(data, channels=3), [16, 16, 3]))
    source = live.read(dataset.map(lambda image: tf.cast(image, tf.float32)).batch(4))
    told = cropping.with_answers(source, source.pipeline)
    shares = measure_cropping_shares(source, told)
    assert set(shares) == {"n1"}
    assert shares["n1"] > 0


def test_nothing_is_measured_where_nothing_can_be_cropped() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([jpeg("gray", 20, 20)])
    source = live.read(dataset.map(lambda data: tf.io.decode_jpeg(data, channels=3)))
    assert measure_cropping_shares(source, cropping.with_answers(source, source.pipeline)) == {}
