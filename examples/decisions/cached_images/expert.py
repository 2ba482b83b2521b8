"""The expert's input: what comes out of the cache is cropped and flipped as bytes, and made floats a batch at a time.

Equal: the cast and the division are elementwise, so they give the same bits behind `batch`; every draw stays in place.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "photos" / "data"
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def decode(record):
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), [160, 160])
    return tf.cast(image, tf.uint8), example["label"]


def crop(image, label):
    image = tf.image.random_crop(image, [128, 128, 3])
    return tf.image.random_flip_left_right(image), label


def normalise(images, labels):
    return tf.cast(images, tf.float32) / 255.0, labels


def main():
    files = sorted(str(path) for path in DATA.glob("train-*.tfrecord"))
    dataset = tf.data.TFRecordDataset(files)
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache()
    dataset = dataset.shuffle(1_000).map(crop, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(32).map(normalise).prefetch(tf.data.AUTOTUNE)
    model = keras.Sequential(
        [
            keras.Input([128, 128, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(dataset, epochs=4, verbose=2)


if __name__ == "__main__":
    main()
