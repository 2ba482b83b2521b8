"""Elements of rare kinds are opaque, and never make pipetune fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import probes
from pipetune.core.edits import Insert, Safety, SetArgument, apply_edits
from pipetune.equality.compare import compare
from pipetune.measure.caches import fill_cache
from pipetune.pipelines import live
from pipetune.rewrites import propose_all
from pipetune.rewrites.rule import RuleContext

Optional = tf.experimental.Optional


class Pair(tf.experimental.BatchableExtensionType):  # type: ignore[misc]
    """A user-defined element type."""

    a: tf.Tensor
    b: tf.Tensor


def _numbers() -> Any:
    return tf.data.Dataset.range(23)


def _slices(x: Any) -> Any:
    return tf.IndexedSlices(tf.ones([1, 3]) * tf.cast(x, tf.float32), tf.reshape(x, [1]), tf.constant([5, 3], tf.int64))


ODD: dict[str, Callable[[], Any]] = {
    "optional": lambda: _numbers().map(Optional.from_value).map(lambda o: o.get_value() * 2).batch(4),
    "indexed slices": lambda: _numbers().map(_slices).map(lambda s: s.values * 2.0).batch(4),
    "datasets": lambda: _numbers().window(5).map(lambda w: w.batch(5)).flat_map(lambda w: w).map(lambda x: x * 2),
    "ragged": lambda: _numbers().map(lambda x: tf.ragged.range(tf.stack([x, x + 1]))).batch(4).map(lambda r: r * 2),
    "sparse": lambda: _numbers().map(lambda x: tf.sparse.from_dense(tf.range(x))).map(lambda s: s * 2).batch(4),
    "a type of one's own": lambda: _numbers().map(lambda x: Pair(x, -x)).map(lambda p: Pair(p.a * 2, p.b)).batch(4),
    "no elements": lambda: (
        tf.data.Dataset.from_tensor_slices(np.zeros((0, 3), np.float32)).map(lambda x: x + 1).batch(4)
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ODD)
def test_odd_elements_do_not_fail(name: str) -> None:
    source = live.read(ODD[name]())
    found, _ = propose_all(RuleContext(probes.annotate(source), cores=2))
    plans = [(rewrite.edits, rewrite.safety) for rewrite in found]
    output = source.pipeline.output.id
    plans.append(((Insert(output, "prefetch", "prefetch@1", {"buffer_size": 2}),), Safety.EXACT))
    maps = [node.id for node in source.pipeline if node.op == "map"]
    plans += [((SetArgument(name, "num_parallel_calls", 2),), Safety.EXACT) for name in maps]
    for edits, safety in plans:
        comparison = compare(source, apply_edits(source.pipeline, edits), safety)
        assert comparison.checks and not comparison.why


@pytest.mark.parametrize("name", sorted(ODD.keys() - {"datasets"}))
def test_cache_of_odd_elements_is_filled(name: str) -> None:
    read: list[int] = []

    def note(element: Any) -> Any:
        read.append(1)
        return element

    elements = list(ODD[name]())
    source = tf.data.Dataset.range(len(elements)).map(lambda i: tf.numpy_function(note, [i], i.dtype))
    cached = tf.data.Dataset.zip(source, ODD[name]()).cache()
    fill_cache(cached)
    assert len(read) == len(elements)
    assert len(list(cached)) == len(elements) and len(read) == len(elements)  # nothing was read again
