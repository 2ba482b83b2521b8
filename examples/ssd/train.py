"""Train a small single-shot detector on photographs with boxes, augmented the way SSD does it.

What it shows: one random map that is heavier than all else: a loop that looks for a crop, a resize, four changes of
colour, and the overlap of every box with 8,732 default boxes.

    python examples/ssd/make_data.py
    pipetune analyze examples/ssd/train.py
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
IMAGE_PIXELS = 300
CLASSES = 4
BATCH_SIZE = 16
CROP_TRIES = 50
CELLS = (38, 19, 10, 5, 3, 1)
SIZES = (21, 45, 99, 153, 207, 261, 315)
RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))


def default_boxes():
    """The 8,732 boxes of SSD300 (Liu et al. 2016, section 2.2): centre y, x, height, width in parts of the image."""
    boxes = []
    for cells, size, larger, ratios in zip(CELLS, SIZES, SIZES[1:], RATIOS, strict=False):
        shapes = [(size, size), ((size * larger) ** 0.5,) * 2]
        for ratio in ratios:
            shapes += [(size / ratio**0.5, size * ratio**0.5), (size * ratio**0.5, size / ratio**0.5)]
        for cell in range(cells * cells):
            centre = ((cell // cells + 0.5) / cells, (cell % cells + 0.5) / cells)
            boxes += [(*centre, height / IMAGE_PIXELS, width / IMAGE_PIXELS) for height, width in shapes]
    return np.array(boxes, dtype=np.float32)


DEFAULT_BOXES = default_boxes()
DEFAULT_CORNERS = np.concatenate(
    [DEFAULT_BOXES[:, :2] - DEFAULT_BOXES[:, 2:] / 2, DEFAULT_BOXES[:, :2] + DEFAULT_BOXES[:, 2:] / 2], axis=1
)


def area(boxes):
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def overlaps(boxes, others):
    """Intersection over union of every box with every other, shape [boxes, others]."""
    boxes, others = boxes[:, None, :], others[None, :, :]
    top_left, bottom_right = tf.maximum(boxes[..., :2], others[..., :2]), tf.minimum(boxes[..., 2:], others[..., 2:])
    common = tf.reduce_prod(tf.maximum(bottom_right - top_left, 0.0), -1)
    return common / (area(boxes) + area(others) - common)


def decode(record):
    corners = [f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax")]
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/object/class/label": tf.io.VarLenFeature(tf.int64),
        **{corner: tf.io.VarLenFeature(tf.float32) for corner in corners},
    }
    example = tf.io.parse_single_example(record, features)
    image = tf.io.decode_jpeg(example["image/encoded"], channels=3)
    boxes = tf.stack([tf.sparse.to_dense(example[corner]) for corner in corners], axis=1)
    return image, boxes, tf.cast(tf.sparse.to_dense(example["image/object/class/label"]), tf.int32)


def has_boxes(image, boxes, labels):
    return tf.shape(boxes)[0] > 0


def choose_window(boxes):
    """A random window that overlaps every box enough and holds the centre of one, or after 50 tries the whole image."""
    whole = tf.constant([0.0, 0.0, 1.0, 1.0])
    least = tf.gather([-1.0, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9], tf.random.uniform([], 0, 7, tf.int32))

    def again(tries, window, found):
        return (tries < CROP_TRIES) & ~found

    def attempt(tries, window, found):
        size = tf.random.uniform([2], 0.3, 1.0)
        start = tf.random.uniform([2]) * (1.0 - size)
        window = tf.concat([start, start + size], 0)
        ratio = size[0] / size[1]
        good = (ratio > 0.5) & (ratio < 2.0) & tf.reduce_all(overlaps(boxes, window[None])[:, 0] >= least)
        good = good & tf.reduce_any(centre_inside(boxes, window))
        return tries + 1, tf.where(good, window, whole), good

    _, window, _ = tf.while_loop(again, attempt, (0, whole, least < 0.0))
    return window


def centre_inside(boxes, window):
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return tf.reduce_all((centres > window[:2]) & (centres < window[2:]), axis=1)


def crop(image, boxes, labels):
    window = choose_window(boxes)
    kept = centre_inside(boxes, window)
    size = tf.tile(window[2:] - window[:2], [2])
    boxes = tf.clip_by_value((tf.boolean_mask(boxes, kept) - tf.tile(window[:2], [2])) / size, 0.0, 1.0)
    shape = tf.cast(tf.tile(tf.shape(image)[:2], [2]), tf.float32)
    top, left, bottom, right = tf.unstack(tf.cast(window * shape, tf.int32))
    return image[top:bottom, left:right], boxes, tf.boolean_mask(labels, kept)


def flip(image, boxes):
    mirrored = tf.stack([boxes[:, 0], 1.0 - boxes[:, 3], boxes[:, 2], 1.0 - boxes[:, 1]], axis=1)
    heads = tf.random.uniform([]) < 0.5
    return tf.where(heads, tf.reverse(image, [1]), image), tf.where(heads, mirrored, boxes)


def colour_jitter(image):
    image = tf.image.random_brightness(image, 0.125)
    image = tf.image.random_contrast(image, 0.5, 1.5)
    image = tf.image.random_saturation(image, 0.5, 1.5)
    return tf.clip_by_value(tf.image.random_hue(image, 0.05), 0.0, 1.0)


def encode(boxes, labels):
    """For each default box the class of the box it overlaps most, 0 below one half, and the way from it to that box."""
    overlap = overlaps(boxes, tf.constant(DEFAULT_CORNERS))
    overlap += tf.one_hot(tf.argmax(overlap, axis=1), len(DEFAULT_BOXES))  # every box gets its best default box
    best = tf.argmax(overlap, axis=0)
    classes = tf.where(tf.reduce_max(overlap, axis=0) > 0.5, tf.gather(labels, best), 0)
    matched = tf.gather(boxes, best)
    centres, sizes = (matched[:, :2] + matched[:, 2:]) / 2, tf.maximum(matched[:, 2:] - matched[:, :2], 1e-3)
    moves = (centres - DEFAULT_BOXES[:, :2]) / DEFAULT_BOXES[:, 2:] / 0.1
    return classes, tf.concat([moves, tf.math.log(sizes / DEFAULT_BOXES[:, 2:]) / 0.2], axis=1)


def augment(image, boxes, labels):
    image, boxes, labels = crop(image, boxes, labels)
    image = tf.image.resize(tf.image.convert_image_dtype(image, tf.float32), [IMAGE_PIXELS, IMAGE_PIXELS])
    image, boxes = flip(image, boxes)
    image = tf.ensure_shape(colour_jitter(image), [IMAGE_PIXELS, IMAGE_PIXELS, 3])
    classes, offsets = encode(boxes, labels)
    return image, {"classes": classes, "offsets": offsets}


def space_to_depth(images, targets):
    """The layout that a first convolution of stride 2 likes best: four pixels side by side in twelve channels."""
    return tf.nn.space_to_depth(images, 2), targets


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"), shuffle=False).shuffle(256)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.filter(has_boxes)
    dataset = dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(space_to_depth, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(4)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


def make_model():
    inputs = keras.Input([IMAGE_PIXELS // 2, IMAGE_PIXELS // 2, 12])
    x = keras.layers.Conv2D(8, 3, strides=4, padding="same", activation="relu")(inputs)
    classes, offsets = [], []
    for cells, ratios in zip(CELLS, RATIOS, strict=True):
        if cells == 1:
            x = keras.layers.Conv2D(16, 3, activation="relu")(x)
        elif cells < CELLS[0]:
            x = keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(x)
        shapes = 2 + 2 * len(ratios)
        for heads, numbers in ((classes, CLASSES), (offsets, 4)):
            head = keras.layers.Conv2D(shapes * numbers, 3, padding="same")(x)
            heads.append(keras.layers.Reshape([cells * cells * shapes, numbers])(head))
    outputs = {
        "classes": keras.layers.Concatenate(axis=1, name="classes")(classes),
        "offsets": keras.layers.Concatenate(axis=1, name="offsets")(offsets),
    }
    model = keras.Model(inputs, outputs)
    losses = {
        "classes": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "offsets": keras.losses.Huber(),
    }
    model.compile("adam", losses)
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
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/ssd/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
