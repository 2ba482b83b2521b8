"""A map that cannot run two calls at a time: its process is killed the first time it happens.

The file argv[1] marks that it happened; another process creates it, because it would be restored otherwise.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import tensorflow as tf

DIED = Path(sys.argv[1])
total = tf.Variable(0)
one_at_a_time = threading.Lock()


def wait(number):
    if one_at_a_time.acquire(blocking=False):
        time.sleep(0.004)
        one_at_a_time.release()
    elif not DIED.exists():
        subprocess.run(["touch", DIED], check=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


dataset = tf.data.Dataset.range(100).map(lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.int64), []))
for _epoch in range(100):
    for number in dataset:
        total.assign_add(tf.cast(number, tf.int32))
