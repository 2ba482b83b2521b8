"""How long the supervisor waits for a message before it considers the worker hung."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_PHASES = {
    "capture": 1800.0,  # the user's script builds its model and data, and may download first
    "profile": 300.0,
    "trials": 300.0,
    "confirmation": 300.0,
    "verification": 1800.0,  # runs the script again
    "windows": 300.0,  # applies to each window separately
}


@dataclass(frozen=True)
class Limits:
    """Timeouts in seconds: without a message, by the phase the worker last reported, and for ending."""

    start: float = 180.0  # until the first message: Python starts and imports TensorFlow
    phases: Mapping[str, float] = field(default_factory=lambda: dict(_PHASES))
    other: float = 300.0
    ending: float = 60.0  # from `Finished` until the process must have exited
    grace: float = 10.0  # from the request to stop until the kill
    meeting: float = 60.0  # for the commands of an existing cluster to connect

    def silence(self, phase: str) -> float:
        """Seconds without a message allowed in `phase`; "" means before the first message."""
        return self.phases.get(phase, self.other) if phase else self.start

    @classmethod
    def none(cls) -> Limits:
        """No limits: for a script that runs unsupervised."""
        return cls(start=math.inf, phases={}, other=math.inf, ending=math.inf, grace=math.inf)

    @classmethod
    def chosen(cls, *, budget_seconds: float, script_seconds: float | None = None) -> Limits:
        """The limits of an analysis.

        Args:
            budget_seconds: of the trials; no single trial takes longer.
            script_seconds: how long the script may run to its first training step; None for the default.
        """
        phases = {name: max(_PHASES[name], budget_seconds) for name in ("trials", "confirmation", "windows")}
        start = cls.start
        if script_seconds is not None:
            phases |= {"capture": script_seconds, "verification": script_seconds}
            start += script_seconds
        return cls(start=start, phases={**_PHASES, **phases})
