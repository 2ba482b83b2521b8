"""Whole sessions on recorded noise: ten candidates, the default budget, search and confirmation as in a real one.

A session is useless (no candidate makes a difference: whatever is accepted is a false win) or has one candidate of a
known true gain among nine useless ones (power).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import stats

from pipetune.core.edits import Plan
from pipetune.core.results import Outcome, Prediction
from pipetune.core.settings import Settings
from pipetune.core.time_plan import Part, TimePlan
from pipetune.search.confirmation import confirm
from pipetune.search.evidence import error_of
from pipetune.search.race import EarlierRace, earlier_race
from pipetune.search.result import SearchResult
from pipetune.search.search import search
from pipetune.search.state import SearchState
from pipetune.testing import recorded
from pipetune.testing.recorded import CONDITIONS, UNITS, ReplayRunner
from pipetune.testing.runner import FakeClock, rewrite

CANDIDATES = 10
BUDGET_SECONDS = 60.0  # the default of `pipetune analyze`
USEFUL = "useful"

_BASELINES = {name: Plan(name) for name in ("off", "defaults", "autotune")}


@dataclass(frozen=True)
class Scene:
    """Where a session takes place: what decides ("input" or "training"), and what else runs there."""

    unit: str
    condition: str

    @property
    def name(self) -> str:
        return f"{self.unit}, {self.condition}"


SCENES = tuple(Scene(unit, condition) for unit in UNITS for condition in CONDITIONS)


@dataclass(frozen=True)
class Ended:
    """What came of one session."""

    scene: Scene
    chosen: bool  # something entered the plan
    confirmed: bool
    found: bool  # the useful one is in the plan, and the plan was confirmed
    decided: bool  # some plan was accepted or rejected by its pairs
    seconds: float
    likely: bool = False  # nothing is proven, and a plan is called likely
    likely_rightly: bool = False  # that plan truly gains
    resumptions: int = 0  # sessions that went on with it

    @property
    def accepted(self) -> bool:
        return self.chosen or self.confirmed


def session(
    scene: Scene,
    *,
    seed: int,
    gain: float = 1.0,
    budget_seconds: float = BUDGET_SECONDS,
    predicts: bool = False,
    resumes: int = 0,
) -> Ended:
    """One session, and those that go on with it where it proves nothing and leaves a candidate.

    Args:
        scene: where it takes place.
        seed: of the noise, the candidates' order and the model's errors.
        gain: above 1 one of the ten candidates, at a place drawn by the seed, truly has it.
        budget_seconds: of each session.
        predicts: whether there is a model, which is wrong by what it is known to be (`evidence.error_of`).
        resumes: how many sessions go on with it at most.
    """
    series = recorded.load()
    clock = FakeClock()
    place = seed % CANDIDATES
    names = [USEFUL if position == place and gain != 1.0 else f"useless-{position}" for position in range(CANDIDATES)]
    runner = ReplayRunner(
        clock,
        input=series.series_for("input", scene.condition),
        training=series.series_for("training", scene.condition) if scene.unit == "training" else None,
        seed=seed,
        gain=lambda plan: gain if any(one.rule == USEFUL for one in plan.rewrites) else 1.0,
    )
    draw = random.Random(seed)
    log = math.log(gain)
    gains = {
        name: draw.gauss(log if name == USEFUL else 0.0, error_of(log if name == USEFUL else 0.0)) for name in names
    }

    def expected(plan: Plan) -> Prediction:
        return Prediction(1000 * math.exp(sum(gains[one.rule] for one in plan.rewrites)), 1e-3)

    def searched(earlier: EarlierRace | None, number: int) -> tuple[SearchResult, TimePlan]:
        settings = Settings(budget_seconds=budget_seconds, seed=seed + number)
        budget = TimePlan(budget_seconds, clock)
        clock.advance(budget.ends(Part.PREPARATION))  # verdict and preparation have used their parts
        state = SearchState(
            [rewrite(name) for name in names],
            runner,
            baselines=_BASELINES,
            settings=settings,
            randomness_fixed=False,
            clock=clock,
            budget=budget,
            expected=expected if predicts else None,
        )
        return search(state, earlier=earlier), budget

    settings = Settings(budget_seconds=budget_seconds, seed=seed)
    found, budget = searched(None, 0)
    resumptions = 0
    while found.chosen is None and found.candidate is not None and resumptions < resumes:
        earlier = earlier_race(found.candidate, found.trials, resumptions=resumptions)
        resumptions += 1
        found, budget = searched(earlier, resumptions)
    confirmed = False
    if found.chosen is not None:
        proof = confirm(
            found.chosen,
            runner,
            baselines=_BASELINES,
            settings=settings,
            seconds=budget.left(Part.VERIFICATION),
            clock=clock,
        )
        confirmed = proof.confirmed
    useful = found.chosen is not None and any(one.rule == USEFUL for one in found.chosen.rewrites)
    likely = found.candidate is not None and found.candidate.likely
    right = found.candidate is not None and any(one.rule == USEFUL for one in found.candidate.plan.rewrites)
    return Ended(
        scene,
        chosen=found.chosen is not None,
        confirmed=confirmed,
        found=useful and confirmed,
        decided=any(
            trial.kind == "search" and trial.ratios and trial.outcome in (Outcome.ACCEPTED, Outcome.REJECTED)
            for trial in found.trials
        ),
        seconds=budget.spent(),
        likely=likely,
        likely_rightly=likely and right,
        resumptions=resumptions,
    )


def sessions(
    count: int,
    *,
    seed: int,
    gain: float = 1.0,
    budget_seconds: float = BUDGET_SECONDS,
    predicts: bool = False,
    resumes: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Ended]:
    """That many sessions over all scenes in turn; one takes some milliseconds. `progress(done)` after every 200."""
    ended = []
    for number in range(count):
        scene = SCENES[number % len(SCENES)]
        one = session(
            scene,
            seed=seed * 1_000_003 + number,
            gain=gain,
            budget_seconds=budget_seconds,
            predicts=predicts,
            resumes=resumes,
        )
        ended.append(one)
        if len(ended) % 200 == 0:
            progress(len(ended))
    return ended


@dataclass(frozen=True)
class Share:
    """So many of so many, and the exact 95 % interval of the share (Clopper and Pearson, 1934)."""

    sessions: int
    count: int
    low: float
    high: float


def share(count: int, of: int) -> Share:
    """The share with its exact interval.

    Raises:
        ValueError: of nothing.
    """
    if of < 1:
        raise ValueError("a share of nothing")
    interval = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return Share(of, count, float(interval.low), float(interval.high))


def by_scene(ended: Sequence[Ended], counts: Callable[[Ended], bool]) -> dict[str, Share]:
    """The share of each scene's sessions for which `counts` holds."""
    total = Counter(one.scene.name for one in ended)
    hits = Counter(one.scene.name for one in ended if counts(one))
    return {name: share(hits[name], of) for name, of in total.items()}
