"""Which functions could compute only the arrays that they select, with equal results, and which need both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Edit, ReplaceFunction, Rewrite, Safety, apply_edits
from pipetune.core.functions import FunctionVariant, ProbeResult
from pipetune.core.results import Comparison
from pipetune.pipelines import live, replay
from pipetune.pipelines.where_to_cond import edit_graph
from pipetune.probes import annotate_graph_edits
from pipetune.rewrites.where_to_cond import propose
from tests.rewrites.on_data import patching

Function = Callable[..., Any]

_DRAW = np.random.default_rng(7)
SPECIAL = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38], np.float32)


def image(height: int, width: int) -> np.ndarray:
    pixels = _DRAW.normal(size=(height, width, 3)).astype(np.float32)
    pixels.flat[: 5 * SPECIAL.size : 5] = SPECIAL
    return pixels


FIXED = [image(80, 80) for _ in range(7)]
SIZES = [image(int(height), int(width)) for height, width in _DRAW.integers(5, 60, (7, 2))]


def images(*, fixed: bool) -> Any:
    spec = tf.TensorSpec([80, 80, 3] if fixed else [None, None, 3], tf.float32)
    return tf.data.Dataset.from_generator(lambda: iter(FIXED if fixed else SIZES), output_signature=spec)


def _half() -> Any:
    return tf.random.uniform([]) < 0.5


def _grey(x: Any) -> Any:
    grey = tf.tile(tf.image.rgb_to_grayscale(x), [1, 1, 3])
    return tf.where(_half(), grey, x)


def _mirrored(x: Any) -> Any:
    return tf.where(tf.random.uniform([]) < 0.5, tf.reverse(x, [1]), x)


def _over_several_lines(x: Any) -> Any:
    bright = x + 0.5
    return (
        tf.where(
            tf.random.uniform([])
            < 0.5,
            bright * 2.0,
            x,
        ),
        tf.where(
            tf.random.uniform([]) < 0.3, x=-x, y=tf.abs(x)
        ),
    )  # fmt: skip


def _draws_of_a_branch(x: Any) -> Any:
    noise = tf.random.normal(tf.shape(x))
    noisy = x + 0.1 * noise
    chosen = tf.where(_half(), noisy, x)
    return chosen + tf.random.uniform([])


def _same_draws_behind_it(x: Any) -> Any:
    left = tf.image.random_brightness(x, 0.3)
    chosen = tf.where(_half(), tf.reverse(left, [0]), left)
    return tf.image.random_contrast(chosen, 0.5, 1.5)


def _checks_of_a_branch(x: Any) -> Any:
    checked = tf.debugging.check_numerics(tf.where(tf.math.is_finite(x), x, 0.0), "infinite")
    large = checked * 2.0
    return tf.where(_half(), large, x)


def _in_a_loop(x: Any) -> Any:
    parts = []
    for factor in (1.5, -0.5):
        parts.append(tf.where(tf.reduce_mean(tf.abs(x)) > factor, x * factor, x))
    return tuple(parts)


def _both_sides_need_it(x: Any) -> Any:
    common = tf.exp(x) * 0.3
    return tf.where(_half(), tf.sin(common), common * 0.7), common


def _one_inside_the_other(x: Any) -> Any:
    inner = tf.where(_half(), tf.reverse(x, [1]), x)
    return tf.where(_half(), tf.reverse(inner, [0]), inner)


def _rows_and_columns(x: Any) -> Any:
    boxes = x[:, 0]
    mirrored = tf.stack([boxes[:, 0], 1.0 - boxes[:, 2], boxes[:, 1]], axis=1)
    heads = _half()
    return (tf.where(heads, mirrored, boxes), tf.where(heads, tf.reverse(x, [1]), x))


EXACT: dict[str, tuple[Function, bool, set[str]]] = {  # with the ops that no longer run for every element
    "grey": (_grey, True, {"MatMul", "Tile"}),
    "mirrored": (_mirrored, False, {"ReverseV2"}),
    "over several lines": (_over_several_lines, False, {"Neg"}),
    "by keyword": (lambda x: tf.where(condition=_half(), y=x, x=tf.square(x)), False, {"Square"}),
    "draws of a branch": (_draws_of_a_branch, True, set()),
    "the same draws behind it": (_same_draws_behind_it, False, {"ReverseV2"}),
    "checks of a branch": (_checks_of_a_branch, False, set()),
    "in a loop": (_in_a_loop, False, set()),
    "twice by a helper": (lambda x: (_mirrored(x), _mirrored(-x)), False, {"ReverseV2"}),
    "needed by both sides": (_both_sides_need_it, False, set()),
    "one inside the other": (_one_inside_the_other, False, {"ReverseV2"}),
    "rows and columns": (_rows_and_columns, False, {"ReverseV2"}),
    "of other types": (lambda x: tf.where(_half(), 255 - tf.cast(x, tf.uint8), tf.cast(x, tf.uint8)), False, set()),
    "indices": (lambda x: tf.where(_half(), tf.gather(x, [2, 1, 0], axis=-1), x), True, {"GatherV2"}),
    "resized": (
        lambda x: tf.where(_half(), tf.image.resize(tf.image.resize(x, [8, 8]), [80, 80]), x),
        True,
        {"ResizeBilinear"},
    ),
    "transposed": (
        lambda x: tf.where(_half(), tf.transpose(tf.transpose(x, [1, 0, 2]), [1, 0, 2]), x),
        False,
        {"Transpose"},
    ),
}
COMPARED = [
    "grey", "mirrored", "over several lines", "draws of a branch", "the same draws behind it", "checks of a branch",
    "in a loop", "needed by both sides", "one inside the other",
]  # fmt: skip
KEPT = {"RandomUniform", "RandomStandardNormal", "CheckNumerics", "Exp"}


def _asked(function: Function, *, fixed: bool = True) -> tuple[live.LivePipeline, ProbeResult]:
    source = live.read(images(fixed=fixed).map(function).prefetch(1))
    told = annotate_graph_edits(source, source.pipeline)
    node = next(one for one in told if one.op == "map")
    assert node.function is not None
    return source, node.function.branching or ProbeResult("it selects nothing large")


def _edits(source: live.LivePipeline, answer: ProbeResult) -> list[Edit]:
    node = next(one.id for one in source.pipeline if one.op == "map")
    return [ReplaceFunction(node, FunctionVariant.BRANCHING, answer.digest)]


def _replayed(source: live.LivePipeline, answer: ProbeResult) -> Any:
    return replay.replay(source, apply_edits(source.pipeline, _edits(source, answer)))


def _compared(source: live.LivePipeline, answer: ProbeResult) -> Comparison:
    return patching.compared(source, _edits(source, answer), Safety.EXACT, elements=len(FIXED))


@pytest.mark.parametrize(("function", "fixed", "moved"), EXACT.values(), ids=EXACT)
def test_ops_of_one_side_move_into_its_branch(function: Function, fixed: bool, moved: set[str]) -> None:
    source, answer = _asked(function, fixed=fixed)
    assert answer.why_not == ""
    traced = next(source.datasets[node.id] for node in source.pipeline if node.op == "map")._map_func
    before, after = ([op.type for op in one.function.graph.get_operations()] for one in (traced, edit_graph(traced)))
    assert not moved & set(after) and moved <= set(before)
    assert {kind: before.count(kind) for kind in KEPT} == {kind: after.count(kind) for kind in KEPT}
    assert {"If", "StatelessIf"} & set(after)


@pytest.mark.parametrize("name", COMPARED)
def test_equal_for_three_epochs(name: str) -> None:
    function, fixed, _ = EXACT[name]
    proof = _compared(*_asked(function, fixed=fixed))
    assert proof.proven and proof.equal and not any("be matched" in note for note in proof.notes)


def _print_in_the_argument(x: Any) -> Any:
    def announced(value: Any) -> Any:
        tf.print("selected")
        return value * 2.0

    return tf.where(_half(), announced(x), x)


def _paddings_that_vary(x: Any) -> Any:
    paddings = tf.cast(x[0, 0, 0], tf.int32) * tf.ones([3, 2], tf.int32)
    return tf.where(_half(), x * tf.cast(tf.size(tf.pad(x, paddings)), tf.float32), x)


def _fused_with_an_op_that_stays(x: Any) -> Any:
    common = tf.exp(x)
    return tf.where(_half(), common - 1.0, common)


def _same_op_on_both_sides(x: Any) -> Any:
    common = x * 0.3
    return tf.where(_half(), common * 0.7, common * 0.9)


SILENT: dict[str, tuple[Function, bool, str]] = {
    "outer rows": (lambda x: tf.where(_half(), tf.reduce_mean(x, 0, keepdims=True), x), True, "same shape"),
    "one channel, any size": (lambda x: tf.where(_half(), tf.image.rgb_to_grayscale(x), x), False, "same shape"),
    "padded": (lambda x: tf.where(_half(), tf.pad(x, [[0, 1], [0, 0], [0, 0]])[:-1], x), False, "same shape"),
    "turned": (lambda x: tf.where(_half(), tf.transpose(x, [1, 0, 2]), x), False, "same shape"),
    "a number": (lambda x: tf.where(_half(), x, 0.0), True, "not a tensor"),
    "a list": (lambda x: tf.where(_half(), [x, -x], tf.stack([x, x])), True, "not a tensor"),
    "for each number": (lambda x: tf.where(x > 0.5, x, -x), True, "selects nothing large"),
    "draw in the argument": (lambda x: tf.where(_half(), x + tf.random.uniform([]), x), True, "RandomUniform"),
    "draw of an inner condition": (lambda x: tf.where(_half(), tf.where(_half(), -x, x), x), True, "RandomUniform"),
    "check in it": (lambda x: tf.where(_half(), tf.debugging.check_numerics(x, "infinite"), x), True, "CheckNumerics"),
    "print in the argument": (_print_in_the_argument, True, "PrintV2"),
    "division of integers": (
        lambda x: tf.where(_half(), tf.cast(x, tf.int32) // tf.cast(x, tf.int32), tf.cast(x, tf.int32)),
        True, "FloorDiv"),
    "indices that vary": (
        lambda x: tf.where(_half(), tf.gather(tf.reshape(x, [-1]), tf.cast(x * 100.0, tf.int32)), x), True, "GatherV2"),
    "paddings that vary": (_paddings_that_vary, True, "Pad"),
    "beside a condition for each number": (
        lambda x: (tf.where(_half(), -x, x), tf.where(x > 0.5, x, -x)), True, "not a single value"),
    "in a traced loop": (
        lambda x: tf.map_fn(lambda row: tf.where(_half(), -row, row), tf.tile(x[None], [2, 1, 1, 1])),
        True, "selects nothing large"),
    "fused with an op that stays": (_fused_with_an_op_that_stays, True, "may fuse an op"),
    "same op on both sides": (_same_op_on_both_sides, True, "may fuse an op"),
    "draw elsewhere in it": (lambda x: tf.where(_half(), -x, x) + tf.random.uniform([]), True, "RandomUniform"),
    "small": (lambda x: tf.where(_half(), -x[:3], x[:3]), True, "selects nothing large"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "fixed", "why"), SILENT.values(), ids=SILENT)
def test_needs_both_arrays(function: Function, fixed: bool, why: str) -> None:
    assert why in _asked(function, fixed=fixed)[1].why_not


def test_other_statements_of_a_function_stay_as_they_are() -> None:
    def two(x: Any) -> Any:
        x = tf.where(_half(), tf.reverse(x, [1]), x)
        return tf.where(_half(), tf.image.rgb_to_grayscale(x), x)

    source, answer = _asked(two)
    assert answer.why_not == "" and _compared(source, answer).proven
    (function,) = (node.function for node in source.pipeline if node.op == "map")
    assert function is not None and [bool(one.why_not) for one in function.selections] == [False, True]


def test_random_seeds_are_kept() -> None:
    tf.random.set_seed(11)
    source, answer = _asked(_same_draws_behind_it, fixed=False)
    pairs = zip(source.dataset.as_numpy_iterator(), _replayed(source, answer).as_numpy_iterator(), strict=True)
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def test_the_same_elements_are_rejected() -> None:
    """The side that is not selected is still checked, as today."""
    source, answer = _asked(_checks_of_a_branch)
    before, after = (len(list(one.ignore_errors())) for one in (source.dataset, _replayed(source, answer)))
    assert before == after


ABOVE = "import tensorflow as tf\nfrom tests.rewrites.on_data.test_where_to_cond import images\n\n"

SCRIPT = """
    def flip(image):
        heads = tf.random.uniform([]) < 0.5
        image = tf.image.random_brightness(image, 0.2)
        both = {
            "image": tf.where(
                heads,
                tf.reverse(image, [1]),
                image,
            ),
            "negative": tf.where(heads, x=-image, y=image),
        }
        return tf.image.random_contrast(both["image"], 0.5, 1.5), both["negative"]
    def prepare(image):
        return flip(image * 2.0)
    ds = images(fixed=False).map(prepare).shuffle(5).batch(1)
    """
"""Mirrored images of any size, in a statement of several lines."""


def _scripted(folder: Path, text: str, *, above: str = "") -> tuple[patching.Sample, live.LivePipeline, Rewrite]:
    sample = patching.script(folder, text, above=above + ABOVE)
    source, (rewrite,) = patching.proposed(propose, sample.run().ds, annotate_graph_edits)
    return sample, source, rewrite


def test_patched_source_returns_planned_elements(tmp_path: Path) -> None:
    sample, source, rewrite = _scripted(tmp_path, SCRIPT)
    expected = "tf.cond(heads, true_fn=lambda: -image, false_fn=lambda: image)"
    assert "tf.where" not in patching.check_patch(sample, source, rewrite, expected=expected)
    planned = patching.digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)))
    assert patching.digests(source.dataset) == planned


def test_patched_source_draws_the_numbers_of_a_global_seed(tmp_path: Path) -> None:
    """TensorFlow numbers the draws of each graph: those of a map stay the same because none moves into a branch."""
    above = "import tensorflow\ntensorflow.random.set_seed(4)\n"
    sample, source, rewrite = _scripted(tmp_path, SCRIPT.replace(".shuffle(5)", ""), above=above)
    before = list(source.dataset.as_numpy_iterator())
    after = list(patching.rerun(sample, patching.patched_text(sample, source, rewrite)).ds.as_numpy_iterator())
    pairs = zip(before, after, strict=True)
    assert all(np.array_equal(one, other, equal_nan=True) for two in pairs for one, other in zip(*two, strict=True))
