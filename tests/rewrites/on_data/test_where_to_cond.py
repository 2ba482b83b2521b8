"""Which functions could compute only the arrays that they select, with equal results, and which need both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import ReplaceFunction, Safety, SetArgument, apply_edits
from pipetune.core.functions import Branching, FunctionVariant
from pipetune.core.results import Comparison
from pipetune.equality.compare import compare
from pipetune.measure.variant_costs import measure_shares
from pipetune.pipelines import live, replay
from pipetune.pipelines.array_selections import select_by_branch
from pipetune.probes.branching import annotate_branches, probe_branches

Function = Callable[..., Any]

_DRAW = np.random.default_rng(7)
SPECIAL = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38], np.float32)


def image(height: int, width: int) -> np.ndarray:
    pixels = _DRAW.normal(size=(height, width, 3)).astype(np.float32)
    pixels.flat[: 5 * SPECIAL.size : 5] = SPECIAL
    return pixels


FIXED = [image(80, 80) for _ in range(13)]
SIZES = [image(int(height), int(width)) for height, width in _DRAW.integers(5, 60, (13, 2))]


def images(*, fixed: bool) -> Any:
    shape = [80, 80, 3] if fixed else [None, None, 3]
    return tf.data.Dataset.from_generator(
        lambda: iter(FIXED if fixed else SIZES), output_signature=tf.TensorSpec(shape, tf.float32)
    )


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


def _by_keyword(x: Any) -> Any:
    return tf.where(condition=_half(), y=x, x=tf.square(x))


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


def _twice_by_a_helper(x: Any) -> Any:
    return _mirrored(x), _mirrored(-x)


def _both_sides_need_it(x: Any) -> Any:
    common = tf.exp(x) * 0.3
    return tf.where(_half(), tf.sin(common), common * 0.7), common


def _one_inside_the_other(x: Any) -> Any:
    inner = tf.where(_half(), tf.reverse(x, [1]), x)
    return tf.where(_half(), tf.reverse(inner, [0]), inner)


def _small_beside_large(x: Any) -> Any:
    heads = _half()
    mean = tf.reduce_mean(x, [0, 1])
    return (tf.where(heads, -mean, mean), tf.where(heads, -x, x))


def _rows_and_columns(x: Any) -> Any:
    boxes = x[:, 0]
    mirrored = tf.stack([boxes[:, 0], 1.0 - boxes[:, 2], boxes[:, 1]], axis=1)
    heads = _half()
    return (tf.where(heads, mirrored, boxes), tf.where(heads, tf.reverse(x, [1]), x))


def _of_other_types(x: Any) -> Any:
    pixels = tf.cast(tf.clip_by_value(x, 0.0, 1.0) * 255.0, tf.uint8)
    return tf.where(_half(), 255 - pixels, pixels)


def _indices(x: Any) -> Any:
    return tf.where(_half(), tf.gather(x, [2, 1, 0], axis=-1), x)


def _resized(x: Any) -> Any:
    small = tf.image.resize(tf.image.resize(x, [8, 8]), [80, 80])
    return tf.where(_half(), small, x)


def _transposed_batches(x: Any) -> Any:
    turned = tf.transpose(tf.transpose(x, [1, 0, 2]), [1, 0, 2])
    return tf.where(_half(), turned, x)


EXACT: list[tuple[Function, bool, set[str]]] = [  # with the ops that no longer run for every element
    (_grey, True, {"MatMul", "Tile"}),
    (_mirrored, True, {"ReverseV2"}),
    (_mirrored, False, {"ReverseV2"}),
    (_over_several_lines, False, {"Neg"}),
    (_by_keyword, False, {"Square"}),
    (_draws_of_a_branch, True, set()),
    (_same_draws_behind_it, False, {"ReverseV2"}),
    (_checks_of_a_branch, False, set()),
    (_in_a_loop, False, set()),
    (_twice_by_a_helper, False, {"ReverseV2"}),
    (_both_sides_need_it, False, set()),
    (_one_inside_the_other, False, {"ReverseV2"}),
    (_small_beside_large, True, set()),
    (_rows_and_columns, False, {"ReverseV2"}),
    (_of_other_types, False, set()),
    (_indices, True, {"GatherV2"}),
    (_resized, True, {"ResizeBilinear"}),
    (_transposed_batches, False, {"Transpose"}),
]
KEPT = {"RandomUniform", "RandomStandardNormal", "CheckNumerics", "Exp"}


def _asked(function: Function, *, fixed: bool = True) -> tuple[live.LivePipeline, Branching]:
    source = live.read(images(fixed=fixed).map(function).prefetch(1))
    told = annotate_branches(source, source.pipeline)
    node = next(one for one in told if one.op == "map")
    assert node.function is not None
    return source, node.function.branching or Branching("it selects nothing large")


def _edited(source: live.LivePipeline, answer: Branching, *more: Any) -> Any:
    node = next(one.id for one in source.pipeline if one.op == "map")
    return apply_edits(source.pipeline, [ReplaceFunction(node, FunctionVariant.BRANCHING, answer.digest), *more])


def _compared(source: live.LivePipeline, answer: Branching, *more: Any) -> Comparison:
    return compare(source, _edited(source, answer, *more), Safety.EXACT, elements=len(FIXED))


@pytest.mark.parametrize(("function", "fixed", "moved"), EXACT)
def test_equal_for_three_epochs(function: Function, fixed: bool, moved: set[str]) -> None:
    source, answer = _asked(function, fixed=fixed)
    assert answer.why_not == ""
    proof = _compared(source, answer)
    assert proof.proven and proof.equal and not any("be matched" in note for note in proof.notes)
    traced = next(source.datasets[node.id] for node in source.pipeline if node.op == "map")._map_func
    before, after = (
        [op.type for op in one.function.graph.get_operations()] for one in (traced, select_by_branch(traced))
    )
    assert not moved & set(after) and moved <= set(before)
    assert {kind: before.count(kind) for kind in KEPT} == {kind: after.count(kind) for kind in KEPT}
    assert {"If", "StatelessIf"} & set(after)


def _outer_rows(x: Any) -> Any:
    return tf.where(_half(), tf.reduce_mean(x, 0, keepdims=True), x)


def _grey_of_any_size(x: Any) -> Any:
    return tf.where(_half(), tf.image.rgb_to_grayscale(x), x)


def _padded(x: Any) -> Any:
    return tf.where(_half(), tf.pad(x, [[0, 1], [0, 0], [0, 0]])[:-1], x)


def _turned(x: Any) -> Any:
    return tf.where(_half(), tf.transpose(x, [1, 0, 2]), x)


def _a_number(x: Any) -> Any:
    return tf.where(_half(), x, 0.0)


def _an_array(x: Any) -> Any:
    return tf.where(_half(), FIXED[0], x)


def _a_list(x: Any) -> Any:
    return tf.where(_half(), [x, -x], tf.stack([x, x]))


def _for_each_number(x: Any) -> Any:
    return tf.where(x > 0.5, x, -x)


def _for_each_row(x: Any) -> Any:
    return tf.where(tf.random.uniform([80, 1, 1]) < 0.5, x, -x)


def _draw_in_the_argument(x: Any) -> Any:
    return tf.where(_half(), x + tf.random.uniform([]), x)


def _draw_of_an_inner_condition(x: Any) -> Any:
    return tf.where(_half(), tf.where(_half(), -x, x), x)


def _check_in_the_argument(x: Any) -> Any:
    return tf.where(_half(), tf.debugging.check_numerics(x, "infinite"), x)


def _print_in_the_argument(x: Any) -> Any:
    def announced(value: Any) -> Any:
        tf.print("selected")
        return value * 2.0

    return tf.where(_half(), announced(x), x)


def _division_of_integers(x: Any) -> Any:
    whole = tf.cast(x, tf.int32)
    return tf.where(_half(), whole // whole, whole)


def _indices_that_vary(x: Any) -> Any:
    places = tf.cast(tf.clip_by_value(x[:, 0, 0], 0.0, 100.0), tf.int32)
    return tf.where(_half(), tf.gather(x, places), x)


def _beside_a_condition_for_each_number(x: Any) -> Any:
    return (tf.where(_half(), -x, x), tf.where(x > 0.5, x, -x))


@tf.function
def _decorated(x: Any) -> Any:
    return tf.where(_half(), -x, x)


def _in_a_traced_loop(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.where(_half(), -row, row), tf.tile(x[None], [2, 1, 1, 1]))


def _fused_with_an_op_that_stays(x: Any) -> Any:
    common = tf.exp(x)
    return tf.where(_half(), common - 1.0, common)


def _same_op_on_both_sides(x: Any) -> Any:
    common = x * 0.3
    return tf.where(_half(), common * 0.7, common * 0.9)


def _draw_elsewhere_in_the_statement(x: Any) -> Any:
    return tf.where(_half(), -x, x) + tf.random.uniform([])


def _small(x: Any) -> Any:
    return tf.where(_half(), -x[:3], x[:3])


SILENT: list[tuple[Function, bool, str]] = [
    (_outer_rows, True, "same shape"),
    (_outer_rows, False, "same shape"),
    (_grey_of_any_size, True, "same shape"),
    (_grey_of_any_size, False, "same shape"),
    (_padded, False, "same shape"),
    (_turned, False, "same shape"),
    (_a_number, True, "not a tensor"),
    (_an_array, True, "not a tensor"),
    (_a_list, True, "not a tensor"),
    (_for_each_number, True, "selects nothing large"),
    (_for_each_row, True, "selects nothing large"),
    (_draw_in_the_argument, True, "RandomUniform"),
    (_draw_of_an_inner_condition, True, "RandomUniform"),
    (_check_in_the_argument, True, "CheckNumerics"),
    (_print_in_the_argument, True, "PrintV2"),
    (_division_of_integers, True, "FloorDiv"),
    (_indices_that_vary, True, "GatherV2"),
    (_beside_a_condition_for_each_number, True, "not a single value"),
    (_decorated, True, "selects nothing large"),
    (_in_a_traced_loop, True, "selects nothing large"),
    (_fused_with_an_op_that_stays, True, "may fuse an op"),
    (_same_op_on_both_sides, True, "may fuse an op"),
    (_draw_elsewhere_in_the_statement, True, "RandomUniform"),
    (_small, True, "selects nothing large"),
]


@pytest.mark.parametrize(("function", "fixed", "why"), SILENT)
def test_needs_both_arrays(function: Function, fixed: bool, why: str) -> None:
    assert why in _asked(function, fixed=fixed)[1].why_not


def test_table_of_refused_cases_is_longer() -> None:
    assert len(SILENT) > len(EXACT)


def test_other_statements_of_a_function_stay_as_they_are() -> None:
    def two(x: Any) -> Any:
        x = tf.where(_half(), tf.reverse(x, [1]), x)
        return tf.where(_half(), tf.image.rgb_to_grayscale(x), x)

    source, answer = _asked(two)
    assert answer.why_not == "" and _compared(source, answer).proven
    (map_node,) = (node for node in source.pipeline if node.op == "map")
    assert map_node.function is not None
    assert [bool(one.why_not) for one in map_node.function.selections] == [False, True]


def test_combines_with_parallel_calls() -> None:
    source, answer = _asked(lambda x: tf.where(tf.reduce_mean(x) > 0.0, tf.reverse(x, [1]), x), fixed=False)
    assert _compared(source, answer, SetArgument("n1", "num_parallel_calls", 2)).proven


def test_random_seeds_are_kept() -> None:
    tf.random.set_seed(11)
    source, answer = _asked(_same_draws_behind_it, fixed=False)
    tuned = replay.replay(source, _edited(source, answer))
    pairs = zip(source.dataset.as_numpy_iterator(), tuned.as_numpy_iterator(), strict=True)
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def test_the_same_elements_are_rejected() -> None:
    """The side that is not selected is still checked, as today."""
    source, answer = _asked(_checks_of_a_branch)
    edited = replay.replay(source, _edited(source, answer))
    kept = [sum(1 for _ in dataset.ignore_errors()) for dataset in (source.dataset, edited)]
    assert kept[0] == kept[1]


def test_edited_digest_is_that_of_the_replayed_function() -> None:
    source, answer = _asked(_grey)
    made = live.read(replay.replay(source, _edited(source, answer))).pipeline
    digests = [node.function.digest for node in made if node.op == "map" and node.function is not None]
    assert digests == [answer.digest] and source.pipeline["n1"].function is not None
    assert digests != [source.pipeline["n1"].function.digest]


def test_share_of_the_cost_is_measured() -> None:
    source, _ = _asked(_grey)
    (shares,) = measure_shares(source, annotate_branches(source, source.pipeline), seconds=60).values()
    assert shares.variants is not None and set(shares.variants) == {FunctionVariant.BRANCHING}
    assert 0 < shares.variants[FunctionVariant.BRANCHING] < 1


def test_probe_of_a_function_that_selects_nothing() -> None:
    source = live.read(tf.data.Dataset.range(3).map(lambda x: x + 1))
    assert probe_branches(source, source.pipeline["n1"]).why_not == "it selects no large arrays"
