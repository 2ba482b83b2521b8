"""Functions split in two, on real elements: that the parts compute what the whole does, and the patch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Edit, Insert, Move, Rewrite, Safety, SplitFunction, apply_edits
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.pipeline import Pipeline
from pipetune.measure.variant_costs import measure_shares
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.probes import function_splitting
from tests.rewrites.on_data.patching import check_patch, compared, script

_DRAW = np.random.default_rng(7)
_COUNT = 15
_IMAGES = _DRAW.integers(0, 256, (_COUNT, 6, 5, 3)).astype(np.uint8)
_MEAN = tf.constant(_DRAW.uniform(0, 255, (8, 7, 3)).astype(np.float32))


def images() -> Any:
    return tf.data.Dataset.from_tensor_slices((_IMAGES, np.arange(_COUNT)))


def told(dataset: Any) -> tuple[live.LivePipeline, Pipeline]:
    source = live.read(dataset)
    return source, function_splitting.annotate_splits(source, source.pipeline)


def found(dataset: Any) -> tuple[live.LivePipeline, FunctionSplit | None]:
    source, pipeline = told(dataset)
    cuts = (node.function.before_draws for node in pipeline if node.function is not None)
    return source, next((cut for cut in cuts if cut is not None), None)


def found_cut(dataset: Any) -> tuple[live.LivePipeline, FunctionSplit]:
    source, cut = found(dataset)
    assert cut is not None and not cut.why_not, cut
    return source, cut


def check_cached(source: live.LivePipeline, cut: FunctionSplit) -> None:
    proof = compared(source, _cached("n1", cut), Safety.STATISTICAL, elements=_COUNT)
    assert proof.proven and proof.equal and proof.epochs == 3, proof


def _cached(node: str, cut: FunctionSplit) -> list[Edit]:
    split = SplitFunction(node, cut)
    return [split, Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})]


def _seeded(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    image = tf.image.random_flip_left_right(image, seed=3)
    return image + tf.random.uniform([], seed=4), label


def _unseeded(image: Any, label: Any) -> Any:
    small = tf.image.resize(tf.cast(image, tf.float32), [8, 7]) - _MEAN
    mean = tf.reduce_mean(small)
    drawn = tf.random.normal([2])
    return {"image": tf.image.random_crop(small, [5, 5, 3]) - mean, "label": tf.cast(label, tf.float32) + drawn}


def _in_a_branch(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    if tf.random.uniform([]) > 0.5:
        image = image * tf.random.uniform([])
    return image, label


_KEYS = tf.lookup.KeyValueTensorInitializer(tf.range(_COUNT, dtype=tf.int64), tf.range(_COUNT) * 3)
_TABLE = tf.lookup.StaticHashTable(_KEYS, default_value=-1)


def _checked(image: Any, label: Any) -> Any:
    tf.debugging.assert_less(label, tf.constant(100, tf.int64))
    small = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    for _ in tf.range(tf.cast(label, tf.int32) % 3):
        small = small * 0.5
    found = _TABLE.lookup(label)
    drawn = tf.random.uniform([])
    return {"a": small * drawn, "b": (small, image), "c": small, "label": [label, tf.cast(found, tf.int64)]}


class _Reader:
    size = (8, 7)

    def read(self, image: Any, label: Any) -> Any:
        image = tf.image.resize(tf.cast(image, tf.float32), self.size)
        image = tf.image.random_flip_left_right(image)
        return image, label


def _small(image: Any) -> Any:
    return tf.image.resize(tf.cast(image, tf.float32), [8, 7])


def _flipped(image: Any) -> Any:
    return tf.image.random_flip_left_right(image)


def _behind_a_call(image: Any, label: Any) -> Any:
    return _flipped(_small(image)), label


def _resized_in_the_statement(size: list[int]) -> Callable[..., Any]:
    def resized(image: Any, label: Any) -> Any:
        image = tf.cast(image, tf.float32)
        image = tf.image.random_flip_left_right(tf.image.resize(image, size) / 255.0)
        return image, label

    return resized


DRAWING: dict[str, tuple[Callable[..., Any], int | None, int]] = {
    "seeded": (_seeded, 1, 2),
    "unseeded, a captured tensor, three handed on": (_unseeded, 2, 3),
    "a check, a loop, a table, tensors given twice": (_checked, 4, 4),
    "in a branch": (_in_a_branch, 1, 2),
    "in a method": (_Reader().read, 1, 2),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(("function", "statement", "handed"), DRAWING.values(), ids=DRAWING)
def test_head_before_random_draws_is_cached(function: Callable[..., Any], statement: int | None, handed: int) -> None:
    source, cut = found_cut(images().map(function).shuffle(5).batch(4).prefetch(1))
    assert (cut.kind, cut.statement, cut.handed) == (SplitPosition.BEFORE_DRAWS, statement, handed)
    check_cached(source, cut)


def _augment(image: Any) -> Any:
    return np.float32(np.random.uniform() * np.asarray(image))


def _numpy(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    image = tf.numpy_function(_augment, [image], tf.float32)
    image.set_shape([8, 7, 3])
    return image, label


def _python_behind_a_draw(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    image = tf.image.random_flip_left_right(image)
    (image,) = tf.py_function(_augment, [image], [tf.float32])
    return tf.ensure_shape(image, [8, 7, 3]), label


@pytest.mark.parametrize(("function", "kind"), [
    (_numpy, SplitPosition.BEFORE_PYTHON),
    (_python_behind_a_draw, SplitPosition.BEFORE_DRAWS),
])  # fmt: skip
def test_head_before_python_is_cached(function: Callable[..., Any], kind: SplitPosition) -> None:
    source, cut = found_cut(images().map(function).shuffle(5).batch(4).prefetch(1))
    assert (cut.kind, cut.statement, cut.handed) == (kind, 1, 2)
    edited = apply_edits(source.pipeline, _cached("n1", cut))
    head, tail = edited["head@n1"].function, edited["n1"].function
    assert head is not None and tail is not None and not head.python and tail.python
    check_cached(source, cut)


@pytest.mark.parametrize(("function", "statement", "call"), [
    (_behind_a_call, 0, "_small"),
    (lambda image, label: (tf.image.random_flip_left_right(tf.image.resize(image, [8, 7])), label), 0, "resize"),
    (_resized_in_the_statement([2, 2]), 1, "resize"),
    (_resized_in_the_statement([64, 64]), 1, ""),  # the cache would be larger
    (lambda image, label: (_flipped(_seeded(image, label)[0] * 0.5 + tf.cast(label, tf.float32)), label), None, ""),
    # two calls of that name, one that is not always evaluated, and one that is not the first
    (lambda image, _: _flipped(tf.cast(tf.cast(image, tf.float32), tf.float64)), None, ""),
    (lambda image, _: _flipped(tf.cast(image, tf.float32) if image.shape else image), None, ""),
    (lambda image, label: (label + 1, _flipped(tf.cast(image, tf.float32))), None, ""),
])  # fmt: skip
def test_call_in_front_of_the_first_draw_is_named(function, statement, call) -> None:
    source, cut = found_cut(images().map(function).batch(4))
    assert (cut.call, cut.statement) == (call, statement)
    assert compared(source, _cached("n1", cut), Safety.STATISTICAL, elements=_COUNT).equal


def test_seeded_draws_are_kept() -> None:
    source, cut = found_cut(images().map(_seeded))
    edited = replay(source, apply_edits(source.pipeline, _cached("n1", cut)))
    assert edited.element_spec == source.dataset.element_spec
    epochs = [[image.numpy() for image, _ in source.dataset] for _ in range(2)]
    again = [[image.numpy() for image, _ in edited] for _ in range(2)]
    assert np.array_equal(epochs, again)


def test_function_without_work_before_its_draws_is_refused() -> None:
    _, cut = found(images().map(lambda image, label: (tf.random.uniform([]) * tf.cast(image, tf.float32), label)))
    assert cut is not None and "no work before" in cut.why_not
    assert found(images().map(lambda image, label: (tf.cast(image, tf.float32), label)))[1] is None  # it draws nothing


def _printing(image: Any, _: Any) -> Any:
    tf.print(image[0, 0, 0])
    return tf.cast(image, tf.float32) + tf.random.uniform([])


STATE: dict[str, Callable[[Any, Any], Any]] = {
    "python that reads a variable": lambda image, _: tf.numpy_function(np.abs, [image * _BYTE], tf.uint8),
    "a variable": lambda image, _: tf.cast(image, tf.float32) * _VARIABLE + tf.random.uniform([]),
    "a generator": lambda image, _: tf.cast(image, tf.float32) * _GENERATOR.uniform([]),
    "a print": _printing,
}
_VARIABLE, _BYTE = tf.Variable(2.0), tf.Variable(2, dtype=tf.uint8)
_GENERATOR = tf.random.Generator.from_seed(3)


@pytest.mark.parametrize("name", STATE)
def test_stateful_function_is_not_probed(name: str) -> None:
    assert found(images().map(STATE[name]).batch(4))[1] is None


def _turned(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(image), label


def _after_cast(image: Any, label: Any) -> Any:
    label = tf.cast(label, tf.int32)
    return _turned(image, label)


def _after_sorting(image: Any, label: Any) -> Any:
    image = tf.sort(tf.image.resize(image, [600, 600]))
    return _turned(image[::75, ::75], label)  # far more work than a call, and little for the second part


def test_share_of_the_first_part_is_its_work_and_not_that_of_a_call() -> None:
    """The second part is called as often as the whole was."""
    for function, least, most in ((_after_cast, 0, 0.5), (_after_sorting, 0.5, 1)):
        source, pipeline = told(images().map(function).batch(4))
        (shares,) = measure_shares(source, pipeline, seconds=60).values()
        assert shares.head is not None and least <= shares.head <= most and shares.head != 0.5


SCRIPT = """
import numpy as np
import tensorflow as tf

