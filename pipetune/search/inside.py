"""Rewrites whose gain shows inside a training step only, as a copy to the device ahead of it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, OutOfBudget, RunFailed, Trial
from pipetune.core.session import RejectionReason
from pipetune.core.time_plan import Part
from pipetune.search.baselines import choose_steps
from pipetune.search.kit import SearchContext
from pipetune.search.summing_up import REASONS


@dataclass(frozen=True)
class Inside:
    """The plan with what was proven, what each added, what was tried, and why the rest is not in it (by key)."""

    plan: Plan | None
    trials: tuple[Trial, ...] = ()
    gains: dict[str, Interval] = field(default_factory=dict)
    why: dict[str, tuple[RejectionReason, str]] = field(default_factory=dict)
    accepted: Trial | None = None


def try_inside(
    rewrites: Sequence[Rewrite], plan: Plan | None, kit: SearchContext, *, steps: int | None = None
) -> Inside:
    """`plan` (or the base) beside itself with each rewrite added, decided by training steps in pairs.

    The first that is proven faster enters the plan. Nothing is measured where the consumer cannot be switched
    or no time for a first look is left.
    """
    kit, reference = replace(kit, unit="training"), plan or kit.base
    part = Part.ABLATION if plan else Part.EXTENSION
    composer = kit.composer
    rewrites = [rewrite for rewrite in rewrites if not composer.conflict(composer.added(reference, rewrite))]
    if not rewrites:
        return Inside(plan)
    problem, reason = _prepare(kit, steps=steps), RejectionReason.REFUSED
    added = {composer.added(reference, rewrite).key: rewrite for rewrite in rewrites}
    tried = [composer.added(reference, rewrite) for rewrite in rewrites]
    tried = [one for one in tried if not problem and kit.gate.equal(one)]
    while tried and not kit.affords_race(len(tried), part):
        tried.pop()
        problem, reason = "no time was left to measure it inside the training step", RejectionReason.NO_TIME
    if not tried:
        return Inside(plan, why={rewrite.key: (reason, problem) for rewrite in rewrites if problem})
    kit.notify("stage", name="inside")
    try:
        decision = kit.race(tried, reference, part)
    except RunFailed as failure:
        return Inside(plan, why={rewrite.key: (RejectionReason.FAILED, str(failure)) for rewrite in rewrites})
    proven = next(iter(decision.accepted), None)
    return Inside(
        plan=proven.plan if proven else plan,
        trials=decision.trials,
        gains={added[proven.plan.key].key: proven.gain} if proven and proven.gain else {},
        why={
            added[trial.plan.key].key: (REASONS[trial.outcome], trial.why)
            for trial in decision.trials
            if trial is not proven
        },
        accepted=proven,
    )


def _prepare(kit: SearchContext, *, steps: int | None) -> str:
    """Finds the length of training windows where it is not known yet; why there can be none, or ''."""
    if not kit.meter.runner.trains:
        return "its gain shows inside the training step only, and no other input can be served there"
    if kit.meter.knows(kit.unit):
        return ""
    try:
        choose_steps(kit.base, kit.meter, steps=steps)
    except (RunFailed, OutOfBudget) as problem:
        return f"it could not be measured inside the training step: {problem}"
    return ""
