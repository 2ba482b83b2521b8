"""Outcome of a session: the only place that decides between "nothing to improve" and "undecided"."""

from __future__ import annotations

import enum

from pipetune.core.measurement import Outcome, Trial
from pipetune.core.profile import Verdict
from pipetune.core.session import Session


class SessionOutcome(enum.StrEnum):
    """The outcome of a session."""

    PROVEN = "proven"  # a plan was confirmed
    UNDECIDED = "undecided"  # something may be faster, but was not tried, not decided or not confirmed
    NONE = "none"  # every legal rewrite was tried, and nothing is faster
    NOT_INPUT_BOUND = "not-input-bound"  # a better input cannot save time
    UNTRIED = "untried"  # trials were not requested
    FAILED = "failed"  # the analysis did not complete


NOTHING_TO_CHANGE = frozenset({SessionOutcome.NONE, SessionOutcome.NOT_INPUT_BOUND})


def outcome_of(session: Session) -> SessionOutcome:
    """Returns the outcome of the session."""
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
    """Returns all trials except the baselines, which decide nothing."""
    return tuple(trial for trial in session.trials if trial.kind != "baseline")


def is_unconfirmed(session: Session) -> bool:
    """Whether a plan was faster in its trials; meant for sessions in which no plan was confirmed afterwards."""
    return any(trial.outcome is Outcome.ACCEPTED for trial in decisive_trials(session))


def undecided_trials(session: Session) -> int:
    """Returns the number of trials that were undecided when time ran out."""
    return sum(trial.outcome is Outcome.UNDECIDED for trial in decisive_trials(session))


def untried_rewrites(session: Session) -> int:
    """Returns the number of legal rewrites that are undecided because time ran out."""
    dataset = session.tuned_dataset
    return sum(rejection.open for rejection in dataset.rejected) if dataset else 0
