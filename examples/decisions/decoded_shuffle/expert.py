"""The expert's input: records are shuffled before they are decoded, in parallel and ahead of training.

Equal: decoding draws nothing, so it may follow the shuffle; a parallel `map` keeps the order. The buffer holds 80 MB in
place of a gigabyte. A cache of the decoded images would take 1.7 GB for less than two passes.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "photos" / "data"
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def decode(record):
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), [288, 288])
    return image / 255.0, example["label"]


def main():
    files = sorted(str(path) for path in DATA.glob("train-*.tfrecord"))
    dataset = tf.data.TFRecordDataset(files).repeat().shuffle(1_000)
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(16).prefetch(tf.data.AUTOTUNE)
    model = keras.Sequential(
        [
            keras.Input([288, 288, 3]),
            keras.layers.Conv2D(8, 7, strides=8, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(dataset, epochs=2, steps_per_epoch=100, verbose=2)


if __name__ == "__main__":
    main()
