"""The expert's input: records are shuffled as bytes, and a batch of them is parsed by one call.

Equal: `parse_example` gives each row what `parse_single_example` gives it, and parsing draws nothing, so that it may
follow the shuffle. The other three datasets are made the same way.
"""

from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent.parent / "data"
FEATURES = {"numbers": tf.io.FixedLenFeature([24], tf.float32), "class": tf.io.FixedLenFeature([], tf.int64)}


def parse(records):
    examples = tf.io.parse_example(records, FEATURES)
    return examples["numbers"], examples["class"]


def make_dataset(split, batch_size=64, shuffle=False):
    dataset = tf.data.TFRecordDataset(sorted(str(path) for path in DATA.glob(f"{split}-*.tfrecord")))
    if shuffle:
        dataset = dataset.shuffle(2_000)
    return dataset.batch(batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def main():
    preview = make_dataset("train", batch_size=4)
    print(next(iter(preview))[1].numpy())
    train = make_dataset("train", shuffle=True)
    validation = make_dataset("validation")
    test = make_dataset("test")

    model = keras.Sequential([keras.Input([24]), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(train, validation_data=validation, epochs=3, verbose=2)
    print(model.evaluate(test, verbose=0))


if __name__ == "__main__":
    main()
