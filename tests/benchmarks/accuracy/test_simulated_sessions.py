"""Simulated sessions: candidates without a gain are rarely accepted, and a real gain is found."""

from __future__ import annotations

import pytest
from scipy import stats

from benchmarks.accuracy import simulated_sessions
from benchmarks.accuracy.false_positives import LONG_BUDGET_SECONDS, TARGET_ACCEPTED
from benchmarks.accuracy.simulated_sessions import SessionDesign, share, simulate_session, simulate_sessions
from pipetune.search import race, statistics
from pipetune.search.statistics import holm

pytestmark = pytest.mark.slow

COUNT, FEW = 54, 30


def bound(count: int) -> int:
    """A procedure that accepts in 6 % of its sessions stays at or below this in 97.5 % of runs of this test."""
    return int(stats.binom.ppf(0.975, count, TARGET_ACCEPTED))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("budget_seconds", "decided"), [
    (simulated_sessions.BUDGET_SECONDS, 0.15),  # with other users' work, a minute is often too short for a decision
    (LONG_BUDGET_SECONDS, 0.6),
])  # fmt: skip
def test_candidates_without_gain_are_rarely_accepted(budget_seconds: float, decided: float) -> None:
    outcomes = simulate_sessions(COUNT, SessionDesign(budget_seconds=budget_seconds), seed=1)
    assert sum(one.accepted for one in outcomes) <= bound(COUNT)
    assert sum(one.decided for one in outcomes) >= decided * COUNT  # else nothing is tested but a budget too small
    assert all(one.seconds < 1.5 * budget_seconds for one in outcomes)


def test_unplanned_looks_would_be_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sessions, decided after each pair, any gain good enough: what a naive tuner does."""
    monkeypatch.setattr(race, "LOOKS", tuple(range(3, 33)))
    monkeypatch.setattr(race, "holm", lambda values, *, error: holm(values))
    for module in (race, statistics):
        monkeypatch.setattr(module, "ACCEPT_ABOVE", 1.0)
    outcomes = simulate_sessions(FEW, SessionDesign(budget_seconds=LONG_BUDGET_SECONDS), seed=1)
    assert sum(one.accepted for one in outcomes) > bound(FEW)


def test_session_is_reproducible_by_seed() -> None:
    scene = simulated_sessions.SCENES[0]
    assert simulate_session(scene, seed=3) == simulate_session(scene, seed=3)
    assert len({simulate_session(scene, seed=seed).seconds for seed in range(4)}) > 1


def test_large_gain_is_found_on_a_quiet_machine() -> None:
    quiet = simulated_sessions.Scene("input", "quiet")
    outcomes = [simulate_session(quiet, SessionDesign(gain=1.5), seed=seed) for seed in range(12)]
    assert sum(one.found for one in outcomes) >= 10
    assert simulated_sessions.share_by_scene(outcomes, lambda one: one.found)["input, quiet"].sessions == 12


def test_shares_have_exact_intervals() -> None:
    # Clopper and Pearson: for none of n the upper end is 1 - (error / 2) ** (1 / n).
    none = share(0, 100)
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025**0.01))
    assert share(100, 100).high == 1.0
    one = share(1, 100)
    assert stats.binom.sf(0, 100, one.low) == pytest.approx(0.025)
    assert stats.binom.cdf(1, 100, one.high) == pytest.approx(0.025)
    with pytest.raises(ValueError, match="no sessions"):
        share(0, 0)
