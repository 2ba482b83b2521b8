"""`split-early` and `shard-early` on real elements: proposed moves are equal, moves without a proposal are not."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Move, Plan, Rewrite, Safety, apply_edits
from pipetune.equality.compare import compare
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.rewrites import reorder
from pipetune.rewrites.rule import Rule, RuleContext
from pipetune.source.emit import emit
from pipetune.worker.verification import first_difference
from tests.pipelines.test_recorder import Sample
from tests.rewrites.on_data.patching import check_patch

_DRAW = np.random.default_rng(5)
_PHOTOS = [
    tf.io.encode_jpeg(_DRAW.integers(0, 256, (9, 7 + number % 3, 3)).astype(np.uint8)).numpy() for number in range(40)
]
_LABELS = np.arange(40)


def photos() -> Any:
    return tf.data.Dataset.from_tensor_slices((_PHOTOS, _LABELS))


def decoded(photo: Any, label: Any) -> Any:
    return tf.image.resize(tf.io.decode_jpeg(photo, channels=3), [6, 6]) / 255.0, label


def named(image: Any, label: Any) -> Any:
    return {"image": image, "label": tf.one_hot(label, 40)}


def proposed(rule: Rule, dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    source = live.read(dataset)
    found = list(rule.propose(RuleContext(source.pipeline, cores=2)))
    return source, [one for one in found if isinstance(one, Rewrite)]


RIGHT: dict[str, tuple[Rule, Callable[[], Any], list[str]]] = {
    "a validation split": (
        reorder.SPLIT_EARLY_RULE,
        lambda: photos().map(decoded).skip(30).batch(4),
        ["from_tensor_slices", "skip", "map", "batch"],
    ),
    "in order, several calls, read ahead": (
        reorder.SPLIT_EARLY_RULE,
        lambda: photos().map(decoded, 3).prefetch(2).map(named, 2, deterministic=True).skip(11).batch(4).repeat(2),
        ["from_tensor_slices", "skip", "map", "prefetch", "map", "batch", "repeat"],
    ),
    "a part of the middle": (
        reorder.SPLIT_EARLY_RULE,
        lambda: photos().map(decoded).take(30).skip(9).batch(4, drop_remainder=True),
        ["from_tensor_slices", "take", "skip", "map", "batch"],
    ),
    "a few of many read ahead": (
        reorder.SPLIT_EARLY_RULE,
        lambda: photos().shuffle(40, seed=3).map(decoded, 4).prefetch(9).take(7).batch(3),
        ["from_tensor_slices", "shuffle", "take", "map", "prefetch", "batch"],
    ),
    "behind draws that stay where they are": (
        reorder.SPLIT_EARLY_RULE,
        lambda: (
            photos()
            .map(lambda photo, label: (photo, label + tf.random.uniform([], maxval=9, dtype=tf.int64)))
            .map(decoded)
            .skip(5)
            .map(lambda image, label: (tf.image.random_flip_left_right(image), label))
            .batch(4)
        ),
        ["from_tensor_slices", "map", "skip", "map", "map", "batch"],
    ),
    "behind a cache": (
        reorder.SPLIT_EARLY_RULE,
        lambda: photos().cache().map(decoded).skip(5).shuffle(9).batch(4),
        ["from_tensor_slices", "cache", "skip", "map", "shuffle", "batch"],
    ),
    "a worker's part": (
        reorder.SHARD_EARLY_RULE,
        lambda: photos().map(decoded).map(named).shard(3, 2).shuffle(5).batch(4),
        ["from_tensor_slices", "shard", "map", "map", "shuffle", "batch"],
    ),
    "a worker's part of the training split": (
        reorder.SHARD_EARLY_RULE,
        lambda: photos().map(decoded, 2).skip(7).shard(4, 1).batch(4).repeat(),
        ["from_tensor_slices", "skip", "shard", "map", "batch", "repeat"],
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", RIGHT)
def test_proposed_move_returns_equal_elements(name: str) -> None:
    rule, make, operators = RIGHT[name]
    source, (rewrite,) = proposed(rule, make())
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert [node.op for node in edited] == operators
    proof = compare(source, edited, rewrite.safety, elements=40)
    assert rewrite.safety is Safety.EXACT and proof.proven and proof.equal, proof
    assert proof.epochs == 3


def counted() -> Any:
    counter = tf.Variable(0, dtype=tf.int64)
    return tf.data.Dataset.range(6).map(lambda _: counter.assign_add(1)).skip(3)


def numbers() -> Any:
    return tf.data.Dataset.range(30)


def third(x: Any) -> Any:
    return x % 3 == 0


def drawn(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


WRONG: dict[str, Callable[[], Any]] = {
    "skip and a function that counts": counted,
    "skip and a random function": lambda: numbers().map(drawn).skip(3).batch(4),
    "take, then skip, and a random function": lambda: numbers().map(drawn).skip(3).take(20),
    "shard and a random function": lambda: numbers().map(drawn).shard(2, 1).batch(4),
    "skip and a filter": lambda: numbers().filter(third).skip(3),
    "take and a filter": lambda: numbers().filter(third).take(3),
    "shard and a filter": lambda: numbers().filter(third).shard(3, 0),
    "skip and a shuffle": lambda: numbers().shuffle(30, seed=1).skip(9),
    "take and a shuffle": lambda: numbers().shuffle(30).take(9),
    "shard and a shuffle": lambda: numbers().shuffle(30, seed=1).shard(3, 1),
    "skip and a batch": lambda: numbers().batch(4).skip(3),
    "take and a batch": lambda: numbers().batch(4).take(3),
    "shard and a batch": lambda: numbers().batch(4).shard(2, 1),
    "take and a repeat": lambda: numbers().repeat(2).take(40),
    "skip and a repeat": lambda: numbers().repeat(2).skip(7),
    "skip and numbers given": lambda: numbers().enumerate().skip(3),
    "skip and many of one": lambda: numbers().flat_map(lambda x: tf.data.Dataset.range(x)).skip(3),
    "shard and an interleave": lambda: (
        numbers().interleave(lambda x: tf.data.Dataset.range(x, x + 3), cycle_length=2).shard(2, 1)
    ),
    "skip and a count that is checked": lambda: (
        numbers().apply(tf.data.experimental.assert_cardinality(30)).map(lambda x: x + 1).skip(3)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_move_without_a_proposal_changes_elements(name: str) -> None:
    source = live.read(WRONG[name]())
    for rule in (reorder.SPLIT_EARLY_RULE, reorder.SHARD_EARLY_RULE):
        proposals = [one for one in rule.propose(RuleContext(source.pipeline, cores=2)) if isinstance(one, Rewrite)]
        assert all(edit.after != "n0" for one in proposals for edit in one.edits if isinstance(edit, Move))
    node = next(one for one in source.pipeline if one.op in ("take", "skip", "shard"))
    edited = apply_edits(source.pipeline, [Move(node.id, "n0")])
    assert not compare(source, edited, Safety.EXACT, elements=40).equal


def test_stateful_function_returns_other_values_after_a_move() -> None:
    source = live.read(counted())
    assert [int(x) for x in source.dataset] == [4, 5, 6]
    again = live.read(counted())
    moved = replay(again, apply_edits(again.pipeline, [Move("n2", "n0")]))
    assert [int(x) for x in moved] == [1, 2, 3]


def test_moved_map_is_called_only_for_kept_elements() -> None:
    counter = tf.Variable(0, dtype=tf.int64)

    def counts(photo: Any, label: Any) -> Any:
        counter.assign_add(1)
        return decoded(photo, label)

    for place, calls in (("map", 40), ("skip", 10)):
        counter.assign(0)
        dataset = photos()
        dataset = dataset.map(counts).skip(30) if place == "map" else dataset.skip(30).map(counts)
        assert len(list(dataset)) == 10 and int(counter) == calls


CASES: dict[str, tuple[Rule, str, str]] = {
    "in a chain": (
        reorder.SPLIT_EARLY_RULE,
        """
        import tensorflow as tf
        FIRST = 7

        def scale(x):
            return tf.cast(x, tf.float32) / 255.0

        ds = (
            tf.data.Dataset.range(30)
            .map(scale, num_parallel_calls=2)  # slow
            .skip(FIRST)  # the rest is for validation
            .batch(4)
        )
        """,
        "    tf.data.Dataset.range(30)\n"
        "    .skip(FIRST)  # the rest is for validation\n"
        "    .map(scale, num_parallel_calls=2)  # slow\n"
        "    .batch(4)\n",
    ),
    "statement by statement": (
        reorder.SPLIT_EARLY_RULE,
        """
        import tensorflow as tf
        ds = tf.data.Dataset.range(30)
        ds = ds.map(lambda x: x * 2)
        ds = ds.take(20)
        ds = ds.skip(4)
        ds = ds.batch(4)
        """,
        "ds = tf.data.Dataset.range(30)\nds = ds.take(20)\nds = ds.skip(4)\nds = ds.map(lambda x: x * 2)\n",
    ),
    "a worker's part": (
        reorder.SHARD_EARLY_RULE,
        """
        import tensorflow as tf
        WORKERS, WORKER = 3, 1
        ds = tf.data.Dataset.range(30).map(lambda x: x * 2).skip(2).shard(WORKERS, index=WORKER).batch(4)
        """,
        ".range(30).skip(2).shard(WORKERS, index=WORKER).map(lambda x: x * 2).batch(4)",
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
def test_patched_source_builds_planned_pipeline(name: str, tmp_path: Path) -> None:
    rule, text, expected = CASES[name]
    sample = Sample(tmp_path, text)
    source, (rewrite,) = proposed(rule, sample.run().ds)
    check_patch(sample, source, rewrite, expected=expected, elements=30)


@pytest.mark.parametrize("made", ["range(30)", "from_tensor_slices(list(range(30)))", "Lines"])
def test_split_shared_by_two_datasets_gets_a_map_of_its_own(made: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(30)))
    made = f"tf.data.TextLineDataset({str(lines)!r})" if made == "Lines" else f"tf.data.Dataset.{made}"
    text = f"""
        import tensorflow as tf
        every = {made}.map(lambda x: tf.stack([x, x]))
        ds = every.skip(20).batch(4)
        other = every.take(20).batch(4)
        """
    sample = Sample(tmp_path, text)
    module = sample.run()
    source, (rewrite,) = proposed(reorder.SPLIT_EARLY_RULE, module.ds)
    other = live.read(module.other)
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)), other_pipelines=[other.pipeline])
    assert emission.not_covered == ()
    sample.file.write_text(emission.files[str(sample.file)][1])
    linecache.clearcache()
    patched = sample.run()
    assert first_difference(live.read(patched.ds).pipeline, apply_edits(source.pipeline, rewrite.edits)) == ""
    assert first_difference(live.read(patched.other).pipeline, other.pipeline) == ""
    assert [x.numpy().tolist() for x in patched.ds] == [x.numpy().tolist() for x in module.ds]
