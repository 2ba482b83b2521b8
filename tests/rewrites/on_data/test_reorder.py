"""`filter-early`, `split-early` and `shard-early` on real elements: proposed moves are equal, other moves are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Move, Plan, Rewrite, Safety, apply_edits
from pipetune.pipelines import live
from pipetune.probes import batches
from pipetune.rewrites import reorder
from pipetune.rewrites.rule import Rule
from pipetune.source.emit import emit
from pipetune.worker.verification import first_difference
from tests.rewrites.on_data.patching import check_equal, check_patch, compared, proposed, rerun, script

FILTER, SPLIT, SHARD = reorder.FILTER_EARLY_RULE, reorder.SPLIT_EARLY_RULE, reorder.SHARD_EARLY_RULE

_DRAW = np.random.default_rng(5)
_PHOTOS = [tf.io.encode_jpeg(_DRAW.integers(0, 256, (9, 7 + n % 3, 3)).astype(np.uint8)).numpy() for n in range(40)]
_LABELS = _DRAW.integers(0, 10, 40)
_NAMES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.range(10, dtype=tf.int64), [str(number) for number in range(10)]), "?"
)
Make = Callable[[], Any]


def numbers(count: int = 30) -> Any:
    return tf.data.Dataset.range(count)


def photos() -> Any:
    return tf.data.Dataset.from_tensor_slices((_PHOTOS, _LABELS))


def decoded(photo: Any, label: Any) -> Any:
    return tf.image.resize(tf.io.decode_jpeg(photo, channels=3), [6, 6]) / 255.0, label


def named(image: Any, label: Any) -> Any:
    return {"image": image, "label": tf.one_hot(label, 40)}


def noisy(photo: Any, label: Any) -> Any:
    return photo, label + tf.random.uniform([], maxval=3, dtype=tf.int64)


def flipped(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(image), label


def found(rule: Rule, dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    return proposed(rule.propose, dataset, batches.annotate_predicates)


RIGHT: dict[str, tuple[Rule, Make, str]] = {
    "filtered by a table": (
        FILTER, lambda: photos().map(decoded).filter(lambda image, label: _NAMES.lookup(label) != "3").batch(4),
        "from_tensor_slices filter map batch"),
    "filtered above two maps and what is read ahead": (
        FILTER, lambda: photos().shuffle(40).map(decoded).prefetch(3).map(lambda image, label: (image * 2.0, label))
        .filter(lambda image, label: label > 4).batch(3),
        "from_tensor_slices shuffle filter map prefetch map batch"),
    "filtered behind draws that stay where they are": (
        FILTER, lambda: photos().map(noisy).map(decoded).filter(lambda image, label: label < 5).map(flipped).batch(4),
        "from_tensor_slices map filter map map batch"),
    "filtered by a component that the map gives another place": (
        FILTER, lambda: numbers(40).map(lambda x: {"b": x, "a": x * 2}).map(lambda d: {"z": d["a"] + 1, "b": d["b"]})
        .filter(lambda d: d["b"] < 9), "range map filter map"),
    "a split in order, several calls, read ahead": (
        SPLIT,
        lambda: photos().map(decoded, 3).prefetch(2).map(named, 2, deterministic=True).skip(11).batch(4).repeat(2),
        "from_tensor_slices skip map prefetch map batch repeat"),
    "a few of many read ahead": (
        SPLIT, lambda: photos().shuffle(40, seed=3).map(decoded, 4).prefetch(9).take(7).batch(3),
        "from_tensor_slices shuffle take map prefetch batch"),
    "a worker's part of the training split": (
        SHARD, lambda: photos().map(decoded, 2).map(named, 2).skip(7).shard(4, 1).batch(4).repeat(),
        "from_tensor_slices skip shard map map batch repeat"),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(("rule", "make", "operators"), RIGHT.values(), ids=RIGHT)
def test_proposed_move_returns_equal_elements(rule: Rule, make: Make, operators: str) -> None:
    source, (rewrite,) = found(rule, make())
    assert " ".join(node.op for node in apply_edits(source.pipeline, rewrite.edits)) == operators
    assert rewrite.safety is Safety.EXACT and check_equal(source, rewrite).epochs == 3


def counted() -> Any:
    counter = tf.Variable(0, dtype=tf.int64)
    return numbers(6).map(lambda _: counter.assign_add(1)).skip(3)


def third(x: Any) -> Any:
    return x % 3 == 0


def drawn(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


RANDOM: dict[str, tuple[Rule, Make]] = {
    "skip, then take, behind a shuffle": (SPLIT, lambda: numbers().shuffle(30).map(drawn).skip(3).take(20)),
    "shard": (SHARD, lambda: numbers().map(drawn).shard(2, 1).batch(4)),
    "filter": (FILTER, lambda: photos().map(noisy).filter(lambda photo, label: tf.strings.length(photo) % 2 == 0)),
}


@pytest.mark.parametrize(("rule", "make"), RANDOM.values(), ids=RANDOM)
def test_draws_of_the_map_meet_different_elements_of_the_same_distribution(rule: Rule, make: Make) -> None:
    source, (rewrite,) = found(rule, make())
    assert rewrite.safety is Safety.STATISTICAL and "meet different elements" in rewrite.notes[-1]
    assert check_equal(source, rewrite).epochs == 3
    assert not compared(source, rewrite.edits, Safety.EXACT).equal


WRONG: dict[str, Make] = {
    "skip and a function that counts": counted,
    "take and a filter": lambda: numbers().filter(third).take(3),
    "shard and a filter": lambda: numbers().filter(third).shard(3, 0),
    "skip and a shuffle": lambda: numbers().shuffle(30, seed=1).skip(9),
    "take and a shuffle": lambda: numbers().shuffle(30).take(9),
    "skip and a batch": lambda: numbers().batch(4).skip(3),
    "shard and a batch": lambda: numbers().batch(4).shard(2, 1),
    "take and a repeat": lambda: numbers().repeat(2).take(40),
    "skip and numbers given": lambda: numbers().enumerate().skip(3),
    "skip and many of one": lambda: numbers().flat_map(lambda x: tf.data.Dataset.range(x)).skip(3),
    "shard and an interleave": (
        lambda: numbers().interleave(lambda x: tf.data.Dataset.range(x, x + 3), cycle_length=2).shard(2, 1)),
    "skip and a count that is checked": (
        lambda: numbers().apply(tf.data.experimental.assert_cardinality(30)).map(lambda x: x + 1).skip(3)),
    "filter and a map whose result it reads": lambda: numbers().map(lambda x: x * 3).filter(lambda x: x < 30),
    "filter and a random map": (
        lambda: numbers().map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64)).filter(lambda x: x < 20)),
    "filter and a shuffle": lambda: numbers().shuffle(9, seed=2).filter(third),
    "filter and a take": lambda: numbers().take(9).filter(third),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_move_without_a_proposal_changes_elements(name: str) -> None:
    source = live.read(WRONG[name]())
    for rule in (FILTER, SPLIT, SHARD):
        rewrites = found(rule, source)[1]
        assert all(edit.after != "n0" for one in rewrites for edit in one.edits if isinstance(edit, Move))
    node = next(one for one in source.pipeline if one.op == name.split()[0])
    assert not compared(source, [Move(node.id, "n0")], Safety.EXACT).equal


def of_two(x: Any, y: Any) -> Any:
    x.set_shape([2])
    return x, y


def two_labels() -> Any:
    return tf.data.Dataset.from_tensor_slices((_LABELS, _LABELS[::-1].copy()))


def shaped_by_the_map() -> Any:
    rows = [([1, 2], 3), ([3, 4], 5)]
    spec = (tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64))
    dataset = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=spec)
    return dataset.map(of_two).filter(lambda x, y: y < (4 if x.shape[0] == 2 else 9))


def late_bound() -> Any:
    limit = 5
    dataset = photos().map(decoded).filter(lambda image, label: label < limit)
    limit = 7
    return dataset


REFUSED: dict[str, tuple[Make, str]] = {
    # These can be called upstream of the map without an error, but decide differently there.
    "reads a component that the map computes": (
        lambda: numbers(40).map(lambda x: x * 3).filter(lambda x: x < 30), "reads a component that the map computes"),
    "other places": (lambda: two_labels().map(lambda x, y: (y, x)).filter(lambda x, y: x < 5), "something different"),
    "one of two is made": (
        lambda: photos().map(decoded).filter(lambda image, label: (tf.reduce_mean(image) < 0.5) & (label < 5)), ""),
    "as many as it gets": (
        lambda: two_labels().map(lambda x, y: (x, y, x + y)).filter(lambda *row: len(row) < 3 or row[0] < 5),
        "something different"),
    "a shape that the map sets": (shaped_by_the_map, "something different"),
    "a late-bound value": (late_bound, "something different"),
    # These cannot be called there.
    "other names": (lambda: numbers(40).map(lambda x: {"x": x}).filter(lambda d: d["x"] < 9), "cannot be called there"),
    "other arity": (lambda: numbers(40).map(lambda x: (x, x * 2)).filter(lambda x, y: x < 9), "cannot be called there"),
    # What these do is unknown.
    "branches": (
        lambda: photos().map(decoded).filter(lambda image, label: tf.cond(label < 5, lambda: True, lambda: label > 7)),
        "calls other functions"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_unsuitable_predicate_is_refused(make: Make, why: str) -> None:
    source, rewrites = found(FILTER, make())
    (answer,) = (one.function.on_inputs for one in source.pipeline if one.op == "filter" and one.function is not None)
    assert answer is not None and len(answer) == 1 and answer[0].why_not and why in answer[0].why_not
    assert rewrites == []


CASES: dict[str, tuple[Rule, str, str]] = {
    "in a chain": (SPLIT, """
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
        "    .batch(4)\n"),
    "a worker's part": (SHARD, """
        WORKERS, WORKER = 3, 1
        ds = tf.data.Dataset.range(30).map(lambda x: x * 2).skip(2).shard(WORKERS, index=WORKER).batch(4)
        """, ".range(30).skip(2).shard(WORKERS, index=WORKER).map(lambda x: x * 2).batch(4)"),
    "a filter": (FILTER, """
        def scale(x, y):
            return tf.cast(x, tf.float32) / 255.0, y
        ds = tf.data.Dataset.range(30).map(lambda x: (x, x % 7))
        ds = ds.map(scale)  # every row
        ds = ds.filter(lambda x, y: y < 3)
        ds = ds.batch(4)
        """, "ds = ds.filter(lambda x, y: y < 3)\nds = ds.map(scale)  # every row\nds = ds.batch(4)\n"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rule", "text", "expected"), CASES.values(), ids=CASES)
def test_patched_source_builds_planned_pipeline(rule: Rule, text: str, expected: str, tmp_path: Path) -> None:
    sample = script(tmp_path, text)
    source, (rewrite,) = found(rule, sample.run().ds)
    check_patch(sample, source, rewrite, expected=expected, elements=30)


@pytest.mark.parametrize("made", ["range(30)", "from_tensor_slices(list(range(30)))", "Lines"])
def test_split_shared_by_two_datasets_gets_a_map_of_its_own(made: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(30)))
    made = f"tf.data.TextLineDataset({str(lines)!r})" if made == "Lines" else f"tf.data.Dataset.{made}"
    text = f"""
        every = {made}.map(lambda x: tf.stack([x, x]))
        ds = every.skip(20).batch(4)
        other = every.take(20).batch(4)
        """
    sample = script(tmp_path, text)
    module = sample.run()
    source, (rewrite,) = found(SPLIT, module.ds)
    other = live.read(module.other)
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)), other_pipelines=[other.pipeline])
    assert emission.not_covered == ()
    patched = rerun(sample, emission.files[str(sample.file)][1])
    assert first_difference(live.read(patched.ds).pipeline, apply_edits(source.pipeline, rewrite.edits)) == ""
    assert first_difference(live.read(patched.other).pipeline, other.pipeline) == ""
    assert [x.numpy().tolist() for x in patched.ds] == [x.numpy().tolist() for x in module.ds]
