"""What is said of two elements that differ."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Safety
from pipetune.equality.elements import DrawnElements
from pipetune.equality.proof import difference


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
