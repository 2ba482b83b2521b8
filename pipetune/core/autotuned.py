"""AUTOTUNE's choices: the current value of every parameter that the runtime tunes, and when it last changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PARALLELISM = "parallelism"
BUFFER_SIZE = "buffer_size"


@dataclass(frozen=True)
class TunedValue:
    """One tunable parameter of one operator, as reported by the runtime's model.

    `parameter` is the runtime's name: "parallelism" (concurrent calls) or "buffer_size" (elements buffered ahead).
    """

    node: str  # node id in the pipeline; "" for an operator that TensorFlow added
    kernel: str  # the runtime's name of the operator: "ParallelMapV2", "MapAndBatch", "Prefetch"
    parameter: str
    value: float  # at the end of the observation
    low: float
    high: float
    tunable: bool
    first: float | None = None  # when first observed
    moved_seconds: float | None = None  # time of the last change, from the first element on; None: never


@dataclass(frozen=True)
class AutotuneReading:
    """All tuned values of one pipeline that was observed for `seconds`."""

    values: tuple[TunedValue, ...] = ()
    seconds: float = 0.0
    converged: bool = False  # parallelism did not change in the last part of the observation
    note: str = ""  # why there are no values
    kernels: Mapping[str, str] = field(default_factory=dict)  # node id -> the runtime's name of its operator

    def value(self, node: str, parameter: str) -> TunedValue | None:
        return next((one for one in self.values if (one.node, one.parameter) == (node, parameter)), None)

    @property
    def added(self) -> tuple[TunedValue, ...]:
        """Values of operators that TensorFlow added on its own."""
        return tuple(one for one in self.values if not one.node)
