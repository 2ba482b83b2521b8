"""Two logical devices train as replicas of a `MirroredStrategy`, on rows that are parsed one by one.

Right: rows are parsed once, and each replica receives what it received.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent.parent / "data"
FEATURES = {"numbers": tf.io.FixedLenFeature([24], tf.float32), "class": tf.io.FixedLenFeature([], tf.int64)}


def parse(record):
    example = tf.io.parse_single_example(record, FEATURES)
    return example["numbers"], example["class"]


def make_dataset():
    files = sorted(str(path) for path in DATA.glob("train-*.tfrecord"))
    return tf.data.TFRecordDataset(files).map(parse).shuffle(2_000).batch(512)


def main():
    devices = [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = keras.Sequential([keras.Input([24]), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(make_dataset(), epochs=5, verbose=2)


if __name__ == "__main__":
    main()
