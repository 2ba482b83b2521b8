"""The resources TensorFlow detects, in separate processes: threads can be set only before the first tensor."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.codec import decode
from pipetune.core.machine import DetectedResources

PROGRAM = """
import json, os, sys
import tensorflow as tf
exec(sys.argv[1])
from pipetune.core.codec import encode
from pipetune.measure.machine import detect_resources
print(json.dumps(encode(detect_resources(patience_seconds=5.0))))
"""


def believed(setting: str = "", **environment: str) -> DetectedResources:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, setting],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return decode(DetectedResources, json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.exhaustive
@pytest.mark.one_core
@pytest.mark.parametrize(
    ("setting", "seen"),
    [("", len(os.sched_getaffinity(0))), ("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", 1)],
    ids=["all", "one"],
)
def test_detected_cores_are_those_of_the_affinity_mask(setting: str, seen: int) -> None:
    found = believed(setting)
    assert (found.autotune_cores, found.pool_threads) == (seen, seen)
    assert found.inter_op_threads == (found.inter_op_configured or seen)
    assert found.intra_op_threads == (found.intra_op_configured or seen)
    assert found.autotune_buffer_bytes is not None and found.autotune_buffer_bytes > 1 << 20


@pytest.mark.exhaustive
@pytest.mark.one_core
def test_threads_set_by_the_script_override_the_environment() -> None:
    script = "tf.config.threading.set_intra_op_parallelism_threads(3)"
    found = believed(script, TF_NUM_INTRAOP_THREADS="7", TF_NUM_INTEROP_THREADS="9")
    assert (found.inter_op_configured, found.intra_op_configured) == (9, 3)
    assert (found.inter_op_threads, found.intra_op_threads) == (9, 3)  # the first is counted from live threads
    assert found.pool_threads == len(os.sched_getaffinity(0))  # tf.data does not use these settings


@pytest.mark.exhaustive
def test_thread_pool_of_a_server_is_not_counted() -> None:
    found = believed("tf.constant(1) + 1; server = tf.distribute.Server.create_local_server()")
    assert found.inter_op_threads == (found.inter_op_configured or len(os.sched_getaffinity(0)))
