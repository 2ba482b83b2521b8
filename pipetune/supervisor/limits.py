"""How long the supervisor waits for a sign of life before it calls the worker hung."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_PHASES = {
    "capture": 1800.0,  # the user's script builds its model and data, and may download first
    "profile": 300.0,
    "trials": 300.0,
    "confirmation": 300.0,
    "verification": 1800.0,  # the script again
    "windows": 300.0,  # one at a time
}


@dataclass(frozen=True)
class Limits:
    """Seconds without a message, by the phase the worker last named; and seconds to end in."""

    start: float = 180.0  # until the first message: Python starts and imports TensorFlow
    phases: Mapping[str, float] = field(default_factory=lambda: dict(_PHASES))
    other: float = 300.0
    ending: float = 60.0  # from the worker's last word until it must be gone
    grace: float = 10.0  # from the request to stop until the kill
    meeting: float = 60.0  # for the commands of a cluster that exists to find each other

    def silence(self, phase: str) -> float:
        """Seconds the worker may be silent in `phase`; "" is before its first message."""
        return self.phases.get(phase, self.other) if phase else self.start

    @classmethod
    def none(cls) -> Limits:
        """No limits: the script runs for itself."""
        return cls(start=math.inf, phases={}, other=math.inf, ending=math.inf, grace=math.inf)

    @classmethod
    def chosen(cls, *, budget_seconds: float, script_seconds: float | None = None) -> Limits:
        """The limits of a run: no trial takes longer than the budget; the script as long as the user says."""
        phases = {name: max(_PHASES[name], budget_seconds) for name in ("trials", "confirmation", "windows")}
        start = cls.start
        if script_seconds is not None:
            phases |= {"capture": script_seconds, "verification": script_seconds}
            start += script_seconds
        return cls(start=start, phases={**_PHASES, **phases})
