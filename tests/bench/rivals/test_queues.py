"""How full queues are, by which MindSpore turns its knobs: with functions that are known to be slow or quick."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

import tensorflow as tf

from pipetune.bench.rivals.mindspore import Stage, mindspore_edits
from pipetune.core.editing import apply_edits
from pipetune.rules.base import RuleContext
from pipetune.tf.bench import queues
from pipetune.tf.pipelines import live, replay


def test_a_queue_is_full_where_what_is_behind_it_is_slow_and_empty_where_what_is_before_it_is() -> None:
    def slow(value: tf.Tensor) -> tf.Tensor:
        product = tf.fill([480, 480], tf.cast(value, tf.float32))
        return tf.cast(tf.reduce_sum(tf.linalg.matmul(product, product)), tf.int64)

    def quick(value: tf.Tensor) -> tf.Tensor:
        return value + 1

    found = []
    for functions in ((quick, slow), (slow, quick)):
        source = live.read(tf.data.Dataset.range(10**6).map(functions[0]).map(functions[1]))
        context = RuleContext(source.pipeline, cores=2)
        edited = apply_edits(source.pipeline, mindspore_edits(context, (Stage("n1", 1, 8), Stage("n2", 1, 8))))
        names = {"n1": "queue@n1", "n2": "prefetch@n2"}
        seen = queues.watch(
            replay.replay(source, edited), edited, names.values(), seconds=0.3, warmup_seconds=0.1
        )
        assert seen.rate > 0 and set(seen.filled) == set(names.values())
        found.append(seen.filled)
    assert found[0]["queue@n1"] > found[0]["prefetch@n2"]  # the consumer takes all there is
    assert found[0]["queue@n1"] > found[1]["queue@n1"]
