"""Functions on batches compared with functions of single elements: what is proven equal is equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import tensorflow_private
from pipetune.pipelines import lifting
from pipetune.pipelines.lifting import BatchProperties
from pipetune.pipelines.terms import CannotProve, needed_ops
from pipetune.probes.batches import PROVEN_FOR_NO_ROWS, PROVEN_OPS, check_converters
from tests.rewrites.on_data.op_cases import COUNT, Case, cases, differences

Function = Callable[..., Any]
NUMBERS = tf.TensorSpec([3], tf.float32)


def traced(function: Function, specs: Sequence[Any], *, rows: int | str | None = "") -> Any:
    """The concrete function of flat tensors, or of batches with `rows` rows where it is given."""
    if rows != "":
        specs = [tf.TensorSpec([rows, *one.shape], one.dtype) for one in specs]
    return tensorflow_private.data_function(lambda *values: tf.nest.flatten(function(*values)), specs)


def lifted(case: Case, *, rows: int | None = None) -> tuple[BatchProperties, Any, Any]:
    """The proven properties of a function called on batches unchanged, and both traced functions.

    Raises:
        CannotProve: nothing is proven.
    """
    single = traced(case.function, case.specs)
    try:
        many = traced(case.function, case.specs, rows=rows)
    except Exception as error:
        raise CannotProve(f"cannot be called on batches ({type(error).__name__})") from error
    for one, other in zip(single.outputs, many.outputs, strict=True):
        if other.shape.rank is not None and other.shape.as_list() != [rows, *one.shape.as_list()]:
            raise CannotProve("gives other shapes on batches")
    return lifting.prove_rows(single, many), single, many


def _sorted_out() -> list[Any]:
    """Every case in exhaustive runs; otherwise one of each name, with two axes where there is one."""
    found = list(cases())
    chosen: dict[str, Case] = {}
    for case in found:
        if case.name not in chosen or len(case.specs[0].shape) == 2 > len(chosen[case.name].specs[0].shape):
            chosen[case.name] = case
    return [
        pytest.param(case, id=f"{number}-{case.name}", marks=[pytest.mark.exhaustive] * (case is not chosen[case.name]))
        for number, case in enumerate(found)
    ]


CASES = _sorted_out()
SIZES = (1, 2, 3, 7, 16)


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", CASES)
def test_proven_properties_hold_on_generated_elements(case: Case) -> None:
    """On batches unchanged, and through tf.vectorized_map, there in a branch, too."""
    for rows in (None, 7):
        try:
            proof, single, many = lifted(case, rows=rows)
        except CannotProve:
            continue
        found = differences(single, many, case.elements(), sizes=SIZES if rows is None else (rows,))
        assert found <= _allowed(proof)
    flags = np.arange(COUNT) % 3 == 0
    for function, specs, inputs in (
        (case.function, case.specs, case.elements()),
        (_where_flagged(case.function), (tf.TensorSpec([], tf.bool), *case.specs), [flags, *case.elements()]),
    ):
        try:
            single, many = traced(function, specs), traced(_vectorized(function), specs, rows=None)
            proof = check_converters(single, many)
        except (ValueError, CannotProve):  # no converter, or none that is proven
            continue
        assert differences(single, many, inputs, sizes=SIZES) <= _allowed(proof)


def _where_flagged(function: Function) -> Function:
    """The function in a branch; the other side gives zeros. For single rows, one of them always has no row."""

    def chosen(flag: Any, *row: Any) -> Any:
        zeros = [
            tf.zeros(one.shape, one.dtype) for one in traced(function, map(tf.TensorSpec.from_tensor, row)).outputs
        ]
        return tf.cond(flag, lambda: tf.nest.flatten(function(*row)), lambda: zeros)

    return chosen


def _vectorized(function: Function) -> Function:
    return lambda *batch: tf.vectorized_map(lambda row: function(*row), batch, fallback_to_while_loop=False)


def _allowed(proof: BatchProperties) -> set[str]:
    """The kinds of differences that a proof permits."""
    allowed = {"denormal"}
    if proof.zero_signs:
        allowed.add("zero")
    return allowed | ({"zero", "bits"} if proof.inexact else set())


@pytest.mark.exhaustive
def test_every_proven_converter_has_a_case_that_uses_it() -> None:
    used = {op.type for case in cases() for op in needed_ops(traced(case.function, case.specs).graph)}
    assert PROVEN_OPS - {"NoOp"} <= used


@pytest.mark.exhaustive
def test_every_converter_proven_for_no_rows_has_a_case_in_a_branch() -> None:
    used = [{op.type for op in needed_ops(traced(case.function, case.specs).graph)} for case in cases()]
    assert PROVEN_FOR_NO_ROWS - {"NoOp"} <= {op for ops in used if ops <= PROVEN_FOR_NO_ROWS for op in ops}
    assert PROVEN_FOR_NO_ROWS <= PROVEN_OPS


@pytest.mark.parametrize("function", [
    lambda x: tf.argmax(tf.nn.softmax(x), axis=-1),
    lambda x: tf.exp(x) > 0.5,
    lambda x: tf.floor(tf.math.log1p(x)),
    lambda x: tf.where(tf.reduce_sum(x, axis=-1, keepdims=True) > 1.0, x, 0.0),
])  # fmt: skip
def test_choices_by_inexact_values_are_not_proven(function: Function) -> None:
    """The next integer, or another index, is not an approximation."""
    with pytest.raises(CannotProve, match=", whose last"):
        lifted(Case("", function, (NUMBERS,)))


@pytest.mark.parametrize(("function", "inexact"), [
    (lambda x, y: x + y + tf.abs(x), ("AddV2",)),
    (lambda x, y: x + y + x, ("AddV2",)),
    (lambda x, y: x * (y * x), ()),
    (lambda x, y: x / 255.0 - 0.5, ()),
    (lambda x, y: (x - y) + (x - y), ()),
    (lambda x, y: (x - [0.1, 0.2, 0.3]) / [0.7, 0.8, 0.9] * 2.0 - 1.0, ()),
    (lambda x, y: (x - 0.3) + 1.7, ()),
    (lambda x, y: tf.add(x, 255.0) + tf.cast(tf.range(x.shape[-1]), tf.float32), ("AddV2",)),
    (lambda x, y: x + (y + x), ("AddV2",)),
    (lambda x, y: x + y[..., :1] + y, ("AddV2",)),
    (lambda x, y: (x - y) + 0.3, ("AddV2",)),
    (lambda x, y: (x * 0.3) * y, ("Mul",)),
    (lambda x, y: x * y[..., :1] * y, ("Mul",)),
    (lambda x, y: tf.add_n([x, y]), ("AddN",)),
    (lambda x, y: sum([x, y]), ()),
    (lambda x, y: x + (0.0 + y), ()),
    (lambda x, y: (x + 0.3) + 0.0, ()),
    (lambda x, y: sum([x, y[..., :1], y]), ("AddV2",)),
    (lambda x, y: 0.0 - x + y + tf.abs(x), ("AddV2",)),
    (lambda x, y: 1.0 * x * y, ("Mul",)),
    (lambda x, y: tf.complex(x, y) / tf.complex(y, x), ("RealDiv",)),
    (lambda x, y: tf.complex(x, y) * tf.complex(y, x), ()),
])  # fmt: skip
def test_sums_that_tensorflow_may_reorder_are_inexact(function: Function, inexact: tuple[str, ...]) -> None:
    assert lifted(Case("", function, (NUMBERS,) * 2))[0].inexact == inexact


def _doubled(x: Any) -> Any:
    for _ in range(200):
        x = x + x
    return x


def test_repeated_sum_is_examined_once() -> None:
    """Following each path through it separately would take 2 to the 200 steps."""
    for function in (_doubled, lambda x: x + _doubled(tf.cast(tf.range(3), tf.float32))):
        assert lifted(Case("", function, (NUMBERS,)))[0].inexact == ("AddV2",)


def test_inexact_values_may_be_returned() -> None:
    assert lifted(Case("", lambda x: (tf.exp(x), tf.exp(x) * 2.0), (NUMBERS,)))[0].inexact == ("Exp",)


def test_constant_beyond_its_type_is_left_to_run_time() -> None:
    """TensorFlow wraps it around, NumPy raises an error."""
    pixels = tf.TensorSpec([3], tf.uint8)
    assert lifted(Case("", lambda x: x + tf.cast(tf.constant(300), tf.uint8), (pixels,)))[0] == BatchProperties()
