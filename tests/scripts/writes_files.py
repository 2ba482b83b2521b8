"""Trains by a Python loop or, with "fit", by Keras, and writes files in 60 ways below argv[1]: in its loop or in a
callback, in a finally clause, in an except clause that swallows everything, and when the interpreter ends.
"""

import atexit
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.files import writes

base = Path(sys.argv[1])
random = np.random.default_rng()
arrays = (
    random.standard_normal((6400, 8), dtype="float32"),
    random.standard_normal((6400, 1), dtype="float32"),
)
dataset = tf.data.Dataset.from_tensor_slices(arrays).map(lambda x, y: (x * 2.0, y)).batch(32)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
model.compile("sgd", "mse")


def everything(place):
    writer = writes.Writer(base / place)
    for name in writes.chosen():
        writer.change(name)
    print(place, "was run", flush=True)


class Callback(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        everything("callback")

    on_train_batch_end = on_epoch_end = on_train_begin


def train():
    if sys.argv[2:] == ["fit"]:
        model.fit(dataset, epochs=2, verbose=0, callbacks=[Callback()])
        return
    weights = tf.Variable(tf.zeros([8]))
    writer = writes.Writer(base / "loop")
    rounds = writer.rounds()
    for step, (x, _y) in enumerate(dataset):
        weights.assign_add(0.01 * tf.reduce_mean(x, axis=0))
        for _ in range(5):
            name = next(rounds)
            writer.change(name)
            print("loop", step, name, flush=True)


atexit.register(everything, "atexit")
try:
    train()
except BaseException:
    everything("except")
finally:
    everything("finally")
