"""The expert's input: images and masks are mirrored as bytes, and only where the coin says so.

Equal: to mirror an image and then to normalise its pixels gives the same numbers as the other way round, and every
image keeps a coin of its own. To normalise behind the resize would save more and change the last digits.
"""

from __future__ import annotations

import os

import tensorflow as tf
import train


def flip(image, boxes, masks):
    def mirrored():
        sides = tf.stack([boxes[:, 0], 1.0 - boxes[:, 3], boxes[:, 2], 1.0 - boxes[:, 1]], axis=1)
        return tf.reverse(image, [1]), sides, tf.reverse(masks, [2])

    return tf.cond(tf.random.uniform([]) < 0.5, mirrored, lambda: (image, boxes, masks))


def prepare(record):
    image, boxes, labels, masks = train.decode(record)
    image, boxes, masks = flip(image, boxes, masks)
    image = (tf.cast(image, tf.float32) / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    image, boxes, wide = train.resize_and_pad(image, boxes)
    anchors = tf.cond(wide, lambda: tf.constant(train.WIDE_ANCHORS), lambda: tf.constant(train.UPRIGHT_ANCHORS))
    scores, targets = train.label_anchors(boxes, anchors)
    return {
        "image": tf.ensure_shape(image, [None, None, 3]),
        "anchor_scores": tf.ensure_shape(scores, [len(train.WIDE_ANCHORS)]),
        "anchor_boxes": tf.ensure_shape(targets, [len(train.WIDE_ANCHORS), 4]),
        "boxes": train.fixed(boxes),
        "classes": train.fixed(labels),
        "masks": train.fixed(masks),
    }


def training_dataset(data=train.DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"))
    dataset = files.interleave(train.read, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(train.SHUFFLED_RECORDS).repeat()
    dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.group_by_window(train.is_wide, train.batch_alike, window_size=train.BATCH_SIZE)
    dataset = dataset.map(train.lay_flat, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
