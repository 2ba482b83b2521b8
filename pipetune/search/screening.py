"""Screening: a first look at candidates by short windows and CPU seconds per element. Never a result."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Outcome, OutOfBudget, RunFailed, Trial, Window
from pipetune.search.budget import Part
from pipetune.search.composing import Composer
from pipetune.search.meter import Meter, Refused, rate_of
from pipetune.search.runner import Notify
from pipetune.search.statistics import ACCEPT_ABOVE

PROMISE = ACCEPT_ABOVE
"""A rewrite joins the plan being built when windows show this much, twice: one too many, the ablation drops."""

HARM = 0.85
"""A rewrite that alone brings the rate below this share is not tried together with others."""

BASE_EVERY = 4
"""Candidates between two windows of the base: the machine's speed drifts."""


@dataclass(frozen=True)
class Screened:
    """A candidate alone, over the base: 1.2 is 20 % better. CPU counts where the model needs the same
    cores.
    """

    rewrite: Rewrite
    rate: float
    cpu: float
    shares_processors: bool

    @property
    def promise(self) -> float:
        return max(self.rate, self.cpu) if self.shares_processors else self.rate

    @property
    def harmful(self) -> bool:
        return self.promise < HARM


def _promise(one: Screened) -> float:
    return one.promise


def _over(rewrite: Rewrite, window: Window, base: Sequence[Window], *, shares_processors: bool) -> Screened:
    rate = window.examples_per_second / statistics.fmean(one.examples_per_second for one in base)
    cpu_of_base = statistics.fmean(one.cpu_seconds_per_example for one in base)
    cpu = max(cpu_of_base, 1e-12) / max(window.cpu_seconds_per_example, 1e-12)
    return Screened(rewrite, rate, cpu, shares_processors)


