"""How a session ended: the one place that says whether there is nothing to change, or nothing was decided."""

from __future__ import annotations

import enum

from pipetune.core.measurement import Outcome, Trial
from pipetune.core.profile import Verdict
from pipetune.core.session import Session


class SessionOutcome(enum.StrEnum):
    """What is known at the end."""

    PROVEN = "proven"  # a plan was confirmed
    UNDECIDED = "undecided"  # something may be faster: it was not tried, not decided or not confirmed
    NONE = "none"  # all that was legal was tried, and nothing is faster
    NOT_INPUT_BOUND = "not-input-bound"  # nothing that a better input could save
    UNTRIED = "untried"  # trials were not asked for
    FAILED = "failed"  # it did not come to its end


NOTHING_TO_CHANGE = frozenset({SessionOutcome.NONE, SessionOutcome.NOT_INPUT_BOUND})


def outcome_of(session: Session) -> SessionOutcome:
    """How the session ended."""
    dataset = session.tuned_dataset
    if session.status != "done" or dataset is None or dataset.diagnosis is None:
        return SessionOutcome.FAILED
    if dataset.plan is not None and dataset.plan.rewrites:
        return SessionOutcome.PROVEN
    if dataset.diagnosis.verdict is Verdict.NOT_INPUT_BOUND:
        return SessionOutcome.NOT_INPUT_BOUND
    if is_unconfirmed(session) or undecided_trials(session) or untried_rewrites(session):
        return SessionOutcome.UNDECIDED
    return SessionOutcome.NONE if session.trials else SessionOutcome.UNTRIED


def decisive_trials(session: Session) -> tuple[Trial, ...]:
    """Every trial but the baselines, which nothing is decided on."""
    return tuple(trial for trial in session.trials if trial.kind != "baseline")


def is_unconfirmed(session: Session) -> bool:
    """Whether a plan was faster in its trials, and not confirmed by fresh measurements."""
    return any(trial.outcome is Outcome.ACCEPTED for trial in decisive_trials(session))


def undecided_trials(session: Session) -> int:
    """Trials that the end of the time left open."""
    return sum(trial.outcome is Outcome.UNDECIDED for trial in decisive_trials(session))


def untried_rewrites(session: Session) -> int:
    """Legal rewrites that no trial was about because the time was over."""
    dataset = session.tuned_dataset
    return sum(rejection.open for rejection in dataset.rejected) if dataset else 0
