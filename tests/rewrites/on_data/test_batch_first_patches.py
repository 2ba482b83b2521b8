"""Patches that call functions on batches: the patched source builds the pipeline of the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Safety
from pipetune.probes import batches
from pipetune.rewrites import batch_first
from pipetune.rewrites.rule import Rule
from tests.rewrites.on_data.patching import check_patch, proposed, script

ARRAYS = "import numpy as np\nimport tensorflow as tf\nX = np.arange(126, dtype=np.float32).reshape(21, 3, 2)\n"
EXAMPLES = """
import tensorflow as tf
def example(number):
    values = tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(number % 4))))
    return tf.train.Example(features=tf.train.Features(feature={"v": values})).SerializeToString()
X = [example(number) for number in range(21)]
"""

CASES: dict[str, tuple[Rule, str, str, str]] = {
    "two, one of them vectorized": (
        batch_first.VECTORIZE_MAP_RULE,
        ARRAYS,
        """
        def pair(x):
            return x * 2.0, x[0]

        def join(x, first):
            return {"x": x, "first": first + 1.0}

        ds = (
            tf.data.Dataset.from_tensor_slices(X)
            .map(pair, num_parallel_calls=2)
            .map(join)  # named
            .batch(4, drop_remainder=True)
        )
        """,
        "    .batch(4, drop_remainder=True)\n"
        "    .map(lambda batch: tf.vectorized_map(pair, batch), num_parallel_calls=2)\n"
        "    .map(join)  # named\n",
    ),
    "with draws": (
        batch_first.VECTORIZE_MAP_RULE,
        ARRAYS,
        """
        def noisy(x):
            return x + tf.random.normal([3, 2])

        ds = tf.data.Dataset.from_tensor_slices(X)
        ds = ds.map(noisy, num_parallel_calls=2)
        ds = ds.shuffle(9)
        ds = ds.batch(4)
        """,
        "ds = ds.batch(4)\nds = ds.map(lambda batch: tf.vectorized_map(noisy, batch), num_parallel_calls=2)\n",
    ),
    "sparse features": (
        batch_first.PARSE_BATCHES_RULE,
        EXAMPLES,
        """
        ds = tf.data.Dataset.from_tensor_slices(X)
        ds = ds.map(lambda x: tf.io.parse_single_example(x, {"v": tf.io.VarLenFeature(tf.int64)}))
        ds = ds.batch(4)
        """,
        'ds = ds.batch(4)\nds = ds.map(lambda x: tf.io.parse_example(x, {"v": tf.io.VarLenFeature(tf.int64)}))\n',
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_patched_source_builds_planned_pipeline(name: str, tmp_path: Path) -> None:
    rule, above, text, expected = CASES[name]
    sample = script(tmp_path, text, above=above)
    source, rewrites = proposed(rule.propose, sample.run().ds, batches.annotate_batches)
    chosen = max(rewrites, key=lambda rewrite: len(rewrite.edits))
    assert chosen.safety is (Safety.STATISTICAL if name == "with draws" else Safety.EXACT)
    check_patch(sample, source, chosen, expected=expected, elements=21)
