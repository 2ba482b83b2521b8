"""Two logical devices train as replicas of a `MirroredStrategy`, on images that are decoded one after another.

Right: the images are decoded once or in parallel, and each replica receives what it received.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "photos" / "data"
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
BATCH_SIZE, PIXELS = 32, 96


def decode(record):
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), [PIXELS, PIXELS])
    return tf.image.random_flip_left_right(image) / 255.0, example["label"]


def make_dataset():
    files = sorted(str(path) for path in DATA.glob("train-*.tfrecord"))
    dataset = tf.data.TFRecordDataset(files).shuffle(500).map(decode)
    return dataset.batch(BATCH_SIZE, drop_remainder=True).prefetch(1)


def main():
    devices = [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layers = [
            keras.Input([PIXELS, PIXELS, 3]),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
        model = keras.Sequential(layers)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(make_dataset(), epochs=3, verbose=2)


if __name__ == "__main__":
    main()
