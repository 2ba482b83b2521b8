"""What would limit training under other conditions: more cores, a faster model, more memory, more replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """One change of the conditions and the maximum rates under it, in elements of the input per second.

    Rates are bounds predicted by the cost model; None if it cannot predict one, and `why` says why.
    """

    name: str  # "as it is", "twice the cores", ...
    input_rate: float | None = None  # what the input can deliver
    training_rate: float | None = None  # steps per second (per replica) that input and model allow together
    binds: str = ""  # the limiting side: "input", "model"; "" if unknown
    node: str | None = None  # the operator that limits the input
    bound: str = ""  # how it limits it: "cores", "segment", "parallel", "storage", "consumer"
    why: str = ""
