"""Which functions could decode at a smaller scale, how much the images then differ, and what it would save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.functions import ScaledDecoding
from pipetune.measure.variant_costs import measure_shares
from pipetune.pipelines import live
from pipetune.probes import decode_and_crop
from tests.rewrites.on_data.jpegs import photo, png

Function = Callable[..., Any]
KINDS = ("4:2:0", "4:4:4", "gray")
PHOTOS = [photo(KINDS[number % 3], 97 + number, 140 - number, seed=number) for number in range(15)]
SIZE = (48, 40)


def _decode(data: Any, **given: Any) -> Any:
    return tf.io.decode_jpeg(data, channels=3, **given)


def _decoded(function: Function) -> Function:
    return lambda data: function(_decode(data))


def _less_its_mean(image: Any) -> Any:
    image = tf.cast(image, tf.float32)
    return image - tf.reduce_mean(image)


YES: dict[str, Function] = {
    "bilinear": lambda data: tf.image.resize(_decode(data), SIZE),
    "nearest": lambda data: tf.image.resize(_decode(data), SIZE, "nearest"),
    "area": lambda data: tf.image.resize(_decode(data), SIZE, "area"),
    "as older TensorFlow does": lambda data: tf.compat.v1.image.resize_images(_decode(data), SIZE),
    "normalised": (
        lambda data: (tf.image.resize(tf.image.convert_image_dtype(_decode(data), tf.float32), SIZE) - 0.5) / 0.25),
    "one channel, and the bytes": lambda data: (tf.image.resize(tf.io.decode_jpeg(data, channels=1), SIZE), data),
    "random behind it": (
        lambda data: tf.image.random_flip_left_right(tf.image.resize(_decode(data), SIZE)) + tf.random.uniform([])),
}  # fmt: skip
NO: dict[str, tuple[Function, str]] = {
    "too large": (lambda data: tf.image.resize(_decode(data), (48, 71)), "1.8 times as large"),
    "its size": (lambda data: (tf.image.resize(_decode(data), SIZE), tf.shape(_decode(data))), "decodes 2 images"),
    "its shape given on": (_decoded(lambda x: (tf.image.resize(x, SIZE), tf.shape(x))), "uses the size of the image"),
    "proportions kept": (lambda data: tf.image.resize(_decode(data), SIZE, preserve_aspect_ratio=True), "not fixed"),
    "padded": (lambda data: tf.image.resize_with_pad(_decode(data), *SIZE), "not fixed"),
    "cropped": (lambda data: _decode(data)[:40, :40], "uses the whole image"),
    "given on": (_decode, "returns the whole image"),
    "used twice": (_decoded(lambda x: (tf.image.resize(x, SIZE), tf.image.resize(x, (8, 8)))), "is used by"),
    "turned first": (lambda data: tf.image.resize(tf.transpose(_decode(data), [1, 0, 2]), SIZE), "Transpose"),
    "a mean first": (lambda data: tf.image.resize(_less_its_mean(_decode(data)), SIZE), "is used by"),
    "a scale already": (lambda data: tf.image.resize(_decode(data, ratio=2), (20, 20)), "smaller scale"),
    "cut off images": (lambda data: tf.image.resize(_decode(data, try_recover_truncated=True), SIZE), "truncated"),
    "any format": (lambda data: tf.image.resize(tf.io.decode_png(data), SIZE), "nobody asks"),
}  # fmt: skip


def _asked(function: Function, images: list[bytes] = PHOTOS) -> tuple[live.LivePipeline, ScaledDecoding]:
    source = live.read(tf.data.Dataset.from_tensor_slices(images).map(function).prefetch(1))
    return source, decode_and_crop.probe_scale(source, source.pipeline["n1"])


@pytest.mark.parametrize("name", YES)
def test_scaled_images_differ_slightly(name: str) -> None:
    source, found = _asked(YES[name])
    assert found.why_not == "" and found.ratio == 2 and found.seen == "15 elements: all"
    assert 0 < found.mean_apart < 0.03 and found.mean_apart < found.most_apart < 0.6
    smaller = tf.data.Dataset.from_tensor_slices(PHOTOS).map(
        decode_and_crop.decode_at_scale(source.datasets["n1"]._map_func, found.ratio).function
    )
    assert len(list(smaller)) == len(PHOTOS)


@pytest.mark.parametrize(("function", "reason"), NO.values(), ids=NO)
def test_function_that_needs_full_resolution_is_refused(function: Function, reason: str) -> None:
    source = live.read(tf.data.Dataset.from_tensor_slices(PHOTOS).map(function))
    told = decode_and_crop.annotate_scales(source, source.pipeline)["n1"].function
    assert told is not None
    if reason == "nobody asks":
        assert told.shrinking is None
    else:
        assert told.shrinking is not None and reason in told.shrinking.why_not, told.shrinking


def test_scale_is_limited_by_the_smallest_image() -> None:
    resize = lambda size: lambda data: tf.image.resize(_decode(data), size)  # noqa: E731
    assert _asked(resize((24, 31)))[1].ratio == 4
    assert _asked(resize((12, 15)))[1].ratio == 8
    assert "0.8 times as large" in _asked(resize((24, 31)), [*PHOTOS, photo("4:2:0", 20, 90)])[1].why_not


def test_large_differences_and_other_formats_are_refused() -> None:
    found = _asked(YES["bilinear"], [*PHOTOS, png(99, 99)])[1]
    assert "1 of the 16 elements examined are not JPEGs" in found.why_not
    stripes = np.zeros((96, 96, 3), np.uint8)
    stripes[:, ::2] = 255
    data = tf.io.encode_jpeg(stripes, quality=95, chroma_downsampling=False).numpy()
    assert "of the greatest value apart on average" in _asked(YES["nearest"], [data])[1].why_not


def test_default_dct_method_is_the_fast_one() -> None:
    """TensorFlow uses the fast method unless the script names one: there is nothing to propose."""
    given, fast, accurate = (
        [_decode(data, dct_method=method).numpy() for data in PHOTOS]
        for method in ("", "INTEGER_FAST", "INTEGER_ACCURATE")
    )
    assert all(map(np.array_equal, given, fast)) and not all(map(np.array_equal, given, accurate))


def test_saved_share_is_measured_for_shrinkable_maps_only() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([photo("4:2:0", 640, 640, seed=1)] * 4).map(YES["bilinear"])
    source = live.read(dataset.map(lambda image: image * 2.0).batch(2))
    told = decode_and_crop.annotate_scales(source, source.pipeline)
    shares = measure_shares(source, told, seconds=60)
    assert shares.keys() == {"n1"} and 0 < shares["n1"].shrinking < 1
