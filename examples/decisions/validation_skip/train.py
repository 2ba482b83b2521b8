"""One dataset, split by `take` and `skip` after the expensive map: validation decodes the 80 % that it skips.

Right: a faster training input; `skip` before a map of validation's own, with what validation cost before and after.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "photos" / "data"
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
IMAGES = 1750


def decode(record):
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), [128, 128])
    return image / 255.0, example["label"]


def main():
    files = sorted(str(path) for path in DATA.glob("train-*.tfrecord"))
    everything = tf.data.TFRecordDataset(files).map(decode)
    training = everything.take(IMAGES * 8 // 10).shuffle(200).batch(32)
    validation = everything.skip(IMAGES * 8 // 10).batch(32)
    model = keras.Sequential(
        [
            keras.Input([128, 128, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(training, epochs=3, validation_data=validation, verbose=2)


if __name__ == "__main__":
    main()
