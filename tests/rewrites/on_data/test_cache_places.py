"""The places that `cache` proposes on real pipelines keep the data equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.edits import Rewrite, Safety, apply_edits
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.core.results import Comparison
from pipetune.equality.compare import compare
from pipetune.pipelines import call_sites, live
from pipetune.pipelines.element_counting import count_elements
from pipetune.rewrites.cache import RULE
from pipetune.rewrites.rule import RuleContext
from tests.rewrites.on_data.patching import check_patch, script
from tests.rules import proposals

Dataset = tf.data.Dataset
_ROWS = np.arange(24 * 16, dtype=np.float32).reshape(24, 16)


def rows() -> Any:
    return Dataset.from_tensor_slices(_ROWS)


def wide(x: Any) -> Any:
    return tf.tile(x, [64])


def small(x: Any) -> Any:
    return x[:3] * 2.0


def noisy(x: Any) -> Any:
    return x + tf.random.uniform([])


def parsed(record: Any) -> Any:
    return tf.io.decode_raw(record, tf.float32)


def contents(name: Any) -> Any:
    return parsed(tf.strings.substr(tf.io.read_file(name), 12, 64))


def _records(folder: Path, files: int = 2) -> list[str]:
    names = [str(folder / f"{number}.tfrecord") for number in range(files)]
    for number, name in enumerate(names):
        with tf.io.TFRecordWriter(name) as writer:
            for row in _ROWS[number::files]:
                writer.write(row.tobytes())
    return names


def listed(folder: Path) -> Any:
    _records(folder, files=6)
    return Dataset.list_files(str(folder / "*.tfrecord"))


PIPELINES: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "the first batches": (lambda folder: rows().map(small).batch(4).take(3), ["EXACT take"]),
    "sampled from until all have ended": (
        lambda folder: Dataset.sample_from_datasets([rows().map(wide).take(9), rows().map(wide).map(noisy)]).batch(4),
        ["EXACT take", "EXACT map"],
    ),
    "shuffled above what is worth keeping": (
        lambda folder: rows().shuffle(9).map(small).map(wide).map(noisy).batch(4), ["EXACT map", "EXACT map"]),
    "files in drawn order": (
        lambda folder: listed(folder).interleave(tf.data.TFRecordDataset, cycle_length=2).map(parsed).map(noisy)
        .batch(4),
        ["REORDERS map"],
    ),
    "files in drawn order, an element of each": (
        lambda folder: listed(folder).map(contents).map(noisy).batch(4), ["EXACT map"]),
    "files in an order that a cache of their names keeps": (
        lambda folder: listed(folder).cache().map(contents).map(noisy).batch(4), ["EXACT map"]),
    "files in drawn order, and all elements shuffled": (
        lambda folder: listed(folder).map(contents).map(small).map(noisy).shuffle(6).batch(4), ["STATISTICAL map"]),
}  # fmt: skip


def _profile(source: live.LivePipeline) -> Profile:
    """Invented costs and real counts: 1 ms per element and operator, bytes from the data."""
    costs = []
    for node in source.pipeline:
        below = [one.argument("batch_size") for one in source.pipeline.downstream(node.id) if one.op == "batch"]
        parts = [part.numpy() for part in tf.nest.flatten(next(iter(source.datasets[node.id])))]
        held = float(sum(len(part) if isinstance(part, bytes) else part.nbytes for part in parts))
        visits = float(np.prod([size for size in below if isinstance(size, int)]))
        costs.append(OperatorProfile(node.id, Stage.TRANSFORM, cpu_seconds=1e-3, visits=visits, bytes_out=held))
    counted = count_elements(source, limit_seconds=5)
    return Profile(tuple(costs), ConsumerProfile("none"), cardinality=counted)


def _proposed(dataset: Any, **fields: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    source = live.read(dataset)
    rewrites, _ = proposals(RULE, RuleContext(source.pipeline, profile=_profile(source), **fields))
    return source, rewrites


def _compared(source: live.LivePipeline, rewrite: Rewrite) -> Comparison:
    return compare(source, apply_edits(source.pipeline, rewrite.edits), rewrite.safety)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PIPELINES)
def test_cache_at_each_proposed_place_keeps_data_equal(name: str, tmp_path: Path) -> None:
    make, expected = PIPELINES[name]
    with call_sites.Recorder():  # whether a shuffle is part of `list_files` is known from its call
        dataset = make(tmp_path)
    source, rewrites = _proposed(dataset)
    ops = [f"{rewrite.safety.name} {source.pipeline[rewrite.node].op}" for rewrite in rewrites]
    assert ops == expected
    for rewrite in rewrites:
        found = _compared(source, rewrite)
        assert found.equal and found.proven, (name, rewrite.key, found.why)


_NUMBERED = """
ds = tf.data.Dataset.range(24)
ds = ds.cache()
ds = ds.shuffle(6)
ds = ds.map(lambda x: tf.fill([9], x) + 1)
ds = ds.batch(4)
"""


@pytest.mark.sample(1)
def test_cache_of_numbers_gives_way_to_one_of_what_they_become(tmp_path: Path) -> None:
    sample = script(tmp_path, _NUMBERED)
    source, rewrites = _proposed(sample.run().ds)
    (place,) = [one for one in rewrites if one.safety is Safety.EXACT]
    text = check_patch(sample, source, place, expected="+ 1).cache()\nds = ds.shuffle(6)", elements=40)
    assert text.count("cache()") == 1