IMAGES = np.arange(15 * 90, dtype=np.float32).reshape([15, 6, 5, 3])

def augment(image, label):
    # As large as the network wants it.
    image = tf.image.resize(image, [8, 7])

    # Never the same twice.
    image = tf.image.random_flip_left_right(image, seed=3)
    return image + tf.random.uniform([], seed=4), label

ds = (
    tf.data.Dataset.from_tensor_slices((IMAGES, np.arange(15)))
    .{}
    .{}
    .batch(4)
)
"""
_MAP, _SHUFFLE = "map(augment)", "shuffle(5, seed=1)"


# Each script begins on another line: AutoGraph confuses code that differs only in its file.
@pytest.mark.parametrize("stages", [
    (_SHUFFLE, _MAP),  # the draws of a shuffle upstream are the same, and the cache does not fix an order
    (_MAP, _SHUFFLE),  # the buffer of a shuffle downstream then holds what is cached
])  # fmt: skip
def test_patched_source_builds_planned_pipeline(stages: tuple[str, str], tmp_path: Path) -> None:
    sample = script(tmp_path, SCRIPT.format(*stages), above="\n" * (2 + (stages[0] == _MAP)))
    source, cut = found_cut(sample.run().ds)
    node, shuffle = ("n1", "n2") if stages[0] == _MAP else ("n2", "n1")
    split, cached = _cached(node, cut)
    rewrite = Rewrite("split-map", node, Safety.STATISTICAL, (split, Move(shuffle, f"head@{node}"), cached), "x.")
    expected = f"    .map(augment_head)\n    .cache()\n    .{_SHUFFLE}\n    .map(augment_tail)\n"
    check_patch(sample, source, rewrite, expected=expected, elements=15)
