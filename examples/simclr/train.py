"""Train a small network to tell which two views are of the same image (SimCLR), with a hand-written loop.

What it shows: a long chain of random maps, each on two views of an image, most of them on numbers with a fraction.

    python examples/simclr/make_data.py
    pipetune analyze examples/simclr/train.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
IMAGE_PIXELS = 224
BLUR_PIXELS = 11
STRENGTH = 0.5
BATCH_SIZE = 32


def decode(path):
    return tf.io.decode_jpeg(tf.io.read_file(path), channels=3)


def duplicate(image):
    image = tf.image.convert_image_dtype(image, tf.float32)
    return image, image


def both(function):
    """The function on either view; each draws random numbers of its own."""

    def on_both(first, second):
        return function(first), function(second)

    return on_both


def crop_and_resize(image):
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=tf.zeros([1, 0, 4]),
        min_object_covered=0.1,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.ensure_shape(tf.slice(image, begin, size), [None, None, 3])
    return tf.image.resize(window, [IMAGE_PIXELS, IMAGE_PIXELS], method="bicubic")


def jitter(image):
    image = tf.image.random_brightness(image, 0.8 * STRENGTH)
    image = tf.image.random_contrast(image, 1 - 0.8 * STRENGTH, 1 + 0.8 * STRENGTH)
    image = tf.image.random_saturation(image, 1 - 0.8 * STRENGTH, 1 + 0.8 * STRENGTH)
    return tf.image.random_hue(image, 0.2 * STRENGTH)


def blur(image):
    """A Gaussian of a random width, along columns and then along rows."""
    offsets = tf.range(-(BLUR_PIXELS // 2), BLUR_PIXELS // 2 + 1, dtype=tf.float32)
    weights = tf.nn.softmax(-tf.square(offsets / tf.random.uniform([], 0.1, 2.0)) / 2)
    kernel = tf.tile(weights[:, None, None, None], [1, 1, 3, 1])
    image = tf.nn.depthwise_conv2d(image[None], kernel, [1, 1, 1, 1], "SAME")
    return tf.nn.depthwise_conv2d(image, tf.transpose(kernel, [1, 0, 2, 3]), [1, 1, 1, 1], "SAME")[0]


def clip(image):
    return tf.clip_by_value(image, 0.0, 1.0)


def maybe_grey(image):
    grey = tf.tile(tf.image.rgb_to_grayscale(image), [1, 1, 3])
    return tf.where(tf.random.uniform([]) < 0.2, grey, image)


def side_by_side(first, second):
    return tf.reshape(tf.concat([first, second], -1), [IMAGE_PIXELS, IMAGE_PIXELS, 6])


def training_dataset(data=DATA):
    dataset = tf.data.Dataset.list_files(str(data / "*" / "*.jpg"))
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(duplicate, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(both(crop_and_resize), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(both(tf.image.random_flip_left_right), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(both(jitter), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(both(blur), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(both(clip), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(both(maybe_grey), num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(side_by_side, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    return dataset.prefetch(tf.data.AUTOTUNE)


def make_encoder():
    layers = [
        keras.Input([IMAGE_PIXELS, IMAGE_PIXELS, 3]),
        keras.layers.Conv2D(8, 7, strides=8, activation="relu"),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(32),
        keras.layers.UnitNormalization(),
    ]
    return keras.Sequential(layers)


def contrast(first, second):
    """How far each view is from knowing the other view of its image among all of the batch; numbers of length 1."""
    similar = tf.matmul(first, second, transpose_b=True) / 0.1
    right = tf.range(tf.shape(first)[0])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(right, similar))


def train(dataset, arguments):
    encoder = make_encoder()
    optimizer = keras.optimizers.Adam()
    optimizer.build(encoder.trainable_variables)

    @tf.function
    def train_step(images):
        with tf.GradientTape() as tape:
            first, second = tf.split(images, 2, axis=-1)
            first, second = encoder(first, training=True), encoder(second, training=True)
            loss = contrast(first, second) + contrast(second, first)
        gradients = tape.gradient(loss, encoder.trainable_variables)
        optimizer.apply_gradients(zip(gradients, encoder.trainable_variables, strict=True))
        return loss

    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for images in dataset:
            total += float(train_step(images))
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {steps} steps, mean loss {total / steps:.4f}")


def pretend_to_train(dataset, arguments):
    """Stands for an accelerator that works on each batch for `--step-time` milliseconds."""
    for epoch in range(arguments.epochs):
        started, steps = time.perf_counter(), 0
        for _ in dataset:
            time.sleep(arguments.step_time / 1000)
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {1000 * (time.perf_counter() - started) / steps:.1f} ms per step")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/simclr/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        train(dataset, arguments)


if __name__ == "__main__":
    main()
