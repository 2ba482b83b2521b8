"""Patches that set options: the patched source builds the planned pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import tensorflow_private
from pipetune.core.edits import apply_edits
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.measure import runtime_choices
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.rewrites import parallel_map, threads
from pipetune.worker.verification import first_difference
from tests.rewrites.on_data.patching import check_patch, proposed, script

MIXED = """
few = tf.data.Dataset.range(5).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE).repeat()
many = tf.data.Dataset.range(100, 200).shuffle(100).repeat()
ds = tf.data.Dataset.sample_from_datasets([few, many], weights=[0.5, 0.5])
ds = ds.batch(8).take(5)
"""


def _runs_maps_in_parallel(dataset: Any) -> bool:
    return "map_parallelization" in {one.name for one in runtime_choices.read_passes(live.read(dataset)).passes}


def test_maps_run_in_one_thread(tmp_path: Path) -> None:
    """TensorFlow's own parallel map becomes a serial one, of the same elements."""
    sample = script(tmp_path, MIXED)
    before = sample.file.read_text()
    source = live.read(sample.run().ds)
    maps = [node.id for node in source.pipeline if node.op == "map"]
    costs = tuple(OperatorProfile(node, Stage.TRANSFORM, cpu_seconds=3e-6) for node in maps)
    source, (alone, both) = proposed(
        parallel_map.propose_serial_map, source, profile=Profile(costs, ConsumerProfile("none"))
    )
    expected = "options.experimental_optimization.map_parallelization = False\nds = ds.with_options(options)\n"
    check_patch(sample, source, alone, expected=expected, elements=40)
    sample.file.write_text(before)
    text = check_patch(sample, source, both, expected=expected, elements=40)
    assert "few = tf.data.Dataset.range(5).map(lambda x: x + 1).repeat()" in text
    assert _runs_maps_in_parallel(source.dataset)
    assert not _runs_maps_in_parallel(replay(source, apply_edits(source.pipeline, alone.edits)))


SPREAD = """
def multiplied(x):
    return tf.matmul(tf.ones([9, 9]), tf.ones([9, 9]) * tf.cast(x, tf.float32))
ds = tf.data.Dataset.range(40)
ds = ds.map(multiplied, num_parallel_calls=4)
ds = ds.batch(4)
"""


@pytest.mark.one_core
def test_thread_options_are_set_on_the_dataset_and_in_the_patch(tmp_path: Path) -> None:
    sample = script(tmp_path, SPREAD)
    profile = Profile((OperatorProfile("n1", Stage.TRANSFORM, several_threads=True),), ConsumerProfile("none"))
    source, rewrites = proposed(threads.THREADS_RULE.propose, sample.run().ds, profile=profile, cores=4)
    for rewrite, pool in zip(rewrites, (None, 4), strict=True):
        dataset = replay(source, apply_edits(source.pipeline, rewrite.edits))
        threading = dataset.options().threading
        assert (threading.max_intra_op_parallelism, threading.private_threadpool_size) == (1, pool)
        graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
        assert any("OptionsDataset" in node.op for node in graph.node)  # the compared dataset has them too
    expected = (
        "options = tf.data.Options()\noptions.threading.max_intra_op_parallelism = 1\n"
        "options.threading.private_threadpool_size = 4\nds = ds.with_options(options)\n"
    )
    check_patch(sample, source, rewrites[1], expected=expected, elements=40)
    unset = first_difference(source.pipeline, apply_edits(source.pipeline, rewrites[1].edits))
    assert unset.startswith("it sets the options {}, not {'threading.max_intra_op_parallelism': 1")
