"""Simulates whole sessions on recorded noise: ten candidates, the default budget, search and confirmation.

In an A/A session no candidate has a gain, so that any acceptance is a false positive. In other sessions one of the ten
candidates has a known gain, which should be found.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import stats

from benchmarks import recorded
from benchmarks.recorded import CONDITIONS, UNITS, FakeClock, ReplayRunner, rewrite
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

CANDIDATES = 10
BUDGET_SECONDS = 60.0  # the default of `pipetune analyze`
USEFUL = "useful"  # the rule of the candidate with a gain

_BASELINES = {name: Plan(name) for name in ("off", "defaults", "autotune")}


@dataclass(frozen=True)
class Scene:
    """What is measured in a session ("input" or "training"), and what else runs on the machine."""

    unit: str
    condition: str

    @property
    def name(self) -> str:
        return f"{self.unit}, {self.condition}"


@dataclass(frozen=True)
class SessionDesign:
    """How sessions are simulated."""

    gain: float = 1.0  # ratio of rates for the useful candidate; with 1.0 there is no useful candidate
    budget_seconds: float = BUDGET_SECONDS  # of each session
    predicts: bool = False  # there is a cost model; its errors are as large as those of the real one (`error_of`)
    max_resumptions: int = 0  # number of sessions that may continue one


AA_DESIGN = SessionDesign()
"""Sessions without a gain and without a cost model, with the default budget."""

SCENES = tuple(Scene(unit, condition) for unit in UNITS for condition in CONDITIONS)


@dataclass(frozen=True)
class SessionOutcome:
    """The outcome of one session."""

    scene: Scene
    chosen: bool  # a candidate is in the plan
    confirmed: bool  # the plan was confirmed
    found: bool  # the useful candidate is in the confirmed plan
    decided: bool  # a plan was accepted or rejected by its pairs
    seconds: float
    likely: bool = False  # nothing was proven, but a plan was called likely
    likely_right: bool = False  # that plan has a gain

    @property
    def accepted(self) -> bool:
        """Whether anything was accepted, in search or confirmation."""
        return self.chosen or self.confirmed


def simulate_session(scene: Scene, design: SessionDesign = AA_DESIGN, *, seed: int) -> SessionOutcome:
    """Simulates one session, and the ones that continue it while it proves nothing but leaves a candidate.

    Args:
        scene: what is measured, and under what noise.
        design: the gain of the useful candidate, and what a session may use.
        seed: seed of the noise, of the position of the useful candidate, and of the model's errors.
    """
    gain = design.gain
    series = recorded.load()
    clock = FakeClock()
    place = seed % CANDIDATES
    names = [USEFUL if position == place and gain != 1.0 else f"useless-{position}" for position in range(CANDIDATES)]
    runner = ReplayRunner(
        clock,
        input=series.series_for("input", scene.condition),
        training=series.series_for("training", scene.condition) if scene.unit == "training" else None,
        seed=seed,
        gain=lambda plan: gain if _is_useful(plan) else 1.0,
    )
    draw = random.Random(seed)
    true_logs = {name: math.log(gain) if name == USEFUL else 0.0 for name in names}
    predicted_logs = {name: draw.gauss(log, error_of(log)) for name, log in true_logs.items()}

    def expected(plan: Plan) -> Prediction:
        return Prediction(1000 * math.exp(sum(predicted_logs[one.rule] for one in plan.rewrites)), 1e-3)

    def run_search(earlier: EarlierRace | None, number: int) -> tuple[SearchResult, TimePlan]:
        settings = Settings(budget_seconds=design.budget_seconds, seed=seed + number)
        budget = TimePlan(design.budget_seconds, clock)
        clock.advance(budget.ends(Part.PREPARATION))  # verdict and preparation used up their parts
        state = SearchState(
            [rewrite(name) for name in names],
            runner,
            baselines=_BASELINES,
            settings=settings,
            randomness_fixed=False,
            clock=clock,
            budget=budget,
            expected=expected if design.predicts else lambda plan: Prediction(),
        )
        return search(state, earlier=earlier), budget

    settings = Settings(budget_seconds=design.budget_seconds, seed=seed)
    result, budget = run_search(None, 0)
    resumptions = 0
    while result.chosen is None and result.candidate is not None and resumptions < design.max_resumptions:
        earlier = earlier_race(result.candidate, result.trials, resumptions=resumptions)
        resumptions += 1
        result, budget = run_search(earlier, resumptions)
    confirmed = False
    if result.chosen is not None:
        confirmed = confirm(
            result.chosen,
            runner,
            baselines=_BASELINES,
            settings=settings,
            seconds=budget.left(Part.VERIFICATION),
            clock=clock,
        ).confirmed
    likely = result.candidate is not None and result.candidate.likely
    return SessionOutcome(
        scene,
        chosen=result.chosen is not None,
        confirmed=confirmed,
        found=confirmed and _is_useful(result.chosen),
        decided=any(
            trial.kind == "search" and trial.ratios and trial.outcome in (Outcome.ACCEPTED, Outcome.REJECTED)
            for trial in result.trials
        ),
        seconds=budget.spent(),
        likely=likely,
        likely_right=likely and result.candidate is not None and _is_useful(result.candidate.plan),
    )


def _is_useful(plan: Plan | None) -> bool:
    return plan is not None and any(rewrite.rule == USEFUL for rewrite in plan.rewrites)


def simulate_sessions(
    count: int,
    design: SessionDesign = AA_DESIGN,
    *,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[SessionOutcome]:
    """Simulates sessions in all scenes in turn. Each takes a few milliseconds.

    Args:
        count: number of sessions.
        design: as for `simulate_session`.
        seed: the seeds of the sessions are derived from it.
        progress: called with the number of finished sessions after every 200.
    """
    outcomes = []
    for number in range(count):
        outcomes.append(simulate_session(SCENES[number % len(SCENES)], design, seed=seed * 1_000_003 + number))
        if len(outcomes) % 200 == 0:
            progress(len(outcomes))
    return outcomes


@dataclass(frozen=True)
class Share:
    """The share of sessions with some property, and its exact 95 % interval (Clopper and Pearson, 1934)."""

    sessions: int
    count: int  # those with the property
    low: float
    high: float


def share(count: int, sessions: int) -> Share:
    """Returns the share with its interval.

    Raises:
        ValueError: there are no sessions.
    """
    if sessions < 1:
        raise ValueError("there are no sessions")
    interval = stats.binomtest(count, sessions).proportion_ci(0.95, method="exact")
    return Share(sessions, count, float(interval.low), float(interval.high))


def share_by_scene(outcomes: Sequence[SessionOutcome], predicate: Callable[[SessionOutcome], bool]) -> dict[str, Share]:
    """Returns by scene the share of sessions for which `predicate` is true."""
    total = Counter(one.scene.name for one in outcomes)
    counts = Counter(one.scene.name for one in outcomes if predicate(one))
    return {name: share(counts[name], sessions) for name, sessions in total.items()}
