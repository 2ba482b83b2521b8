"""Trains in several processes in lockstep. Each row waits, as for storage, three times as long on worker 1."""

import json
import os
import time

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
GLOBAL_BATCH = 16


def wait(number):
    time.sleep(0.0015 if worker else 0.0005)
    return number


def read(number):
    number = tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])
    return tf.fill([4], tf.cast(number, tf.float32) / 1000.0), tf.cast([number], tf.float32)


with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))


def replica_step(x, y):
    error = tf.matmul(x, weights) - y
    gradient = tf.matmul(x, error, transpose_a=True)
    weights.assign_sub(1e-6 * tf.distribute.get_replica_context().all_reduce("SUM", gradient))
    return tf.nn.compute_average_loss(tf.reduce_sum(error**2, axis=1), global_batch_size=GLOBAL_BATCH)


@tf.function
def step(x, y):
    return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)


dataset = tf.data.Dataset.range(GLOBAL_BATCH * 100).map(read).batch(GLOBAL_BATCH).repeat()
for x, y in strategy.experimental_distribute_dataset(dataset):
    step(x, y)
print("the end")
