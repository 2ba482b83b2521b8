"""Describes how the elements of two runs differ, with the strictness of the safety class."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.edits import Safety
from pipetune.tf.equality.elements import Drawn

TOLERANCE = 1e-5
"""Relative tolerance of APPROXIMATE; absolute for values whose magnitude is below 1."""


def difference(original: Drawn, candidate: Drawn, safety: Safety, *, spare_rows: int = 0) -> str:
    """The first difference between two runs, or '' if they agree as far as both were drawn.

    Args:
        safety: under REORDERS elements are compared as multisets; under APPROXIMATE within `TOLERANCE`.
        spare_rows: under REORDERS, how many rows may be replaced by others: in another order, other rows fall into
            the last batches that `drop_remainder` drops.
    """
    if safety == Safety.REORDERS:
        return _other_elements(original, candidate, spare_rows)
    common = min(len(original.hashes), len(candidate.hashes))
    for position in range(common):
        if original.hashes[position] != candidate.hashes[position]:
            apart = _apart(original, candidate, position, safety)
            if apart:
                return f"element {position} differs: {apart}"
    return _ends(original, candidate)


def _ends(original: Drawn, candidate: Drawn) -> str:
    one, other = len(original.hashes), len(candidate.hashes)
    if candidate.complete and other < one:
        return f"it ends after {other} elements, the original has {one}{_or_more(original)}"
    if original.complete and one < other:
        return f"it has {other}{_or_more(candidate)} elements, the original ends after {one}"
    return ""


def _other_elements(original: Drawn, candidate: Drawn, spare_rows: int) -> str:
    before, after = Counter(original.hashes), Counter(candidate.hashes)
    missing, added = (before - after).total(), (after - before).total()
    if missing <= spare_rows and added == missing:
        return ""
    return f"of {before.total()} elements {missing} are missing and {added} are new"


def _apart(original: Drawn, candidate: Drawn, position: int, safety: Safety) -> str:
    one, other = original.hashes[position], candidate.hashes[position]
    if raises(one) or raises(other):
        return f"it {other[0] if raises(other) else 'gives one'}, the original {one[0] if raises(one) else 'gives one'}"
    if len(one) != len(other):
        return f"{len(other)} components instead of {len(one)}"
    index = next(number for number in range(len(one)) if one[number] != other[number])
    if not original.values or not candidate.values:
        return f"component {index}"
    pair = [tf.nest.flatten(run.values[position], expand_composites=True) for run in (original, candidate)]
    distances = [_distance(a, b) for a, b in zip(*pair, strict=True) if a is not None]
    if safety == Safety.APPROXIMATE and all(distance <= TOLERANCE for distance in distances):
        return ""
    return f"component {index}, relative difference {max(distances):.3g}"


def _distance(one: Any, other: Any) -> float:
    """Largest relative difference of two tensors; infinite if dtypes, shapes, non-finite or discrete values differ."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return float("inf")
    a, b = np.asarray(one.numpy()), np.asarray(other.numpy())
    if not (one.dtype.is_floating or one.dtype.is_complex):
        return 0.0 if np.array_equal(a, b) else float("inf")
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)) or a.size == 0:
        return 0.0 if a.size == 0 else float("inf")
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = a[finite], b[finite]
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1.0))) if a.size else 0.0


def raises(hashes: tuple[str, ...]) -> bool:
    """Whether these hashes stand for an exception that was raised in place of an element."""
    return len(hashes) == 1 and hashes[0].startswith("raises ")


def _or_more(run: Drawn) -> str:
    return "" if run.complete else " or more"
