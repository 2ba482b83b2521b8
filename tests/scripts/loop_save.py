"""A hand-written loop, then weights saved to argv[1] (.weights.h5) and to argv[2] (.npz, by NumPy) where it
is given.

Every 25 steps the loop saves as well, so that a save falls inside a measured window.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

random = np.random.default_rng()
arrays = (
    random.standard_normal((6400, 8), dtype="float32"),
    random.standard_normal((6400, 1), dtype="float32"),
)
dataset = tf.data.Dataset.from_tensor_slices(arrays).map(lambda x, y: (x * 2.0, y)).batch(32)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam()
optimizer.build(model.trainable_variables)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


step = 0
for _epoch in range(2):
    for x, y in dataset:
        train_step(x, y)
        step += 1
        if step % 25 == 0:
            model.save_weights(sys.argv[1])
model.save_weights(sys.argv[1])
if len(sys.argv) > 2:
    np.savez(sys.argv[2], *model.get_weights())
print("steps", step)
