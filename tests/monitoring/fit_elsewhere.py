"""`python fit_elsewhere.py`: trains without a strategy and with two replicas, and prints JSON about the wait of each.

Logical devices can be set only before TensorFlow is initialized, and so can the version of Keras: hence a process.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pipetune

# isort: split
import tensorflow as tf

processors = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(processors[0], [tf.config.LogicalDeviceConfiguration()] * 2)


def wait(value: Any) -> Any:
    time.sleep(0.02)
    return value


def slow(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(wait, [tf.cast(x, tf.float32)], tf.float32), [])[None], tf.zeros([1])


def train() -> dict[str, Any]:
    model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    monitor = pipetune.keras.InputMonitor()
    history = model.fit(tf.data.Dataset.range(40).map(slow).batch(4), epochs=2, callbacks=[monitor], verbose=0)
    return {"logged": len(history.history.get("input_wait", [])), "share": monitor.input_wait}


alone = train()
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    replicated = train()
print(json.dumps([alone, replicated]))
