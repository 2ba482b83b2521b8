"""Detects tracing or compilation inside a window, caused by a new shape such as the smaller last batch.

Tracing of `tf.function`s is counted by TensorFlow itself. XLA compiles inside the step, once per shape, and does not
report it; where a new shape is possible, a step that took many times as long as the others is assumed to have
compiled.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from pipetune.tf import private

_MANY_TIMES = 10.0
_SHORTEST_SECONDS = 0.02  # the smallest XLA program takes longer than this to compile
_NOTICEABLE = 0.02  # share of the step time below which compilation is ignored


class Watch:
    """Measures the compile time of one window, which begins when the object is constructed."""

    def __init__(self) -> None:
        self._traced_seconds = private.tracing_seconds()

    def compile_seconds(self, step_seconds: Sequence[float], *, new_shapes: bool) -> float:
        """Returns the seconds of the window spent tracing and compiling, or 0 if they are negligible.

        Args:
            step_seconds: duration of every step in the window, without its wait for input where that is known.
            new_shapes: whether a shape not seen before may have reached a step that XLA compiles.
        """
        found = private.tracing_seconds() - self._traced_seconds
        if new_shapes and len(step_seconds) > 2:
            usual = statistics.median(step_seconds)
            found = max(found, sum(one - usual for one in step_seconds if _stands_out(one, usual)))
        return found if found > _NOTICEABLE * sum(step_seconds) else 0.0


def _stands_out(seconds: float, usual: float) -> bool:
    return seconds > _SHORTEST_SECONDS and seconds > _MANY_TIMES * usual


def shapes_vary(element_spec: Any) -> bool:
    """Whether elements of this spec may have different shapes."""
    shapes = [getattr(component, "shape", None) for component in tf.nest.flatten(element_spec)]
    return any(shape is None or not shape.is_fully_defined() for shape in shapes)


def signature(element: Any) -> tuple[object, ...]:
    """The shapes of one element's dense components."""
    return tuple(
        tuple(component.shape) if isinstance(component, tf.Tensor) else type(component).__name__
        for component in tf.nest.flatten(element, expand_composites=True)
    )
