"""The resources that TensorFlow detects on this machine, read from the runtime itself."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipetune.core.believed import Believed
from pipetune.tf.measure import windows

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_PATIENCE_SECONDS = 0.5
_POLL_SECONDS = 0.01


def read_believed(*, patience_seconds: float = _PATIENCE_SECONDS) -> Believed:
    """Returns the cores, bytes and threads that tf.data assumes where a pipeline sets no option.

    Runs a pipeline of one number for some milliseconds, at most `patience_seconds`. Its runtime model holds AUTOTUNE's
    budgets, and the largest parallelism that AUTOTUNE may give one operator is the size tf.data assumes for its thread
    pool. This starts TensorFlow's runtime, after which a script can no longer configure it: do not call this before
    the user's script has created its first tensor.
    """
    inter, intra = _configured("inter_op", "TF_NUM_INTEROP_THREADS"), _configured("intra_op", "TF_NUM_INTRAOP_THREADS")
    cores, buffers, pool = _autotune(patience_seconds)
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Believed(
        autotune_cores=cores,
        autotune_buffer_bytes=buffers,
        pool_threads=pool,
        inter_op_threads=_of_one_pool(_named("tf_Compute"), inter or seen),
        intra_op_threads=intra or seen,
        inter_op_configured=inter,
        intra_op_configured=intra,
    )


def _configured(name: str, variable: str) -> int:
    """Threads requested by `tf.config.threading`, else by the environment; 0 where TensorFlow chooses."""
    asked = int(getattr(tf.config.threading, f"get_{name}_parallelism_threads")())
    if asked > 0:
        return asked
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _of_one_pool(counted: int, expected: int | None) -> int | None:
    """Threads of one pool: a session or server adds a pool of the same name and size, so a multiple counts once."""
    return counted if counted and expected and counted % expected else expected or counted or None


def _named(name: str) -> int:
    """Number of threads of this process with this name; 0 where the system does not list them."""
    found = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread has exited meanwhile
            found += task.read_text().strip() == name
    return found


def _autotune(patience_seconds: float) -> tuple[float | None, int | None, int | None]:
    """AUTOTUNE's cpu_budget in cores, its ram_budget in bytes, and the largest parallelism of an autotuned map."""
    dataset = tf.data.Dataset.range(1).repeat().map(lambda number: number + 1, num_parallel_calls=tf.data.AUTOTUNE)
    iterator: Any = iter(dataset.prefetch(1))
    cores: float | None = None
    buffers: int | None = None
    pool: int | None = None
    try:
        end = time.perf_counter() + patience_seconds
        while time.perf_counter() < end:
            next(iterator)
            model = tf.data.experimental.get_model_proto(iterator)
            pool = max((int(one.max) for node in model.nodes.values() for one in node.parameters
                        if one.name == "parallelism" and one.tunable), default=None)  # fmt: skip
            if model.HasField("optimization_params"):  # filled in when AUTOTUNE has run once
                cores = float(model.optimization_params.cpu_budget) or None
                buffers = int(model.optimization_params.ram_budget) or None
            if cores is not None:
                break
            time.sleep(_POLL_SECONDS)
    except (tf.errors.OpError, ValueError):
        pass  # no model is available: the fields stay None
    finally:
        del iterator
        windows.settle()
    return cores, buffers, pool
