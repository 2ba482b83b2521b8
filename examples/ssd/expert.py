"""The expert's input: images without boxes are left out before they are decoded, and draws choose what is computed.

Equal: whether an image has boxes stands in its record, a mirrored image is computed only where the coin says so, and
every draw is made by the same function from the same distribution. To decode only the crop would change the colours at
its edge, and to resize the crop as bytes the last digits.
"""

from __future__ import annotations

import os

import tensorflow as tf
import train

SIDES = [f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax")]
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/object/class/label": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
    **{side: tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True) for side in SIDES},
}


def parse(record):
    example = tf.io.parse_single_example(record, FEATURES)
    boxes = tf.stack([example[side] for side in SIDES], axis=1)
    return example["image/encoded"], boxes, tf.cast(example["image/object/class/label"], tf.int32)


def flip(image, boxes):
    def mirrored():
        sides = tf.stack([boxes[:, 0], 1.0 - boxes[:, 3], boxes[:, 2], 1.0 - boxes[:, 1]], axis=1)
        return tf.reverse(image, [1]), sides

    return tf.cond(tf.random.uniform([]) < 0.5, mirrored, lambda: (image, boxes))


def augment(data, boxes, labels):
    image, boxes, labels = train.crop(tf.io.decode_jpeg(data, channels=3), boxes, labels)
    image = tf.image.convert_image_dtype(image, tf.float32)
    image, boxes = flip(tf.image.resize(image, [train.IMAGE_PIXELS, train.IMAGE_PIXELS]), boxes)
    image = tf.ensure_shape(train.colour_jitter(image), [train.IMAGE_PIXELS, train.IMAGE_PIXELS, 3])
    classes, offsets = train.encode(boxes, labels)
    return image, {"classes": classes, "offsets": offsets}


def training_dataset(data=train.DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.tfrecord"), shuffle=False).shuffle(256)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).filter(train.has_boxes)
    dataset = dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(train.BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(train.space_to_depth, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.deterministic = False
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = os.cpu_count()
    return dataset.with_options(options)


train.training_dataset = training_dataset

if __name__ == "__main__":
    train.main()
