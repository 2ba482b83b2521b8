"""Train a small network on photographs with boxes and masks, prepared the way Mask R-CNN does it, but smaller.

What it shows: one map does all the work, and its elements differ in shape: wide images and upright ones, which are
gathered into batches of one kind each.

    python examples/mask_rcnn/make_data.py
    pipetune analyze examples/mask_rcnn/train.py
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
SHORT_SIDE, LONG_SIDE = 192, 320
LEVELS = (2, 3, 4, 5, 6)
RATIOS = (0.5, 1.0, 2.0)
MOST_OBJECTS = 20
MASK_PIXELS = 112
CHOSEN_ANCHORS = 64
BATCH_SIZE = 4
STEPS_PER_EPOCH = 60
SHUFFLED_RECORDS = 128


def anchors(height, width):
    """Boxes in pixels (top, left, bottom, right): a grid of 2 ** level pixels for each level, three shapes a cell."""
    boxes = []
    for level in LEVELS:
        step = 2**level
        rows, columns = np.mgrid[step / 2 : height : step, step / 2 : width : step]
        centres = np.stack([rows.ravel(), columns.ravel()], axis=1)[:, None, :]
        shapes = np.array([(4 * step * ratio**0.5, 4 * step / ratio**0.5) for ratio in RATIOS])
        boxes.append(np.concatenate([centres - shapes / 2, centres + shapes / 2], axis=2).reshape(-1, 4))
    return np.concatenate(boxes).astype(np.float32)


WIDE_ANCHORS = anchors(SHORT_SIDE, LONG_SIDE)
UPRIGHT_ANCHORS = WIDE_ANCHORS[:, [1, 0, 3, 2]]  # in the order they have once the image lies on its side


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
        "image/object/mask": tf.io.VarLenFeature(tf.string),
        **{corner: tf.io.VarLenFeature(tf.float32) for corner in corners},
    }
    example = tf.io.parse_single_example(record, features)
    image = tf.io.decode_jpeg(example["image/encoded"], channels=3)
    boxes = tf.stack([tf.sparse.to_dense(example[corner]) for corner in corners], axis=1)
    labels = tf.cast(tf.sparse.to_dense(example["image/object/class/label"]), tf.int32)
    masks = tf.map_fn(
        lambda data: tf.ensure_shape(tf.io.decode_png(data, channels=1), [MASK_PIXELS, MASK_PIXELS, 1])[..., 0],
        tf.sparse.to_dense(example["image/object/mask"]),
        fn_output_signature=tf.uint8,
    )
    return image, boxes, labels, masks


def flip(image, boxes, masks):
    mirrored = tf.stack([boxes[:, 0], 1.0 - boxes[:, 3], boxes[:, 2], 1.0 - boxes[:, 1]], axis=1)
    heads = tf.random.uniform([]) < 0.5
    return (
        tf.where(heads, tf.reverse(image, [1]), image),
        tf.where(heads, mirrored, boxes),
        tf.where(heads, tf.reverse(masks, [2]), masks),
    )


def resize_and_pad(image, boxes):
    """The image at most 192 x 320 or 320 x 192 pixels and black around it, its boxes in pixels, whether it is wide."""
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    scale = tf.minimum(SHORT_SIDE / tf.reduce_min(size), LONG_SIDE / tf.reduce_max(size))
    scaled = tf.cast(tf.round(size * scale), tf.int32)
    wide = size[1] >= size[0]
    height, width = tf.where(wide, SHORT_SIDE, LONG_SIDE), tf.where(wide, LONG_SIDE, SHORT_SIDE)
    image = tf.image.pad_to_bounding_box(tf.image.resize(image, scaled), 0, 0, height, width)
    return image, boxes * tf.cast(tf.tile(scaled, [2]), tf.float32), wide


def label_anchors(boxes, all_anchors):
    """Which of the anchors are objects (1), background (0) or left out (-1), and the box each belongs to."""
    overlap = overlaps(boxes, all_anchors)
    best = tf.reduce_max(overlap, axis=0)
    objects, background = best > 0.6, best < 0.3
    order = tf.random.uniform(tf.shape(best))
    chosen = tf.math.top_k(tf.where(objects, order + 1.0, tf.where(background, order, -1.0)), CHOSEN_ANCHORS).indices
    scores = tf.tensor_scatter_nd_update(
        tf.fill(tf.shape(best), -1), chosen[:, None], tf.cast(tf.gather(objects, chosen), tf.int32)
    )
    return scores, tf.gather(boxes, tf.argmax(overlap, axis=0))


def fixed(values):
    """The values of the objects, and zeros up to the most objects an image may have."""
    rest = [[0, MOST_OBJECTS - tf.shape(values)[0]], *[[0, 0]] * (values.shape.rank - 1)]
    return tf.ensure_shape(tf.pad(values, rest), [MOST_OBJECTS, *values.shape[1:]])


def prepare(record):
    image, boxes, labels, masks = decode(record)
    image = (tf.cast(image, tf.float32) / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    image, boxes, masks = flip(image, boxes, masks)
    image, boxes, wide = resize_and_pad(image, boxes)
    scores, targets = label_anchors(boxes, tf.where(wide, WIDE_ANCHORS, UPRIGHT_ANCHORS))
    return {
        "image": tf.ensure_shape(image, [None, None, 3]),
        "anchor_scores": tf.ensure_shape(scores, [len(WIDE_ANCHORS)]),
        "anchor_boxes": tf.ensure_shape(targets, [len(WIDE_ANCHORS), 4]),
        "boxes": fixed(boxes),
        "classes": fixed(labels),
        "masks": fixed(masks),
    }


def is_wide(example):
    shape = tf.shape(example["image"])
    return tf.cast(shape[1] >= shape[0], tf.int64)


def batch_alike(_, examples):
    return examples.batch(BATCH_SIZE, drop_remainder=True)


def lay_flat(batch):
    """Upright images on their side, so that all batches have one shape."""
    upright = tf.shape(batch["image"])[1] > tf.shape(batch["image"])[2]
    turned = tf.cond(upright, lambda: tf.transpose(batch["image"], [0, 2, 1, 3]), lambda: batch["image"])
    flat = {
        "image": tf.ensure_shape(turned, [BATCH_SIZE, SHORT_SIDE, LONG_SIDE, 3]),
        "masks": tf.where(upright, tf.transpose(batch["masks"], [0, 1, 3, 2]), batch["masks"]),
    }
    for name in ("boxes", "anchor_boxes"):
        flat[name] = tf.where(upright, tf.gather(batch[name], [1, 0, 3, 2], axis=-1), batch[name])
    return {**batch, **flat}


def read(file):
    return tf.data.TFRecordDataset(file).prefetch(1)


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(read, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(SHUFFLED_RECORDS).repeat()
    dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.group_by_window(is_wide, batch_alike, window_size=BATCH_SIZE)
    dataset = dataset.map(lay_flat, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(8)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


class Network(keras.Model):
    """Scores of anchors of the third level, and masks of the first four objects; nothing more of Mask R-CNN."""

    def __init__(self):
        super().__init__()
        self.backbone = keras.Sequential(
            [
                keras.layers.Conv2D(8, 7, strides=4, padding="same", activation="relu"),
                keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
            ]
        )
        self.scores = keras.layers.Conv2D(len(RATIOS), 1)
        self.masks = keras.layers.Conv2D(1, 3, padding="same")

    def loss_of(self, batch):
        features = self.backbone(batch["image"])
        scores = tf.reshape(self.scores(features), [BATCH_SIZE, -1])
        cells = [SHORT_SIDE * LONG_SIDE // 4**level * len(RATIOS) for level in LEVELS]
        wanted = batch["anchor_scores"][:, cells[0] : cells[0] + cells[1]]
        known = tf.cast(wanted >= 0, tf.float32)
        right = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(wanted, tf.float32) * known, scores)
        objects = 4
        boxes = batch["boxes"][:, :objects] / [SHORT_SIDE, LONG_SIDE, SHORT_SIDE, LONG_SIDE]
        owners = tf.repeat(tf.range(BATCH_SIZE), objects)
        parts = tf.image.crop_and_resize(features, tf.reshape(boxes, [-1, 4]), owners, [14, 14])
        shapes = tf.reshape(batch["masks"][:, :objects], [-1, MASK_PIXELS, MASK_PIXELS, 1])
        shapes = tf.image.resize(shapes, [14, 14], method="area") / 255.0
        found = tf.nn.sigmoid_cross_entropy_with_logits(shapes, self.masks(parts))
        return tf.reduce_sum(right * known) / tf.reduce_sum(known) + tf.reduce_mean(found)


def train(dataset, arguments):
    network = Network()
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function
    def train_step(batch):
        with tf.GradientTape() as tape:
            loss = network.loss_of(batch)
        optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
        return loss

    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for batch in dataset:
            total += float(train_step(batch))
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
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS_PER_EPOCH, help="steps per epoch")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/mask_rcnn/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        train(dataset, arguments)


if __name__ == "__main__":
    main()
