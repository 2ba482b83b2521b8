"""The state of a search: what it works with, and what it knows so far. Its steps are functions of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Interval, Rate, percent
from pipetune.core.profile import LEAST_POSSIBLE_GAIN
from pipetune.core.results import Outcome, Prediction, RejectionReason, Trial
from pipetune.core.session import Candidate
from pipetune.core.settings import Settings
from pipetune.core.time_plan import Clock, Part, SystemClock, TimePlan
from pipetune.search.composing import Composer, Conflict, structural
from pipetune.search.evidence import WORTH, CpuShare, Expected, Gains, MostGain
from pipetune.search.meter import EarlierWindows, Meter
from pipetune.search.race import decide
from pipetune.search.runner import DEFAULTS, EqualityGate, Notify, Runner, silent
from pipetune.search.statistics import (
    ACCEPT_ABOVE,
    FAR_LESS,
    FIRST_RACE,
    GAIN_WITH_CONSENT,
    LARGE_GAIN,
    TOTAL_ERROR,
    USUAL_PAIRS,
)

HEADROOM = 1.5
"""How many times as fast as the step the input must be where another processor takes the step; by judgement: while the
script trains, the host launches the steps, too."""

REASONS: Mapping[Outcome, RejectionReason] = {
    Outcome.FAILED: RejectionReason.FAILED,
    Outcome.REFUSED: RejectionReason.REFUSED,
    Outcome.SKIPPED: RejectionReason.PREDICTED_SLOWER,
    Outcome.REJECTED: RejectionReason.NOT_FASTER,
    Outcome.UNDECIDED: RejectionReason.UNDECIDED,
    Outcome.ACCEPTED: RejectionReason.ADDS_NOTHING,  # faster than what the plan was then, and not in what it is now
}

NOT_PROMISING = f"not predicted to gain {percent(ACCEPT_ABOVE - 1)}, and training waits little; it was not run"


@dataclass(eq=False)
class SearchState:
    """What one search works with, and what it knows so far."""

    candidates: Sequence[Rewrite]
    """Legal rewrites, in the order in which their edits may be applied together; where nothing is measured the earlier
    one stands for its group."""
    runner: Runner  # takes the windows
    _: KW_ONLY
    baselines: Mapping[str, Plan]  # "off", "defaults", "autotune"; "defaults" must be there
    settings: Settings  # the consent given, the budget, the seed
    randomness_fixed: bool  # whether the script fixes randomness anywhere (then STATISTICAL needs consent)
    budget: TimePlan  # of the whole analysis
    memory_limit_bytes: float | None = None  # plans the runner predicts above it are refused; None for no limit
    clock: Clock = field(default_factory=SystemClock)
    notify: Notify = silent  # hears what is tried and found
    expected: Expected = lambda plan: Prediction()
    """What the model predicts of a plan; what is expected to gain most is tried first, and what it expects to lose
    beyond doubt is not run."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By keys of plans that ended a worker before, the reason; they fail without being run."""
    conflict: Conflict = lambda rewrites: ""
    proven_alone: Collection[str] = ()  # keys of rewrites that enter a plan only where they are proven by themselves
    only_promising: bool = False
    """Whether only rewrites that the model expects to gain are tried: little can be gained."""
    most_gain: MostGain = lambda prediction: None
    cpu_share: CpuShare = lambda prediction: None
    wait_share: Interval | None = None  # of a step, that training waits, measured before; None where that is unknown
    bound_seconds: float | None = None
    """Of a training step on one repeated batch, the least that it can take; None where unknown."""
    expressible: Callable[[Rewrite], bool] = lambda rewrite: True
    """Whether the source can express a rewrite; one that it can is tried first where it gains enough."""
    is_above_cache: Callable[[Rewrite, Plan], bool] = lambda rewrite, plan: False
    """Whether a rewrite changes only what a cache of a plan stores."""
    stores_no_more_work: Callable[[Rewrite, Plan], bool] = lambda rewrite, plan: False
    """Whether the caches of a rewrite store no work that those of a plan do not store, as behind a shuffle."""
    earlier: EarlierWindows | None = None

    def __post_init__(self) -> None:
        settings, fixed = self.settings, self.randomness_fixed
        self.base = self.baselines[DEFAULTS]
        self.draw = random.Random(settings.seed)
        self.composer = Composer(self.candidates, conflict=self.conflict)
        self.gate = EqualityGate(self.runner, self.clock, notify=self.notify)
        self.meter = Meter(
            self.runner,
            self.clock,
            budget=self.budget,
            window_seconds=min(max(settings.budget_seconds / 200, 0.3), 1.0),
            memory_limit_bytes=self.memory_limit_bytes,
            failed=self.failed,
            conflict=self.composer.conflict,
            notify=self.notify,
        )
        self.gains = Gains(
            self.expected, self.base, self.composer, self.runner.shares_processors, cpu_share=self.cpu_share
        )
        self._expressible: dict[str, bool] = {}  # by rewrite key

        # What decides.
        self.unit = "input"  # "input" or "training": of the windows
        self.races = 0  # so far
        self.error = TOTAL_ERROR  # not spent yet

        # What is known.
        self.trials: list[Trial] = []
        self.rates: dict[str, Rate] = {}  # by baseline
        self.notes: list[str] = []
        self.added: dict[str, Interval] = {}  # by rewrite key: what each added to the plan that it was tried with
        self.left_out: dict[str, tuple[RejectionReason, str]] = {}  # by key, what is not tried, failed or was refused
        self.left_inside: dict[str, tuple[RejectionReason, str]] = {}  # by key, why it did not enter the plan inside
        self.raced: dict[str, Trial | None] = {}  # by key; None where the race was not begun
        self.autotune_raced = False  # whether AUTOTUNE everywhere had its race, or was ruled out
        self.chosen: Plan | None = None
        self.accepted: Trial | None = None  # by which a plan was proven first
        self.candidate: Candidate | None = None  # where nothing is proven: what is most probably faster
        self.failure = ""  # why something could not be run, which has ended the search

        # Which rewrites are in play.
        permitted = [one for one in self.candidates if not settings.missing(one.consents, randomness_fixed=fixed)]
        self.asking = [one for one in self.candidates if one not in permitted]  # measured as offers only
        self.inside = [one for one in permitted if one.only_training]  # to be measured inside training steps only
        self.granted = [one for one in permitted if not one.only_training]
        self.usable = structural(self.granted)  # one number of each: what leaves it to AUTOTUNE where there is that
        if self.only_promising:
            known = {one.key: self.gains.added(one).predicted for one in self.usable}
            idle = sorted(key for key, predicted in known.items() if predicted is None or predicted < WORTH)
            self.left_out = dict.fromkeys(idle, (RejectionReason.NOT_EXPECTED, NOT_PROMISING))
            self.usable = self.left()

    @property
    def before(self) -> Plan:
        """The best plan so far, or the pipeline as written: what rewrites are added to."""
        return self.chosen or self.base

    @property
    def part(self) -> Part:
        """Whose time races may use: without a proven plan there is nothing to ablate."""
        return Part.SEARCH if self.chosen or (self.inside and self.runner.trains) else Part.EXTENSION

    def left(self) -> list[Rewrite]:
        """Returns the rewrites in play that neither failed nor were refused."""
        return [one for one in self.usable if one.key not in self.left_out]

    def can_express(self, rewrite: Rewrite) -> bool:
        """Whether the script's source can express a rewrite; to find out takes seconds where its file is long."""
        if rewrite.key not in self._expressible:
            self._expressible[rewrite.key] = self.expressible(rewrite)
        return self._expressible[rewrite.key]

    def stays_out_of_patch(self, rewrite: Rewrite, rewrites: Sequence[Rewrite]) -> bool:
        """Whether the source can express all of `rewrites`, but not `rewrite`: together they would be half a patch."""
        return bool(rewrites) and all(map(self.can_express, rewrites)) and not self.can_express(rewrite)

    def seconds(self, arms: int, *, rounds: int) -> float:
        """Returns the seconds that `rounds` rounds of `arms` windows are expected to take."""
        return arms * rounds * self.meter.cost(self.unit)

    def affords_race(
        self, plans: int, part: Part = Part.SEARCH, *, rounds: int = USUAL_PAIRS, after: float = 0.0
    ) -> bool:
        """Whether `part` has time for so many rounds of this many plans and the base, `after` so many seconds."""
        return self.budget.affords(part, after + self.seconds(plans + 1, rounds=rounds))

    def race(self, plans: Sequence[Plan], part: Part, *, earlier: Sequence[float] = ()) -> tuple[Trial, ...]:
        """Decides on plans against the best so far, with this race's share of the session's error (`race.decide`).

        Args:
            part: the part of the budget whose end ends the race.
            earlier: ratios of a race of an earlier session that this one goes on with.

        Raises:
            RunFailed: the best so far cannot be measured.
        """
        share = self.error * (0.5 if self.races else FIRST_RACE)
        self.races += 1
        self.error -= share
        trials = decide(
            plans,
            self.before,
            self.meter,
            draw=self.draw,
            unit=self.unit,
            part=part,
            error=share,
            earlier=earlier,
            expects_large_gain=any(self.expected_gain(plan) >= math.log(LARGE_GAIN) for plan in plans),
            yields=self._is_time_for_offers,
        )
        if self.accepted is not None:  # what they were compared with may use more cores than the script as it is
            original = self.accepted.usable_cores[1] if self.accepted.unit == self.unit else None
            trials = tuple(replace(trial, usable_cores=(trial.usable_cores[0], original)) for trial in trials)
        self.note(*trials)
        for trial in trials:
            if trial.ratios:
                self.gains.pairs[trial.plan.key, self.before.key] = trial.ratios
            if trial.outcome in (Outcome.FAILED, Outcome.REFUSED) and len(trial.plan.rewrites) == 1:
                self.left_out[trial.plan.rewrites[0].key] = REASONS[trial.outcome], trial.why
        return trials

    def _is_time_for_offers(self, ratio: float) -> bool:
        """Whether the search's own time is over, and far more than `ratio` is expected of what needs consent."""
        return self.chosen is None and not self.budget.left(Part.SEARCH) and self.offers_far_more(math.log(ratio))

    def offers_far_more(self, gain: float) -> bool:
        """Whether far more is expected of what needs consent than a gain, the log of a ratio."""
        requested = (self.expected_gain(self.composer.added(self.before, one)) for one in structural(self.asking))
        most = max(requested, default=0.0)
        return most >= math.log(GAIN_WITH_CONSENT) and gain < FAR_LESS * most

    def expected_gain(self, plan: Plan) -> float:
        """Returns the log of what a plan gains over the best so far, if anything."""
        return (self.gains.of(plan, self.chosen) if self.chosen else self.gains.attainable(plan)).expected

    def note(self, *trials: Trial) -> None:
        """Keeps finished trials, and tells the listener of them."""
        self.trials += trials
        for trial in trials:
            self.notify("trial", trial=trial)

    def at_bound(self, plan: Plan | None) -> bool:
        """Whether training hardly waits with this plan, so that nothing could add `LEAST_POSSIBLE_GAIN` to it.

        A step takes hardly longer than on one repeated batch; where another processor takes the step, the input alone
        is faster than that by `HEADROOM`.
        """
        if plan is None or self.bound_seconds is None:
            return False
        seconds = self.meter.median_step(plan, self.unit)
        if self.unit == "training":
            return seconds is not None and seconds < LEAST_POSSIBLE_GAIN * self.bound_seconds
        apart = not self.runner.shares_processors
        return apart and seconds is not None and HEADROOM * seconds < self.bound_seconds
