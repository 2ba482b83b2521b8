"""Train a small network on photographs with JAX: NumPy batches from tf.data go into a jitted update.

What it shows: the input of a program in JAX is tuned like any other. Images are decoded, cropped at random and resized;
because of the random crop TensorFlow leaves all of that on one processor. Nothing reads the loss within an epoch: JAX
may be many steps behind the loop, and pipetune waits for it where it measures.

    pip install jax
    python examples/photos/make_data.py
    pipetune analyze examples/jax/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import tensorflow as tf

DATA = Path(__file__).resolve().parents[1] / "photos" / "data"
CROP_PIXELS = 224
IMAGE_PIXELS = 96
CLASSES = 4
BATCH_SIZE = 32
RATE = 0.05


def parse(record):
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.image.random_crop(image, [CROP_PIXELS, CROP_PIXELS, 3])
    image = tf.image.random_flip_left_right(image)
    image = tf.image.resize(image, [IMAGE_PIXELS, IMAGE_PIXELS])
    return image / 127.5 - 1.0, example["label"]


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(tf.data.TFRecordDataset)
    dataset = dataset.shuffle(256)
    dataset = dataset.map(parse)
    return dataset.batch(BATCH_SIZE, drop_remainder=True)  # of one shape: JAX compiles the update once


def initial_parameters(key):
    """Three convolutions and a dense layer, each with its weights and biases."""
    parameters = []
    for shape in [(5, 5, 3, 8), (3, 3, 8, 16), (3, 3, 16, 32), (32, CLASSES)]:
        key, own = jax.random.split(key)
        parameters.append((jax.nn.initializers.he_normal()(own, shape), jnp.zeros(shape[-1])))
    return parameters


def predict(parameters, images):
    *convolutions, (weights, bias) = parameters
    for stride, (kernel, offset) in zip([4, 2, 2], convolutions, strict=True):
        images = jax.lax.conv_general_dilated(
            images, kernel, [stride, stride], "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        images = jax.nn.relu(images + offset)
    return images.mean(axis=(1, 2)) @ weights + bias


def mean_loss(parameters, images, labels):
    predicted = jax.nn.log_softmax(predict(parameters, images))
    return -jnp.take_along_axis(predicted, labels[:, None], axis=1).mean()


@jax.jit
def update(parameters, images, labels):
    loss, gradients = jax.value_and_grad(mean_loss)(parameters, images, labels)
    return jax.tree.map(lambda value, gradient: value - RATE * gradient, parameters, gradients), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by examples/photos/make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all training images once)")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/photos/make_data.py first")

    dataset = training_dataset(arguments.data)
    parameters = initial_parameters(jax.random.key(0))
    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for images, labels in dataset.as_numpy_iterator():
            parameters, loss = update(parameters, images, labels)
            total += loss
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {steps} steps, mean loss {total / steps:.4f}")


if __name__ == "__main__":
    main()
