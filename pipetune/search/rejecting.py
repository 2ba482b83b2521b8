"""Why each rewrite that is not in the plan is not in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pipetune.core.edits import Rewrite
from pipetune.core.measurement import Interval, Outcome, Trial
from pipetune.core.session import Rejection
from pipetune.search.statistics import ACCEPT_ABOVE


def rejections(
    left_out: Sequence[Rewrite],
    trials: Sequence[Trial],
    *,
    blamed: Mapping[str, str],
    gains: Mapping[str, Interval],
    asking: Mapping[str, str],
    screened: Mapping[str, float],
    variants: Collection[str] = (),
    untried: str = "no time was left to try it",
) -> tuple[Rejection, ...]:
    """One entry for each rewrite left out, with the strongest reason known.

    Args:
        blamed: rewrite key to why it changes the data.
        gains: rewrite key to what it added to the plan, of those dropped by ablation.
        asking: rewrite key to the consent it needs, of those that are not offered themselves.
        screened: rewrite key to its rate over the base in short windows.
        variants: keys of rewrites that differ from another one by numbers only.
        untried: why what was not tried was not.
    """
    alone = {trial.plan.rewrites[0].key: trial for trial in trials if _says(trial)}
    measured = [trial for trial in trials if trial.ratios and trial.outcome in (Outcome.ACCEPTED, Outcome.REJECTED)]
    decided = {rewrite.key for trial in measured for rewrite in trial.plan.rewrites}
    found = []
    for rewrite in left_out:
        trial = alone.get(rewrite.key)
        gain, left_open = trial.gain if trial else None, False
        if rewrite.key in blamed:
            why = blamed[rewrite.key]
        elif rewrite.key in gains:
            why, gain = "adds nothing to the plan", gains[rewrite.key]
        elif trial is not None:
            why = trial.why
        elif rewrite.key in asking:
            why = f"needs {asking[rewrite.key]}; another of its kind is offered"
        elif rewrite.key in screened:
            why = f"not in a plan proven faster; alone, short windows {_words(screened[rewrite.key])}"
            left_open = screened[rewrite.key] >= ACCEPT_ABOVE and rewrite.key not in decided
        elif rewrite.key in variants:
            why = "other numbers are tried only where the rewrite is in a plan proven faster"
        else:
            why, left_open = untried, True
        found.append(Rejection(rewrite.rule, rewrite.node, why, gain, left_open))
    return tuple(found)


def _says(trial: Trial) -> bool:
    """Whether it is about one rewrite alone, and decided something."""
    return (
        len(trial.plan.rewrites) == 1 and trial.outcome is not Outcome.SCREENED and trial.kind != "ablation"
    )


def _words(rate: float) -> str:
    change = rate - 1
    return f"showed {change:+.0%}" if abs(change) >= 0.005 else "showed no difference"
