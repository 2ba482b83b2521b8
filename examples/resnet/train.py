"""Train a small residual network on JPEG images the way the ImageNet benchmarks do.

What it shows: a pipeline that is already good. Records are shuffled while they are small, only a random crop of each
image is decoded, everything runs in parallel and in whatever order is ready first, and the last prefetch is deep.

    python examples/resnet/make_data.py
    pipetune analyze examples/resnet/train.py
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
IMAGE_PIXELS = 224
CLASSES = 4
BATCH_SIZE = 32
STEPS_PER_EPOCH = 15
SHUFFLED_RECORDS = 256


def parse(record):
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return example["image/encoded"], tf.cast(example["image/class/label"], tf.int32) - 1


def decode_and_crop(data):
    """A window of 5 to 100 % of the image, decoded; the rest of the JPEG is not."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(data),
        bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        min_object_covered=0.1,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.05, 1.0),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    top, left, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    return tf.io.decode_and_crop_jpeg(data, tf.stack([top, left, height, width]), channels=3)


def preprocess(record):
    data, label = parse(record)
    image = tf.image.resize(decode_and_crop(data), [IMAGE_PIXELS, IMAGE_PIXELS], method="bicubic")
    image = tf.image.random_flip_left_right(image)
    return tf.cast(image, tf.bfloat16), label


def batch_last(images, labels):
    """The layout that convolutions on a TPU like best: height, width, channels, images."""
    return tf.transpose(images, [1, 2, 3, 0]), labels


def set_shapes(images, labels, batch_size):
    images.set_shape([IMAGE_PIXELS, IMAGE_PIXELS, 3, batch_size])
    labels.set_shape([batch_size])
    return images, labels


def training_dataset(data=DATA):
    dataset = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(SHUFFLED_RECORDS).repeat()
    dataset = dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(batch_last, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(functools.partial(set_shapes, batch_size=BATCH_SIZE))
    dataset = dataset.prefetch(10)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


def residual(x, filters):
    shortcut = keras.layers.Conv2D(filters, 1, strides=2)(x)
    x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    return keras.layers.ReLU()(keras.layers.Conv2D(filters, 3, padding="same")(x) + shortcut)


def make_model():
    inputs = keras.Input(batch_shape=[IMAGE_PIXELS, IMAGE_PIXELS, 3, BATCH_SIZE], dtype="bfloat16")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(keras.ops.transpose(inputs, [3, 0, 1, 2]))
    x = keras.layers.Conv2D(8, 7, strides=4, activation="relu")(x)
    x = keras.layers.GlobalAveragePooling2D()(residual(residual(x, 16), 32))
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return model


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
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS_PER_EPOCH, help="steps per epoch")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/resnet/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
