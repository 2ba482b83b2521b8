"""Why each rewrite that is not in the plan is not in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import geometric_mean

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Outcome, Trial
from pipetune.core.session import Rejection, RejectionReason
from pipetune.search.composing import group_of, shape_of
from pipetune.search.finalists import Finalists
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS

REASONS: Mapping[Outcome, RejectionReason] = {
    Outcome.FAILED: RejectionReason.FAILED,
    Outcome.REFUSED: RejectionReason.REFUSED,
    Outcome.SKIPPED: RejectionReason.PREDICTED_SLOWER,
    Outcome.REJECTED: RejectionReason.NOT_FASTER,
    Outcome.UNDECIDED: RejectionReason.UNDECIDED,
    Outcome.ACCEPTED: RejectionReason.ADDS_NOTHING,  # faster than what the plan was then, and not in what it is now
}


def rejections(
    left_out: Sequence[Rewrite],
    plan: Plan | None,
    trials: Sequence[Trial],
    *,
    finalists: Finalists,
    known: Mapping[str, tuple[RejectionReason, str]],
    gains: Mapping[str, Interval],
    asking: Mapping[str, str],
    gains_out_of_sight: Collection[str] = (),
    over: str = "the time was up",
) -> tuple[Rejection, ...]:
    """One entry for each rewrite left out, with the strongest reason there is.

    Args:
        plan: what was chosen.
        known: rewrite key to a reason found elsewhere: it changes the data, or gains nothing inside the step.
        gains: rewrite key to what it added to the plan, of those dropped by ablation.
        asking: rewrite key to the consent it needs, of those that are not offered themselves.
        gains_out_of_sight: keys of rewrites of which model and windows say that a gain is out of sight.
        over: why what was not tried was not, in words.
    """
    decided = {one.plan.rewrites[0].key: one for one in trials if _decides(one)}
    for key, trial in finalists.raced.items():
        if trial is not None and (trial.ratios or trial.outcome is not Outcome.UNDECIDED):
            decided[key] = trial
    waiting = {rewrite.key for rewrite in finalists.waiting(plan)} | set(finalists.raced)
    left = {one.key for one in finalists.rewrites}
    tried = {shape_of(one) for one in finalists.rewrites}
    groups = {group_of(one) for one in plan.rewrites} if plan else set()
    shapes = {shape_of(one) for one in plan.rewrites} if plan else set()

    def why_not(rewrite: Rewrite) -> tuple[RejectionReason, str]:
        key = rewrite.key
        if key in known:
            return known[key]
        if key in gains:
            return RejectionReason.ADDS_NOTHING, "adds nothing to the plan"
        if key in gains_out_of_sight and (key not in decided or decided[key].outcome is Outcome.UNDECIDED):
            return RejectionReason.NOT_EXPECTED, f"a gain of {ACCEPT_ABOVE - 1:.0%} is out of sight{_seen(key)}"
        if key in decided:
            trial = decided[key]
            longest = trial.outcome is Outcome.UNDECIDED and len(trial.ratios) >= LOOKS[-1]  # more time is no remedy
            return RejectionReason.NOT_FASTER if longest else REASONS[trial.outcome], trial.why
        if key in asking:
            return RejectionReason.NEEDS_CONSENT, f"needs {asking[key]}; another of its kind is offered"
        if group_of(rewrite) in groups or shape_of(rewrite) in shapes:
            return RejectionReason.OTHER_KIND, "another of its kind is in the plan"
        conflict = finalists.kit.composer.conflict(finalists.kit.composer.added(plan, rewrite)) if plan else ""
        if conflict:
            return RejectionReason.EXCLUDED, f"must not stand beside what is in the plan: {conflict}"
        if key in waiting:
            return RejectionReason.NO_TIME, f"{over} before it was measured in pairs{_seen(key)}"
        if key in left and not _unknown(rewrite):
            return RejectionReason.NOT_EXPECTED, f"not expected to gain {ACCEPT_ABOVE - 1:.0%}{_seen(key)}"
        if key not in left and shape_of(rewrite) in tried:
            return (
                RejectionReason.OTHER_KIND,
                "other numbers are tried only where the rewrite is in a plan proven faster",
            )
        return RejectionReason.NO_TIME, f"{over} before it was tried"

    def _unknown(rewrite: Rewrite) -> bool:
        """Whether neither the model nor a window says what it gains."""
        expectation = finalists.expectation
        return rewrite.key not in expectation.screened and expectation.of(rewrite).predicted is None

    def _seen(key: str) -> str:
        screened = finalists.expectation.screened.get(key)
        return (
            f"; alone, short windows showed {_words(geometric_mean(one.rate for one in screened))}" if screened else ""
        )

    found = []
    for rewrite in left_out:
        reason, why = why_not(rewrite)
        trial = decided.get(rewrite.key)
        gain = gains.get(rewrite.key) or (trial.gain if trial else None)
        found.append(Rejection(rewrite.rule, rewrite.node, why, gain, reason))
    return tuple(found)


def _decides(trial: Trial) -> bool:
    """Whether it is about one rewrite alone, and decided something."""
    return len(trial.plan.rewrites) == 1 and trial.outcome is not Outcome.SCREENED and trial.kind != "ablation"


def _words(rate: float) -> str:
    change = rate - 1
    return f"{change:+.0%}" if abs(change) >= 0.005 else "no difference"
