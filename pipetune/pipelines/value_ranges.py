"""Bounds the values that a function computes, by interval arithmetic over its terms.

This answers one question: whether a cast to a small integer type may receive a value that does not fit. TensorFlow
wraps such a value in scalar code and saturates it in a SIMD packet, so a batch may get a different value than its
elements.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipetune.pipelines.terms import Term


@dataclass(frozen=True)
class Interval:
    """Bounds of values, both included; `nan`: there may be NaNs as well."""

    low: float
    high: float
    nan: bool = False

    @property
    def bounded(self) -> bool:
        """Whether both bounds are finite; there may be NaNs all the same."""
        return math.isfinite(self.low) and math.isfinite(self.high)


UNBOUNDED = Interval(-math.inf, math.inf, nan=True)

_CASTS_DIFFER = frozenset({"int8", "uint8", "int16", "uint16", "uint32"})
"""Types to which single values and SIMD packets that do not fit are cast differently (found by casting both)."""

_NAN_AGREES = frozenset({"uint8", "uint16"})
"""Of these, the types for which both casts agree on NaN."""


class IntervalAnalysis:
    """The intervals of terms, each computed once."""

    def __init__(self) -> None:
        self._known: dict[str, Interval] = {}

    def cast_fits(self, cast: Term) -> bool:
        """Whether every value of a `Cast` fits its target type, or is cast the same alone and in SIMD packets."""
        source, target = cast.inputs[0].dtype, cast.dtype
        if not source.is_floating or target.name not in _CASTS_DIFFER:
            return True
        of = self.interval(cast.inputs[0])
        limits = np.iinfo(target.as_numpy_dtype)
        fits = limits.min - 1 < of.low and of.high < limits.max + 1
        return fits and (not of.nan or target.name in _NAN_AGREES)

    def interval(self, term: Term) -> Interval:
        """Returns the interval of all values in a tensor."""
        waiting = [term]
        while waiting:  # inputs first, without recursion: functions may be deep
            last = waiting[-1]
            missing = [one for one in last.inputs if one.key not in self._known]
            if missing:
                waiting += missing
            elif waiting.pop().key not in self._known:
                self._known[last.key] = _interval(last, [self._known[one.key] for one in last.inputs])
        return self._known[term.key]


def _interval(term: Term, of: list[Interval]) -> Interval:
    dtype = term.dtype
    if dtype is None or not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        return UNBOUNDED
    limits = _limits(dtype)
    if term.value is not None and term.op == "Constant":
        return _of_array(term.value)
    rule = _RULES.get(term.op)
    found = _cast(dtype, *of) if term.op == "Cast" else rule(*of) if rule is not None else limits
    if dtype.is_integer or dtype.is_bool:  # overflow wraps around: any value is possible
        return found if limits.low <= found.low and found.high <= limits.high and not found.nan else limits
    return _widen_by_rounding(found, dtype)


def _limits(dtype: Any) -> Interval:
    if dtype.is_bool:
        return Interval(0, 1)
    if dtype.is_integer:
        limits = np.iinfo(dtype.as_numpy_dtype)
        return Interval(float(limits.min), float(limits.max))
    return UNBOUNDED


def _of_array(values: np.ndarray) -> Interval:
    if values.size == 0 or values.dtype.kind not in "biuf":
        return Interval(0, 0) if values.size == 0 else UNBOUNDED
    numbers = values.astype(np.float64)
    nan = bool(np.isnan(numbers).any())
    if nan and np.isnan(numbers).all():
        return UNBOUNDED
    return Interval(float(np.nanmin(numbers)), float(np.nanmax(numbers)), nan)


def _widen_by_rounding(of: Interval, dtype: Any) -> Interval:
    """Widens an interval by the rounding of a floating-point type; bounds beyond its range become infinite."""
    slack = 4 * _EPSILON.get(dtype.name, 2.0**-7)
    greatest = _GREATEST.get(dtype.name, math.inf)
    low, high = of.low - slack * abs(of.low), of.high + slack * abs(of.high)
    if math.isnan(low) or math.isnan(high):
        return UNBOUNDED
    return Interval(-math.inf if low < -greatest else low, math.inf if high > greatest else high, of.nan)


_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_GREATEST = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38, "float64": 1.7e308}


def _union(*of: Interval) -> Interval:
    return Interval(min(one.low for one in of), max(one.high for one in of), any(one.nan for one in of))


def _corners(compute: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    """Returns the range over two bounded intervals of a function that has its extremes at their corners."""
    if not (a.bounded and b.bounded):
        return UNBOUNDED
    values = [compute(one, other) for one in (a.low, a.high) for other in (b.low, b.high)]
    return Interval(min(values), max(values), a.nan or b.nan)


def _sum(*of: Interval) -> Interval:
    low, high = sum(one.low for one in of), sum(one.high for one in of)
    mixed = any(one.low == -math.inf for one in of) and any(one.high == math.inf for one in of)
    return UNBOUNDED if mixed or math.isnan(low + high) else Interval(low, high, any(one.nan for one in of))


def _negated(a: Interval) -> Interval:
    return Interval(-a.high, -a.low, a.nan)


def _quotient(a: Interval, b: Interval) -> Interval:
    return UNBOUNDED if b.low <= 0 <= b.high else _corners(operator.truediv, a, b)


def _remainder(a: Interval, b: Interval) -> Interval:
    return Interval(0, b.high, a.nan or not a.bounded) if b.low > 0 and b.bounded else UNBOUNDED


def _absolute(a: Interval) -> Interval:
    least = 0.0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Interval(least, max(abs(a.low), abs(a.high)), a.nan)


def _rounded(compute: Callable[[float], int]) -> Callable[..., Interval]:
    def bound(value: float) -> float:
        return float(compute(value)) if math.isfinite(value) else value

    return lambda a: Interval(bound(a.low), bound(a.high), a.nan)


def _constant_bounds(low: float, high: float) -> Callable[..., Interval]:
    return lambda a, *_others: Interval(low, high, a.nan)


def _weighted_mean(a: Interval, *_others: Interval) -> Interval:
    """Weighted means stay between the least and the greatest value; an infinity among the values may give a NaN."""
    return a if a.bounded else UNBOUNDED


def _cast(dtype: Any, a: Interval) -> Interval:
    if not dtype.is_integer:
        return Interval(0, 1) if dtype.is_bool else a
    if a.nan or not a.bounded:
        return UNBOUNDED
    return Interval(math.trunc(a.low), math.trunc(a.high))


_KEEP_VALUES = frozenset(
    {"BroadcastTo", "GatherNd", "GatherV2", "Max", "Min", "MirrorPad", "Reshape", "ResizeNearestNeighbor", "ReverseV2",
     "Roll", "Rows", "Slice", "Split", "SplitV", "StridedSlice", "Tile", "Transpose", "Unpack"}
)  # fmt: skip
"""Ops that return some of the values of their first input."""

_RULES: Mapping[str, Callable[..., Interval]] = {
    **dict.fromkeys(_KEEP_VALUES, lambda a, *_others: a),
    **dict.fromkeys(("AvgPool", "Mean", "ResizeArea", "ResizeBilinear"), _weighted_mean),
    **dict.fromkeys(("ConcatV2", "Fill", "Pack", "PadV2"), _union),
    **dict.fromkeys(("Add", "AddN", "AddV2"), _sum),
    **dict.fromkeys(("Div", "RealDiv"), _quotient),
    **dict.fromkeys(("Rint", "Round"), _rounded(round)),
    **dict.fromkeys(("Sigmoid", "Softmax"), _constant_bounds(0, 1)),
    **dict.fromkeys(("Sign", "Tanh"), _constant_bounds(-1, 1)),
    "Abs": _absolute,
    "ClipByValue": lambda a, least, greatest: Interval(least.low, greatest.high, a.nan),
    "Ceil": _rounded(math.ceil),
    "Floor": _rounded(math.floor),
    "FloorMod": _remainder,
    "Maximum": lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high), a.nan or b.nan),
    "Minimum": lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high), a.nan or b.nan),
    "Mul": lambda a, b: _corners(operator.mul, a, b),
    "Neg": _negated,
    "OneHot": lambda _indices, _depth, on, off: _union(on, off),
    "OnesLike": _constant_bounds(1, 1),
    "Pad": lambda a, *_paddings: _union(a, Interval(0, 0)),
    "Relu": lambda a: Interval(max(a.low, 0), max(a.high, 0), a.nan),
    "Relu6": _constant_bounds(0, 6),
    "SelectV2": lambda _condition, a, b: _union(a, b),
    "Square": lambda a: _corners(operator.mul, _absolute(a), _absolute(a)),
    "Sub": lambda a, b: _sum(a, _negated(b)),
    "ZerosLike": _constant_bounds(0, 0),
}
