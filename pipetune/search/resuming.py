"""Going on with the race of an earlier session: what is taken from it, and what error is left for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.results import Outcome, Trial
from pipetune.core.session import Candidate
from pipetune.search.statistics import FIRST_RACE, TOTAL_ERROR


@dataclass(frozen=True)
class EarlierRace:
    """A race that was not decided.

    The first race of the session has spent its part of the error, `FIRST_RACE`. What is left is for all sessions that
    go on with it: each spends half of what those before it have left, so that all races together hold the error.
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
