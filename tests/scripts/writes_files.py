"""Trains by a Python loop or, with "fit", by Keras, and leaves nothing alone.

Below argv[1] it writes in 60 ways: in its loop or in a callback, in an except clause that swallows everything, in a
finally clause, and when the interpreter ends. It holds child processes, temporary files, shared memory, and a cache
that it has begun to fill, and prints what they are called.
"""

import atexit
import multiprocessing
import subprocess
import sys
import tempfile
import time
from multiprocessing import shared_memory
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.files import writes

base = Path(sys.argv[1])
features = np.random.default_rng().standard_normal((6400, 8), dtype="float32")
rows = tf.data.Dataset.from_tensor_slices((features, features[:, :1])).map(lambda x, y: (x * 2.0, y))
dataset = rows.cache(f"{base}/caches/train").batch(32).snapshot(f"{base}/caches/snapshot")
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


def main():
    atexit.register(everything, "atexit")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
    pool = multiprocessing.get_context("spawn").Pool(1)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    forked.start()
    forked.terminate()
    forked.join()
    print("forked", forked.exitcode)
    memory = shared_memory.SharedMemory(create=True, size=100)
    filling = iter(tf.data.Dataset.range(100).cache(f"{base}/caches/begun"))
    next(filling)
    held = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory(dir=base / "caches")
    temporary = [tempfile.mkdtemp(), tempfile.mkstemp()[1], *[folder.name for folder in held]]
    Path(temporary[0], "a").write_text("a")
    print("processes", *[child.pid for child in children], *[worker.pid for worker in pool._pool])
    print("files", *temporary, f"/dev/shm/{memory.name}", flush=True)
    with pool, open(base / "caches" / "log", "w"):
        try:
            train()
        except BaseException:
            everything("except")
        finally:
            everything("finally")


if __name__ == "__main__":
    main()
