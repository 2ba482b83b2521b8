"""Trains on two Horovod ranks in lockstep; each row is waited for, as with slow storage, three times as long on rank 1.

`python rank_waits.py loop|fit FILE`: rank 1 is killed the first time that it waits for two rows at once, which is
recorded in FILE. "fit" is that of tf_keras, the last Keras that Horovod 0.28.1 supports.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
died = Path(sys.argv[2])
one_at_a_time = threading.Lock()
BATCH = 8


def wait(number):
    alone = one_at_a_time.acquire(blocking=False)
    if not alone and hvd.rank() and not died.exists():
        died.write_text("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.003 if hvd.rank() else 0.001)
    if alone:
        one_at_a_time.release()
    return number


def read(number):
    number = tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])
    return tf.fill([4], tf.cast(number, tf.float32) / 1000.0), tf.cast([number], tf.float32)


def train_in_a_loop(dataset):
    weights = tf.Variable(tf.zeros([4, 1]))
    hvd.broadcast_variables([weights], root_rank=0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, weights) - y) ** 2)
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
        weights.assign_sub(1e-6 * gradient)
        return loss

    for x, y in dataset:
        step(x, y)


def train_by_fit(dataset):
    import horovod.tensorflow.keras as hvd_keras
    import tf_keras

    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(4,))])
    optimizer = hvd_keras.DistributedOptimizer(tf_keras.optimizers.legacy.SGD(1e-6))
    model.compile(optimizer, loss="mse")
    model.fit(
        dataset,
        epochs=2,
        steps_per_epoch=50,
        verbose=0,
        callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)],
    )


numbers = tf.data.Dataset.range(BATCH * 200).shard(hvd.size(), hvd.rank())
{"loop": train_in_a_loop, "fit": train_by_fit}[sys.argv[1]](numbers.map(read).batch(BATCH).repeat())
print("the end")
