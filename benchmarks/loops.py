"""Two training loops that need no files: photos (decodes a JPEG per example) and text (very small elements)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

JPEGS = 64
PHOTO_PIXELS, CROP_PIXELS, IMAGE_PIXELS = 160, 128, 96
PHOTO_BATCH = 16

LINES = 4096
LINE_WORDS = 32
VOCABULARY = 5000
TEXT_BATCH = 32

_CLASSES = 10


@dataclass(frozen=True)
class Loop:
    """An infinite dataset, and the step that trains on its elements: `step(examples, labels)`."""

    dataset: Any
    step: Callable[[Any, Any], Any]
    examples_per_element: float


def photos(*, seed: int = 0) -> Loop:
    """Returns a loop that decodes and augments JPEG images, and trains a small convolutional network."""
    generator = tf.random.Generator.from_seed(seed)
    coarse = generator.uniform([JPEGS, 20, 20, 3], 0.0, 255.0)
    smooth = tf.cast(tf.image.resize(coarse, [PHOTO_PIXELS, PHOTO_PIXELS], "bicubic"), tf.int32)
    files = tf.stack([tf.io.encode_jpeg(tf.cast(tf.clip_by_value(one, 0, 255), tf.uint8)) for one in smooth])
    labels = generator.uniform([JPEGS], 0, _CLASSES, tf.int64)
    dataset = tf.data.Dataset.from_tensor_slices((files, labels)).repeat()
    dataset = dataset.map(_augment, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(PHOTO_BATCH, drop_remainder=True).prefetch(2)
    return Loop(dataset, _photo_step(seed), float(PHOTO_BATCH))


def _augment(data: Any, label: Any) -> tuple[Any, Any]:
    image = tf.io.decode_jpeg(data, channels=3)
    image = tf.image.random_crop(image, [CROP_PIXELS, CROP_PIXELS, 3])
    image = tf.image.resize(image, [IMAGE_PIXELS, IMAGE_PIXELS])
    image = tf.image.random_flip_left_right(image)
    return tf.image.per_image_standardization(image), label


def _photo_step(seed: int) -> Callable[[Any, Any], Any]:
    generator = tf.random.Generator.from_seed(seed)
    filters = tf.Variable(generator.normal([5, 5, 3, 16], stddev=0.1))
    weights = tf.Variable(generator.normal([16, _CLASSES], stddev=0.1))

    @tf.function  # type: ignore[untyped-decorator]
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            features = tf.nn.relu(tf.nn.conv2d(images, filters, strides=4, padding="VALID"))
            logits = tf.matmul(tf.reduce_mean(features, [1, 2]), weights)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        _descend(tape, loss, (filters, weights))
        return loss

    return step  # type: ignore[no-any-return]


def text(*, seed: int = 0) -> Loop:
    """Returns a loop over batches of word ids in memory, about 30 us each, that trains on averaged embeddings."""
    generator = tf.random.Generator.from_seed(seed)
    lines = generator.uniform([LINES, LINE_WORDS], 0, VOCABULARY, tf.int32)
    labels = generator.uniform([LINES], 0, _CLASSES, tf.int64)
    batches = tf.data.Dataset.from_tensor_slices(
        (
            tf.reshape(lines, [-1, TEXT_BATCH, LINE_WORDS]),
            tf.reshape(labels, [-1, TEXT_BATCH]),
        )
    )
    return Loop(batches.repeat(), _text_step(seed), float(TEXT_BATCH))


def _text_step(seed: int) -> Callable[[Any, Any], Any]:
    generator = tf.random.Generator.from_seed(seed)
    embeddings = tf.Variable(generator.normal([VOCABULARY, 16], stddev=0.1))
    weights = tf.Variable(generator.normal([16, _CLASSES], stddev=0.1))

    @tf.function  # type: ignore[untyped-decorator]
    def step(words: Any, labels: Any) -> Any:
        averaged = tf.reduce_mean(tf.gather(embeddings, words), 1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.matmul(averaged, weights)))
        _descend(tape, loss, (weights,))
        return loss

    return step  # type: ignore[no-any-return]


def _descend(tape: Any, loss: Any, variables: tuple[Any, ...]) -> None:
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.01 * gradient)
