"""`threads` on real data: the options reach the runtime, the values stay equal, and the patch sets them."""

from __future__ import annotations

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.one_core]

from pipetune import tensorflow_private
from pipetune.core.edits import apply_edits
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.pipelines.replay import replay
from pipetune.rewrites.threads import THREADS_RULE
from pipetune.worker.verification import first_difference
from tests.rewrites.on_data.patching import check_patch, proposed, script

SCRIPT = """
import tensorflow as tf

def multiplied(x):
    return tf.matmul(tf.ones([9, 9]), tf.ones([9, 9]) * tf.cast(x, tf.float32))

ds = tf.data.Dataset.range(40)
ds = ds.map(multiplied, num_parallel_calls=4)
ds = ds.batch(4)
"""


def test_thread_options_are_set_on_the_dataset_and_in_the_patch(tmp_path: Path) -> None:
    sample = script(tmp_path, SCRIPT)
    spread = OperatorProfile("n1", Stage.TRANSFORM, several_threads=True)
    profile = Profile((spread,), ConsumerProfile("none"))
    source, (alone, with_pool) = proposed(THREADS_RULE.propose, sample.run().ds, profile=profile, cores=4)
    for rewrite, pool in ((alone, None), (with_pool, 4)):
        dataset = replay(source, apply_edits(source.pipeline, rewrite.edits))
        threading = dataset.options().threading
        assert (threading.max_intra_op_parallelism, threading.private_threadpool_size) == (1, pool)
        graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
        assert any("OptionsDataset" in node.op for node in graph.node)  # the compared dataset has them too
    expected = (
        "options = tf.data.Options()\noptions.threading.max_intra_op_parallelism = 1\n"
        "options.threading.private_threadpool_size = 4\nds = ds.with_options(options)\n"
    )
    check_patch(sample, source, with_pool, expected=expected, elements=40)
    unset = first_difference(source.pipeline, apply_edits(source.pipeline, with_pool.edits))
    assert unset.startswith("it sets the options {}, not {'threading.max_intra_op_parallelism': 1")
