"""Trains in several processes in lockstep. Each row waits, as for storage, three times as long on worker 1.

With a file as argument, worker 1 is killed the first time that two rows wait at once. The file marks that it happened;
another process creates it, because it would be restored otherwise.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
died = Path(sys.argv[1]) if len(sys.argv) > 1 and worker else None
one_at_a_time = threading.Lock()
GLOBAL_BATCH = 16


def wait(number):
    alone = one_at_a_time.acquire(blocking=False)
    if not alone and died and not died.exists():
        subprocess.run(["touch", died], check=True)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.0015 if worker else 0.0005)
    if alone:
        one_at_a_time.release()
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
