"""Starts through absl's app.run, with flags; app.run ends the process itself."""

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_integer("rows", 6400, "rows of the data", lower_bound=1)


def main(argv):
    print("left over", argv[1:])
    features = np.random.default_rng().standard_normal((FLAGS.rows, 8), dtype="float32")
    dataset = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y)).batch(32)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(dataset, epochs=1, verbose=2)


if __name__ == "__main__":
    app.run(main)