class Screener:
    """Screens candidates one by one, then builds a plan from those that promise something, in its own
    context.

    Args:
        enough: says, before each window, whether there is time for it beside what must be kept.
    """

    def __init__(self, base: Plan, meter: Meter, *, notify: Notify, enough: Callable[[], bool]) -> None:
        self._base = base
        self._meter = meter
        self._notify = notify
        self._enough = enough
        self.trials: list[Trial] = []

    def alone(self, candidates: Sequence[Rewrite], composer: Composer) -> list[Screened]:
        """Each candidate alone, for as long as there is time; failed and refused ones are in `trials`
        only.
        """
        shares = self._meter.runner.shares_processors
        found: list[Screened] = []
        base: list[Window] = []
        for position, rewrite in enumerate(candidates):
            if not self._enough():
                break
            plan = composer.plan([rewrite])
            try:
                if position % BASE_EVERY == 0:
                    base = [*base[-1:], self._meter.window(self._base, "input", part=Part.SEARCH, short=True)]
                window = self.try_window(plan, "input", short=True)
            except OutOfBudget:
                break
            if window is None:
                continue
            one = _over(rewrite, window, base, shares_processors=shares)
            if one.harmful and self._enough():  # or a window that took long for no reason: look again
                try:
                    again = self.try_window(plan, "input", short=True)
                except OutOfBudget:
                    break
                if again is not None:
                    one = max(one, _over(rewrite, again, base, shares_processors=shares), key=_promise)
            found.append(one)
            self._note(plan, one)
        return found

    def _note(self, plan: Plan, one: Screened) -> None:
        rate, cpu = one.rate - 1, 1 / one.cpu - 1
        why = f"short windows: {rate:+.0%} examples per second, {cpu:+.0%} CPU seconds per example"
        trial = Trial(plan, Outcome.SCREENED, why, kind="screening", ratios=(one.rate,))
        self.trials.append(trial)
        self._notify("trial", trial=trial)

    def try_window(self, plan: Plan, unit: str, *, short: bool) -> Window | None:
        """One window; None where the plan failed or was refused, which is then a trial."""
        before = self._meter.clock.now()
        try:
            return self._meter.window(plan, unit, part=Part.SEARCH, short=short)
        except (RunFailed, Refused) as problem:
            outcome = Outcome.REFUSED if isinstance(problem, Refused) else Outcome.FAILED
            trial = Trial(
                plan,
                outcome,
                str(problem),
                kind="screening",
                unit=unit,
                seconds=self._meter.clock.now() - before,
            )
            self.trials.append(trial)
            self._notify("trial", trial=trial)
            return None

    def running(self, ranked: Sequence[Rewrite], composer: Composer, *, unit: str) -> Plan:
        """As many of them together as run: all at once where that works, else joined one by one."""
        everything = composer.everything(ranked)
        if len(everything.rewrites) < 2:
            return everything
        try:
            if self.try_window(everything, unit, short=True) is not None:
                return everything
            joined: list[Rewrite] = []
            for rewrite in ranked:
                grown = composer.everything([*joined, rewrite])
                if len(grown.rewrites) <= len(joined) or not self._enough():
                    continue
                if self.try_window(grown, unit, short=True) is not None:
                    joined.append(rewrite)
        except OutOfBudget:
            return composer.plan([])
        return composer.plan(joined)

    def better(self, plan: Plan, than: Plan, *, unit: str) -> bool:
        """Whether two windows each, in turn, show `PROMISE` of `plan` over `than`."""
        ours: list[float] = []
        theirs: list[float] = []
        try:
            for _ in range(2):
                theirs.append(self._meter.rate(than, unit, part=Part.SEARCH))
                window = self.try_window(plan, unit, short=False)
                if window is None:
                    return False
                ours.append(rate_of(window, unit))
        except OutOfBudget:
            return False
        return statistics.fmean(ours) > PROMISE * statistics.fmean(theirs)

    def build(
        self,
        ranked: Sequence[Rewrite],
        composer: Composer,
        *,
        unit: str,
        promise: Mapping[str, float],
        spares: Collection[str] = (),
    ) -> Plan:
        """A plan grown one rewrite at a time: what shows `PROMISE` over the plan so far, in two windows,
        joins.

        Args:
            ranked: in the order to try; of one group only the first that joins.
            promise: what each showed alone, by key.
            spares: keys of those that spare memory; beside another rewrite they join unless they do harm in every
                window: whether they are slower is for the ablation's pairs. Windows beside one median of three had
                kept one that is as fast out of one plan of five.
        """
        plan = composer.plan([])
        best = self._base
        rates: list[float] = []
        for rewrite in ranked:
            grown = composer.added(plan, rewrite)
            if len(grown.rewrites) <= len(plan.rewrites) or composer.conflict(grown) or not self._enough():
                continue
            spared = rewrite.key in spares and bool(plan.rewrites)
            sure = promise.get(rewrite.key, 1.0) >= PROMISE
            wanted, wins, losses = (HARM, 1, 3) if spared else (PROMISE, 2, 2 if sure else 1)
            try:
                kept = self._majority(grown, best, rates, unit, wanted=wanted, wins=wins, losses=losses)
            except OutOfBudget:
                break
            if kept:
                plan = best = grown
                rates = kept
        return plan

    def _majority(
        self, grown: Plan, best: Plan, rates: list[float], unit: str, *, wanted: float, wins: int, losses: int
    ) -> list[float]:
        """Its rates, if `wins` windows of `grown` show `wanted` over `best` before `losses` do not; else nothing.

        After a first win two have to say no: a window now and then takes twice as long for nothing. `rates`, of
        `best`, grows along.
        """
        ours: list[float] = []
        won = lost = 0
        while won < wins and lost < (max(2, losses) if won else losses):
            if not self._enough():
                return []
            if len(rates) < 2 or len(rates) < len(ours) + 1:
                rates.append(self._meter.rate(best, unit, part=Part.SEARCH))
            window = self.try_window(grown, unit, short=False)
            if window is None:
                return []
            ours.append(rate_of(window, unit))
            good = ours[-1] >= wanted * statistics.median(rates)
            won, lost = won + good, lost + (not good)
        return ours if won >= wins else []
