"""Races: rounds of one window of each plan, and decisions at planned looks, never in between.

In a round every arm is measured once, in an order drawn from a kept seed. Several plans tried against one base share
its window in a round. Under a random order, slow changes of the machine's speed fall on either side alike, and a ratio
of two equal plans is above one as often as below.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, OutOfBudget, RunFailed, Window, percent
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import Candidate
from pipetune.core.time_plan import Part
from pipetune.search.meter import Meter, outcome_of
from pipetune.search.statistics import (
    ACCEPT_ABOVE,
    FEWEST_PAIRS,
    FIRST_RACE,
    LOOKS,
    TOTAL_ERROR,
    USUAL_PAIRS,
    holm,
    p_value,
    rate_ratios,
    ratio_interval,
    undisturbed,
    usable_cores,
)

FUTILE = 0.1
"""A plan is given up where less than this is left for a gain that counts (one-sided): the limit below which a session
says that there is nothing to gain."""


@dataclass
class Arm:
    """One plan in rounds of windows, and what became of it."""

    plan: Plan
    unit: str  # of its windows: "input" or "training"
    name: str = ""  # what messages call it; the plan's name where empty
    earlier: tuple[float, ...] = ()  # ratios of a race that this one goes on with
    taken: list[Window] = field(default_factory=list)  # those of a round that was not completed among them
    rounds: int = 0  # that were completed
    running: bool = True
    outcome: Outcome | None = None  # None where nothing is decided
    why: str = ""
    gain: Interval | None = None
    seconds: float = 0.0  # that its windows took

    @property
    def windows(self) -> list[Window]:
        """Its windows of the rounds that were completed."""
        return self.taken[: self.rounds]

    @property
    def failure(self) -> str:
        """Why it could not be measured; empty if it could."""
        return self.why if self.outcome in (Outcome.FAILED, Outcome.REFUSED) else ""

    def ratios(self, base: Arm) -> tuple[float, ...]:
        """Its rate over that of `base`, round by round, for as long as both ran, as if nobody else had run."""
        windows, over = undisturbed(self.windows, base.windows)
        return (*self.earlier, *rate_ratios(windows, over, self.unit))

    def end(self, outcome: Outcome, why: str, gain: Interval | None = None) -> None:
        """It leaves the race."""
        self.running, self.outcome, self.why, self.gain = False, outcome, why, gain


def with_meter(meter: Meter, part: Part) -> Callable[[Arm], Window]:
    """Returns what takes the windows of arms in the time of a part of the budget."""

    def take(arm: Arm) -> Window:
        before = meter.clock.now()
        try:
            return meter.window(arm.plan, arm.unit, part=part)
        finally:
            arm.seconds += meter.clock.now() - before

    return take


def race(
    arms: Sequence[Arm],
    base: Arm | None,
    until: Callable[[int], bool] = lambda rounds: False,
    *,
    take: Callable[[Arm], Window],
    draw: random.Random,
    rounds: int,
) -> bool:
    """Takes a window of the base and of every running arm in each round, in random order.

    An arm that fails leaves with the reason, and the round goes on. The race ends when none is left beside the base.

    Args:
        arms: what is measured; their windows are filled in.
        base: what they are measured against; its failure is everybody's. None where arms are measured for themselves.
        until: the stopping rule, asked after each round with the rounds so far.
        draw: draws the order in each round.
        rounds: most of them.

    Returns:
        Whether the time was up before.

    Raises:
        RunFailed: the base failed.
    """
    for number in range(1, rounds + 1):
        order = [arm for arm in (base, *arms) if arm is not None and arm.running]
        draw.shuffle(order)
        for arm in order:
            try:
                arm.taken.append(take(arm))
            except OutOfBudget:
                return True
            except RunFailed as problem:
                if arm is base:
                    name = f"{arm.name or arm.plan.name}: " if arm.plan.rewrites else ""
                    raise RunFailed(f"{name}{problem}") from problem
                arm.end(outcome_of(problem), str(problem) or type(problem).__name__)
        for arm in order:
            arm.rounds += arm.running
        if until(number) or not any(arm.running for arm in arms):
            break
    return False


def decide(
    plans: Sequence[Plan],
    base: Plan,
    meter: Meter,
    *,
    draw: random.Random,
    unit: str,
    part: Part,
    error: float = TOTAL_ERROR,
    earlier: Sequence[float] = (),
    expects_large_gain: bool = False,
    yields: Callable[[float], bool] = lambda ratio: False,
) -> tuple[Trial, ...]:
    """Measures `plans` against `base` until a look proves one faster or gives all up, or the time of `part` is up.

    At a look (after `LOOKS` pairs) a plan is accepted when the low end of its interval is above `ACCEPT_ABOVE`, the
    error being as much of `error` as pairs were added since the last look, divided over all plans of the race by Holm.
    Where the time is up a last look spends what is left: when that is, the ratios do not say. A plan is given up where
    a gain that counts is out of sight (`FUTILE`), which can only lower the error. The first acceptance ends the race:
    plans measured beside it and not proven by then are undecided.

    Args:
        draw: draws the order in each round.
        unit: of the windows: "input" or "training".
        part: the part of the budget whose end ends the race.
        error: chance that any of these plans is accepted wrongly.
        earlier: ratios of a race that this one goes on with, of one plan; looks are taken after as many new pairs.
        expects_large_gain: whether `LARGE_GAIN` is expected of one of them: the first look is then taken earlier.
        yields: whether something else is to be measured, by the best median ratio; asked while none is nearly proven.

    Returns:
        What became of each plan, in the order given.

    Raises:
        RunFailed: the base cannot be measured.
    """
    arms, as_before = [Arm(plan, unit, earlier=tuple(earlier)) for plan in plans], Arm(base, unit)
    spent, yielded, looks = 0.0, False, (FEWEST_PAIRS if expects_large_gain else LOOKS[0], *LOOKS[1:])

    def proven() -> bool:
        return any(arm.outcome is Outcome.ACCEPTED for arm in arms)

    def is_over(rounds: int) -> bool:
        nonlocal spent, yielded
        measured = [(arm.plan, ratios) for arm in arms if arm.running and (ratios := arm.ratios(as_before))]
        plan, ratios = max(measured, key=lambda one: statistics.median(one[1]), default=(base, ()))
        ratio = statistics.median(ratios) if ratios else 1.0
        if ratios:
            meter.notify("pair", plan=plan, pairs=len(ratios), ratio=ratio)
        if rounds in looks:
            share = error * rounds / LOOKS[-1] - spent
            spent += share
            _look(arms, as_before, error=share)
        goes_on = rounds < USUAL_PAIRS or (rounds < _NEARLY_UNTIL and _nearly_proven(arms, as_before))
        yielded = not goes_on and yields(ratio)
        return proven() or yielded

    take = with_meter(meter, part)
    time_is_up = race(arms, as_before, is_over, take=take, draw=draw, rounds=LOOKS[-1])
    if time_is_up and as_before.rounds >= FEWEST_PAIRS:
        _look(arms, as_before, error=error - spent)
    trials = []
    for arm in arms:
        sample = arm.ratios(as_before)
        if arm.running:
            pairs = f"{len(sample)} pairs" if len(sample) != 1 else "1 pair"
            ended = f"after {pairs}, what needs approval was measured" if yielded else f"the time was up after {pairs}"
            why = "another plan was proven first" if proven() else ended
            arm.end(Outcome.UNDECIDED, why, ratio_interval(sample) if len(sample) >= FEWEST_PAIRS else None)
        assert arm.outcome is not None
        cores = usable_cores(arm.windows), usable_cores(as_before.windows)
        trials.append(
            Trial(arm.plan, arm.outcome, arm.why, arm.gain, "search", unit, sample, arm.seconds, usable_cores=cores)
        )
    return tuple(trials)


_NEARLY_UNTIL = LOOKS[-2]
"""Pairs after which what was nearly proven, and still is not, does not keep the time from anything else."""


def _nearly_proven(arms: Sequence[Arm], base: Arm) -> bool:
    """Whether the interval of 80 % of one of them is above what counts: more pairs will soon prove it."""
    samples = [arm.ratios(base) for arm in arms if arm.running]
    return any(ratio_interval(sample, error=0.2).low > ACCEPT_ABOVE for sample in samples)


def _look(arms: Sequence[Arm], base: Arm, *, error: float) -> None:
    """Accepts and gives up; plans that left before count as never to be accepted."""
    measured = [arm.ratios(base) for arm in arms]
    values = [p_value(sample) if arm.running else 1.0 for arm, sample in zip(arms, measured, strict=True)]
    for arm, sample, passed in zip(arms, measured, holm(values, error=error), strict=True):
        if not arm.running:
            continue
        if passed is not None:
            gain = ratio_interval(sample, error=2 * passed)
            arm.end(Outcome.ACCEPTED, f"proven faster after {len(sample)} pairs", gain)
        elif ratio_interval(sample, error=2 * FUTILE).high < ACCEPT_ABOVE:
            why = f"no gain of {percent(ACCEPT_ABOVE - 1)} to be had, after {len(sample)} pairs"
            arm.end(Outcome.REJECTED, why, ratio_interval(sample))
        elif arm.rounds >= LOOKS[-1]:  # of this session
            why = f"not proven {percent(ACCEPT_ABOVE - 1)} faster after {len(sample)} pairs"
            arm.end(Outcome.UNDECIDED, why, ratio_interval(sample))


@dataclass(frozen=True)
class EarlierRace:
    """A race of an earlier session that was not decided.

    The first race of a session spends its part of the error, `FIRST_RACE`. What is left is for all sessions that go on
    with it: each spends half of what those before it have left, so that all races together hold the error.
    """

    keys: frozenset[str]  # of the plan's rewrites
    unit: str
    ratios: tuple[float, ...]  # of all pairs so far; empty where there was no time for one
    sessions: int  # that went on with it, this one counted

    @property
    def error(self) -> float:
        """What the races of this session may spend."""
        return float(TOTAL_ERROR * (1 - FIRST_RACE) * 0.5 ** (self.sessions - 1))


def earlier_race(candidate: Candidate | None, trials: Sequence[Trial], *, resumptions: int) -> EarlierRace | None:
    """Returns the race to go on with; None if there is no candidate.

    Args:
        candidate: what most probably gains of the earlier session.
        trials: of that session.
        resumptions: how often a session went on with it before this one.
    """
    if candidate is None:
        return None
    usable = (Outcome.UNDECIDED, Outcome.ACCEPTED)
    raced = [one for one in trials if one.kind == "search" and one.plan.key == candidate.plan.key and one.ratios]
    longest = max((one for one in raced if one.outcome in usable), key=lambda one: len(one.ratios), default=None)
    return EarlierRace(
        frozenset(one.key for one in candidate.plan.rewrites),
        longest.unit if longest else candidate.unit,
        longest.ratios if longest else (),
        resumptions + 1,
    )
