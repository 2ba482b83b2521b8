"""What the search found, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipetune.core.edits import Plan
from pipetune.core.results import Comparison, Interval, PredictedRate, Rate, Trial
from pipetune.core.session import Candidate, OptionalRewrite, Rejection


@dataclass(frozen=True)
class SearchResult:
    """The chosen plan, if any was proven, and everything tried on the way.

    `chosen` is proven faster than the pipeline as written and proven equal, but its numbers took part in
    choosing it: only `confirm` gives numbers to show.
    """

    chosen: Plan | None
    candidate: Candidate | None = None  # where nothing is proven: what is most probably faster
    why: str = ""  # one sentence: how the search ended
    trials: tuple[Trial, ...] = ()
    gain: Interval | None = None  # of the plan over defaults, as it was accepted
    gains: dict[str, Interval] = field(default_factory=dict)  # per rewrite key, by ablation
    offers: tuple[OptionalRewrite, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    rates: dict[str, Rate] = field(default_factory=dict)  # per baseline
    comparison: Comparison | None = None  # of the chosen plan
    unit: str = "input"  # what decided: "input" or "training"
    window_seconds: float = 0.0  # of an input window, warm-up not counted
    warmup_seconds: float = 0.0
    steps: int = 0  # of a training window; 0 where there was none
    window_costs: dict[str, float] = field(default_factory=dict)  # seconds of a whole window, per unit
    budget_too_small: bool = False  # a decision was not reached for want of time
    restless: tuple[str, ...] = ()  # keys of plans whose AUTOTUNE numbers never stood still
    notes: tuple[str, ...] = ()
    predictions: tuple[PredictedRate, ...] = ()  # of the baselines and every plan tried
    seconds_to_most: float | None = None  # until a plan with 95 % of the final rate was first measured
