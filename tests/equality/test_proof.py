"""What the proof of equality is made of: the functions of the changed part, and what is said of a difference."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Safety
from pipetune.equality.elements import DrawnElements, RowCounter, component_hashes
from pipetune.equality.proof import difference
from pipetune.equality.sharing import ChangedRegion, ComparedPipeline
from pipetune.pipelines import live

Dataset = tf.data.Dataset


def add(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.range(9).map(add).prefetch(2).map(add).batch(3).map(add), 2),  # elements stay behind a prefetch
        (Dataset.range(9).batch(3).map(add), 0),
    ],
)
def test_functions_of_a_region_are_those_that_take_its_elements(dataset: Any, expected: int) -> None:
    source = live.read(dataset)
    side = ComparedPipeline(source, source.pipeline)
    start = next(node.id for node in source.pipeline if node.op == "range")
    assert len(ChangedRegion(start, (side, side)).functions) == expected


@pytest.mark.parametrize(
    ("element", "rows"),
    [
        (lambda: (tf.constant(7), tf.zeros([4, 2])), 4),  # with a number from `enumerate`
        (lambda: tf.constant(1.0), 1),
        (lambda: (tf.zeros([4, 2]), tf.constant([4, 2])), 1),
    ],
)
def test_what_a_function_made_of_a_batch_is_one_row(element: Any, rows: int) -> None:
    counter = RowCounter(batched=True)
    counter(element())
    assert len(counter.rows) == rows


def test_zero_bytes_at_the_end_of_a_text_count() -> None:
    assert component_hashes(tf.constant(b"ab\0")) != component_hashes(tf.constant(b"ab"))


def test_a_part_of_a_complex_number_counts_beside_one_that_is_none() -> None:
    hashes = [component_hashes(tf.constant(complex(float("nan"), part))) for part in (1.0, 2.0, 1.0)]
    assert hashes[0] == hashes[2] != hashes[1]


def drawn(element: Any, *hashes: str) -> DrawnElements:
    return DrawnElements((hashes,), complete=True, values=(element,))


def ragged(last: float) -> Any:
    return {"rows": tf.ragged.constant([[1.0], [2.0, last]])}


@pytest.mark.parametrize(
    ("safety", "last", "expected"),
    [
        (Safety.EXACT, 4.0, "component 0, relative difference 1"),
        (Safety.APPROXIMATE, 2.0 + 1e-7, ""),
        (Safety.APPROXIMATE, 4.0, "component 0, relative difference 1"),
    ],
)
def test_tensors_of_a_ragged_one_are_compared(safety: Safety, last: float, expected: str) -> None:
    found = difference(drawn(ragged(2.0), "a", "same"), drawn(ragged(last), "b", "same"), safety)
    assert expected in found and bool(found) is bool(expected)
