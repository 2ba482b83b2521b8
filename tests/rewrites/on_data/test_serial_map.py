"""`serial-map` on real data: TensorFlow's own parallel map becomes a serial one, of the same elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import apply_edits
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.pipelines import graph_passes, live
from pipetune.pipelines.replay import replay
from pipetune.rewrites import serial_map
from tests.rewrites.on_data.patching import check_patch, proposed, script

SCRIPT = """
import tensorflow as tf

few = tf.data.Dataset.range(5).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE).repeat()
many = tf.data.Dataset.range(100, 200).shuffle(100).repeat()
ds = tf.data.Dataset.sample_from_datasets([few, many], weights=[0.5, 0.5])
ds = ds.batch(8).take(5)
"""


def _runs_maps_in_parallel(dataset: Any) -> bool:
    return "map_parallelization" in {one.name for one in graph_passes.read(live.read(dataset)).passes}


def test_maps_run_in_one_thread(tmp_path: Path) -> None:
    sample = script(tmp_path, SCRIPT)
    source = live.read(sample.run().ds)
    costs = tuple(
        OperatorProfile(node.id, Stage.TRANSFORM, cpu_seconds=3e-6) for node in source.pipeline if node.op == "map"
    )
    source, (alone, both) = proposed(serial_map.propose, source, profile=Profile(costs, ConsumerProfile("none")))
    expected = "options.experimental_optimization.map_parallelization = False\nds = ds.with_options(options)\n"
    check_patch(sample, source, alone, expected=expected, elements=40)
    sample.file.write_text(SCRIPT.lstrip("\n"))
    text = check_patch(sample, source, both, expected=expected, elements=40)
    assert "few = tf.data.Dataset.range(5).map(lambda x: x + 1).repeat()" in text
    assert _runs_maps_in_parallel(source.dataset)
    assert not _runs_maps_in_parallel(replay(source, apply_edits(source.pipeline, alone.edits)))
