"""A minute passes before the first training step: a download, for which a pause stands.

Right: the lines of the table are parsed a batch at a time; the minute is reported.
"""

import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parents[2] / "csv" / "data"
COLUMNS = [0.0] * 29
DOWNLOAD_SECONDS = 60


def parse(line):
    label, *features = tf.io.decode_csv(line, COLUMNS)
    return tf.stack(features), label


def make_dataset():
    files = sorted(str(path) for path in DATA.glob("train-*.csv"))
    return tf.data.TextLineDataset(files).map(parse).shuffle(5_000).batch(256)


def main():
    time.sleep(DOWNLOAD_SECONDS)
    model = keras.Sequential([keras.Input([28]), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(make_dataset(), epochs=5, verbose=2)


if __name__ == "__main__":
    main()
