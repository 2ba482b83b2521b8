"""Every trial with its interval, the rejected and the failed among them."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.pipeline import Pipeline
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import Session
from pipetune.report import words
from pipetune.report.changes import SAFETY_WORDS, edit_words
from pipetune.report.outliers import outlier_sentence
from pipetune.report.places import Places
from pipetune.report.values import Figure, interval

ACCEPTANCE = 1.03
"""A rewrite is accepted only when its interval lies above this ratio."""

BASELINE = "baseline"

_LAST = ("verification", "confirmation")  # measured anew, the patch before the plan

TRAINING = "training step"
_UNIT_WORDS = {"input": "input alone", "training": TRAINING}

OUTCOME_MEANING = {
    Outcome.ACCEPTED: "proven faster by the acceptance rule",
    Outcome.REJECTED: "changes the data, or is not proven faster",
    Outcome.SCREENED: "short windows showed no promise; not a result",
    Outcome.SKIPPED: "not run: predicted to lose, by more than the model errs",
    Outcome.REFUSED: "not run: above the memory limit, or without consent",
    Outcome.FAILED: "raised an error, hung or was killed",
    Outcome.UNDECIDED: "the time ended before it was decided",
}


@dataclass(frozen=True)
class TrialRow:
    """One plan tried."""

    label: str
    where: str
    kind: str
    unit: str
    safety: str
    outcome: str
    meaning: str
    gain: Figure
    ratios: tuple[float, ...]
    outliers: str  # pairs far from the others, in a sentence; '' without any
    why: str
    seconds: str


@dataclass(frozen=True)
class Attempts:
    """All trials, what was measured last of the plan first, then in the order tried."""

    rows: tuple[TrialRow, ...]
    tally: tuple[tuple[str, int, str], ...]  # outcome, how many, what it means
    acceptance: float
    sentence: str


def attempts(session: Session, places: Places) -> Attempts:
    pipelines = tuple(
        pipeline for result in session.datasets for pipeline in (result.tuned, result.pipeline) if pipeline is not None
    )
    # The sort is stable: within the two halves the order in which they were tried stays.
    ordered = sorted(session.trials, key=lambda trial: _LAST.index(trial.kind) if trial.kind in _LAST else len(_LAST))
    tried = [trial for trial in session.trials if trial.kind != BASELINE]
    tally = tuple(
        (outcome.value, number, OUTCOME_MEANING[outcome])
        for outcome in Outcome
        if (number := sum(trial.outcome is outcome for trial in tried))
    )
    return Attempts(
        rows=tuple(_row(trial, pipelines, places) for trial in ordered),
        tally=tally,
        acceptance=ACCEPTANCE,
        sentence=_sentence(session, len(tried), tally),
    )


def _sentence(session: Session, tried: int, tally: tuple[tuple[str, int, str], ...]) -> str:
    if not tried:
        return "No trial was run."
    parts = words.joined([f"{number} {outcome}" for outcome, number, _ in tally])
    with_seed = f"The order of the pairs was drawn with seed {session.command.options.seed}."
    return f"{words.count(tried, 'trial')}: {parts}. {with_seed}"


def _row(trial: Trial, pipelines: tuple[Pipeline, ...], places: Places) -> TrialRow:
    why = places.foreign(trial.why) if trial.outcome is Outcome.FAILED else words.clean(trial.why)
    baseline = trial.kind == BASELINE and trial.outcome is not Outcome.FAILED
    wheres = dict.fromkeys(places.node(rewrite.node, *pipelines) for rewrite in trial.plan.rewrites)
    return TrialRow(
        label=_label(trial, pipelines),
        where=", ".join(where for where in wheres if where),
        kind=words.clean(trial.kind),
        unit=_UNIT_WORDS.get(trial.unit, words.clean(trial.unit)),
        safety=SAFETY_WORDS[trial.plan.safety] if trial.plan.rewrites else "",
        outcome=BASELINE if baseline else trial.outcome.value,
        meaning="what the others are compared with" if baseline else OUTCOME_MEANING[trial.outcome],
        gain=interval(trial.gain, words.ratio, why="no pair was measured"),
        ratios=trial.ratios,
        outliers=outlier_sentence(trial.ratios),
        why=words.sentence(why),
        seconds=words.seconds(trial.seconds) if trial.seconds else "",
    )


def _label(trial: Trial, pipelines: tuple[Pipeline, ...]) -> str:
    """The rule and its edits; the rules alone where several are tried together; else the plan's name."""
    rewrites = trial.plan.rewrites
    if not rewrites:
        return words.clean(trial.plan.name) or "nothing changed"
    if len(rewrites) > 1:
        return words.clean(" + ".join(rewrite.rule for rewrite in rewrites))
    edits = [edit_words(edit, *pipelines) for edit in rewrites[0].edits]
    more = f" and {words.count(len(edits) - 2, 'edit')} more" if len(edits) > 2 else ""
    return f"{words.clean(rewrites[0].rule)} ({'; '.join(edits[:2])}{more})"
