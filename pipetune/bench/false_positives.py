"""How often pipetune accepts what is no gain, and how small a gain it still finds.

Simulated: whole sessions on recorded noise (`bench.simulating`). Real: A/A comparisons on this machine
(`bench.comparing`). Every share with its exact interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetune.bench import Say
from pipetune.bench.keeping import Kept
from pipetune.bench.simulating import (
    BUDGET_SECONDS,
    CANDIDATES,
    Share,
    by_scene,
    sessions,
    share,
)
from pipetune.core.accuracy import Claim
from pipetune.core.results import Outcome

RESUMES = True

LONG_BUDGET_SECONDS = 300.0

MOST_ACCEPTED = 0.06
POWER = 0.9

GAINS = (1.02, 1.03, 1.05, 1.07, 1.10, 1.15, 1.20, 1.30, 1.50)

SESSIONS, QUICK_SESSIONS = 2000, 90
POWER_SESSIONS, QUICK_POWER_SESSIONS = 600, 30  # per gain
COMPARISONS, QUICK_COMPARISONS = 100, 2
RESUMPTIONS = 3
LIKELY_SESSIONS, LIKELY_GAINS, LIKELY_RIGHT = 12_000, (1.1, 1.2, 1.5, 2.0), 0.8


@dataclass(frozen=True)
class Simulated:
    """A/A sessions of ten candidates; `accepted`: something entered the plan, or was confirmed."""

    sessions: int
    accepted: int
    low: float
    high: float
    confirmed: int
    decided: int  # came to a decision by pairs
    by_scene: Mapping[str, Share]


@dataclass(frozen=True)
class Likely:
    """Sessions that prove nothing and call a plan likely, of sessions half of which have one true gain to find."""

    sessions: int
    likely: int
    right: int  # the plan truly gains
    low: float  # of right / likely
    high: float


@dataclass(frozen=True)
class Real:
    """A/A comparisons on the machine itself."""

    comparisons: int
    positives: int
    low: float
    high: float
    spread: float  # standard deviation of the ratio of two windows, median over the comparisons


@dataclass(frozen=True)
class Power:
    """Of one true gain: in how many sessions it was found and confirmed."""

    gain: float
    predicts: bool  # whether the model can tell (`simulating.session`)
    sessions: int
    found: int
    by_scene: Mapping[str, Share]


@dataclass(frozen=True)
class FalsePositives:
    simulated: Simulated  # with the default budget
    simulated_long: Simulated  # with one that lets nearly every session come to its decision
    simulated_resumed: Simulated  # each with the sessions that go on with it, `RESUMPTIONS` at most
    likely: Likely
    real: Real
    power: tuple[Power, ...]
    notes: tuple[str, ...] = ()


def measure(*, quick: bool, seed: int, say: Say, kept: Kept) -> FalsePositives:
    """All three; the real comparisons are kept one by one, the rest takes seconds."""
    count = QUICK_SESSIONS if quick else SESSIONS
    of_each = QUICK_POWER_SESSIONS if quick else POWER_SESSIONS
    return FalsePositives(
        simulated=_simulated(count, seed, say),
        simulated_long=_simulated(count, seed, say, budget_seconds=LONG_BUDGET_SECONDS),
        simulated_resumed=_simulated(count, seed, say, resumes=RESUMPTIONS),
        likely=_likely(QUICK_SESSIONS if quick else LIKELY_SESSIONS, seed, say),
        real=_real(QUICK_COMPARISONS if quick else COMPARISONS, seed, say, kept),
        power=tuple(
            _power(gain, of_each, seed, say, predicts=predicts) for predicts in (True, False) for gain in GAINS
        ),
        notes=(
            f"Sessions of {CANDIDATES} candidates with the default budget of {BUDGET_SECONDS:.0f} s, search and "
            "confirmation whole, the data always found equal; their noise is replayed from windows recorded on two "
            "cores, quiet, with a process that takes a core for a second, and with the work of others",
            "Gains tried: " + ", ".join(f"{gain - 1:.0%}" for gain in GAINS),
        ),
    )


def _simulated(
    count: int, seed: int, say: Say, *, budget_seconds: float = BUDGET_SECONDS, resumes: int = 0
) -> Simulated:
    ended = sessions(
        count,
        seed=seed,
        budget_seconds=budget_seconds,
        resumes=resumes,
        progress=lambda done: say(f"simulated A/A sessions: {done} of {count}"),
    )
    accepted = share(sum(one.accepted for one in ended), count)
    return Simulated(
        sessions=count,
        accepted=accepted.count,
        low=accepted.low,
        high=accepted.high,
        confirmed=sum(one.confirmed for one in ended),
        decided=sum(one.decided for one in ended),
        by_scene=by_scene(ended, lambda one: one.accepted),
    )


def _power(gain: float, count: int, seed: int, say: Say, *, predicts: bool) -> Power:
    say(f"{count} simulated sessions with a true gain of {gain - 1:.0%}" + (", with a model" if predicts else ""))
    ended = sessions(count, seed=seed, gain=gain, predicts=predicts)
    return Power(gain, predicts, count, sum(one.found for one in ended), by_scene(ended, lambda one: one.found))


def _likely(count: int, seed: int, say: Say) -> Likely:
    say(f"{count} simulated sessions, half of them with something to find")
    ended = [
        one
        for gain, part in ((1.0, 4), *((gain, 1) for gain in LIKELY_GAINS))
        for predicts in (True, False)
        for one in sessions(count * part // 16, seed=seed, gain=gain, predicts=predicts)
    ]
    likely, right = sum(one.likely for one in ended), sum(one.likely_rightly for one in ended)
    interval = share(right, likely) if likely else Share(0, 0, 0.0, 1.0)
    return Likely(len(ended), likely, right, interval.low, interval.high)


def _smallest_gain(power: Sequence[Power], scene: str) -> float | None:
    """The smallest gain from which on every larger one tried is found in 90 % of the sessions of a scene."""
    found = {one.gain: one.by_scene[scene].count / one.by_scene[scene].sessions for one in power}
    smallest = None
    for gain in sorted(found, reverse=True):
        if found[gain] < POWER:
            break
        smallest = gain
    return smallest


def _real(count: int, seed: int, say: Say, kept: Kept) -> Real:
    from pipetune.bench.comparing import compare, spread

    compared = compare(count, seed=seed, say=say, kept=kept)
    positives = share(sum(one.outcome is Outcome.ACCEPTED for one in compared), count)
    return Real(count, positives.count, positives.low, positives.high, round(spread(compared), 4))


def claims(found: FalsePositives, *, quick: bool) -> Sequence[Claim]:
    """The promise is about whole sessions; the real comparisons are stated with their interval."""
    real = found.real
    return (
        *_accepted(found.simulated, BUDGET_SECONDS, quick=quick),
        *_accepted(found.simulated_long, LONG_BUDGET_SECONDS, quick=quick),
        *_accepted(found.simulated_resumed, BUDGET_SECONDS, quick=quick, with_resumed=True),
        _likely_claim(found.likely),
        Claim(
            f"real A/A comparisons accepted, of {real.comparisons}",
            f"{real.positives / real.comparisons:.0%} ({real.low:.1%} to {real.high:.1%})",
        ),
        *(_power_claim(found.power, predicts=predicts) for predicts in (True, False)),
    )


def _power_claim(power: Sequence[Power], *, predicts: bool) -> Claim:
    rows = [one for one in power if one.predicts == predicts]
    smallest = [f"{scene} {_gain(_smallest_gain(rows, scene))}" for scene in rows[0].by_scene]
    subject = "smallest true gain found in 90 % of sessions" + (", without a model's word" if not predicts else "")
    return Claim(subject, "; ".join(smallest))


def _likely_claim(found: Likely) -> Claim:
    part = found.right / found.likely if found.likely else 1.0
    return Claim(
        f"plans called likely in {found.sessions:,} simulated sessions that truly gain",
        f"{found.right} of {found.likely}: {part:.0%} ({found.low:.0%} to {found.high:.0%})",
        f"at least {LIKELY_RIGHT:.0%}",
        part >= LIKELY_RIGHT,
    )


def _accepted(
    simulated: Simulated, budget_seconds: float, *, quick: bool, with_resumed: bool = False
) -> Sequence[Claim]:
    part = simulated.accepted / simulated.sessions
    # In the short form chance alone may put a good procedure above the line: only what is surely above it is missed.
    met = simulated.low <= MOST_ACCEPTED if quick else part <= MOST_ACCEPTED
    worst = max(simulated.by_scene.items(), key=lambda item: item[1].count / item[1].sessions)
    decided = simulated.decided / simulated.sessions
    return (
        Claim(
            f"simulated A/A sessions of {budget_seconds:.0f} s that accepted anything"
            + (f", with up to {RESUMPTIONS} that go on with each" if with_resumed else ""),
            f"{simulated.accepted} of {simulated.sessions:,}: {part:.1%} ({simulated.low:.2%} to {simulated.high:.2%})",
            f"at most {MOST_ACCEPTED:.0%}",
            met,
        ),
        Claim(
            "most in one scene; came to a decision",
            f"{worst[1].count} of {worst[1].sessions} ({worst[0]}); {decided:.0%}",
        ),
    )


def _gain(gain: float | None) -> str:
    return f"+{gain - 1:.0%}" if gain else f"above +{GAINS[-1] - 1:.0%}"
