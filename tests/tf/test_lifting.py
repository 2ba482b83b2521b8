"""Functions on batches against functions of single elements: what is proven to be the same is, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.tf import private
from pipetune.tf.pipelines import lifting
from pipetune.tf.pipelines.lifting import Lifted
from pipetune.tf.pipelines.normal_forms import IDENTITIES
from pipetune.tf.pipelines.terms import Unclear, needed_ops
from pipetune.tf.pipelines.vectorized import PROVEN
from tests.tf.op_cases import Case, cases, differences, elements, spec

Function = Callable[..., Any]


def traced(function: Function, specs: Sequence[Any], *, rows: int | None | str = "") -> Any:
    """The concrete function of flat tensors; of batches of so many rows where `rows` says so."""
    if rows != "":
        specs = [tf.TensorSpec([rows, *one.shape], one.dtype) for one in specs]
    return private.data_function(lambda *values: tf.nest.flatten(function(*values)), specs)


def lifted(case: Case, batched: Function | None = None, *, rows: int | None = None) -> tuple[Lifted, Any, Any]:
    """What is proven of a function that is called on batches as it is, and both traced functions.

    Raises:
        Unclear: nothing is.
    """
    single = traced(case.function, case.specs)
    try:
        many = traced(batched or case.function, case.specs, rows=rows)
    except Exception as error:
        raise Unclear(f"cannot be called on batches ({type(error).__name__})") from error
    for one, other in zip(single.outputs, many.outputs, strict=True):
        if other.shape.rank is not None and other.shape.as_list() != [rows, *one.shape.as_list()]:
            raise Unclear("gives other shapes on batches")
    return lifting.lift(single, many), single, many


# -- each rule and each converter, on generated elements


def _one_of_each(found: Sequence[tuple[Case, bool]]) -> list[Any]:
    """A case for each name and number of axes; the others go the same way (`make test-exhaustive`)."""
    seen = set()
    chosen = []
    for number, (case, _) in enumerate(found):
        kind = (case.name, tuple(len(one.shape) for one in case.specs))
        marks = [pytest.mark.exhaustive] if kind in seen else []
        seen.add(kind)
        chosen.append(pytest.param(case, id=f"{number}-{case.name}", marks=marks))
    return chosen


ALL = _one_of_each([(case, True) for case in cases()])


@pytest.mark.parametrize("case", ALL)
def test_what_is_proven_on_batches_is_so(case: Case) -> None:
    for rows in (None, 7):
        try:
            proof, single, many = lifted(case, rows=rows)
        except Unclear:
            continue
        sizes = (1, 2, 3, 7, 16) if rows is None else (rows,)
        assert differences(single, many, elements(case.specs), sizes=sizes) <= _allowed(proof)


def _allowed(proof: Lifted) -> set[str]:
    """The kinds of differences that the class of a proof allows."""
    allowed = {"zero"} if proof.zero_signs else set()
    if set(proof.inexact) - {"Cast"}:
        allowed |= {"zero", "bits"}
    return allowed | ({"cast", "zero", "bits"} if "Cast" in proof.inexact else set())
