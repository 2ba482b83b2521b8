"""Sessions with invented times, shared by the tests of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.recorded import FakeClock, FakeRunner, Noise, rewrite
from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import RunFailed
from pipetune.core.results import Prediction, RejectionReason, Trial
from pipetune.core.settings import Settings
from pipetune.core.time_plan import TimePlan
from pipetune.search.evidence import Expected
from pipetune.search.race import EarlierRace
from pipetune.search.result import SearchResult
from pipetune.search.search import search
from pipetune.search.state import SearchState

BASELINES = {name: Plan(name) for name in ("off", "defaults", "autotune")}


def product(gains: Mapping[str, float]) -> Callable[[Plan], float]:
    """The gains of a plan's rewrites (by key) and of baselines (by plan name), multiplied."""

    def gain(plan: Plan) -> float:
        total = gains.get(plan.name, 1.0)
        for part in plan.rewrites:
            total *= gains.get(part.key, 1.0)
        return total

    return gain


def expecting(gains: Mapping[str, float], *, cpu: float = 1.0, why: str = "") -> Expected:
    """A model that expects these gains, as `product` multiplies them, or cannot tell."""
    predicted = product(gains)

    def expected(plan: Plan) -> Prediction:
        return Prediction(why=why) if why else Prediction(1600 * predicted(plan), cpu)

    return expected


def quiet(seed: int = 0) -> Noise:
    """A machine of one's own."""
    return Noise(spread=0.01, seed=seed)


def shared(seed: int) -> Noise:
    """A machine others work on a little."""
    return Noise(spread=0.03, wander=0.03, wander_seconds=8, drift=0.01, spike_share=0.01, seed=seed)


def rough(seed: int) -> Noise:
    """A machine others work on a lot."""
    return Noise(spread=0.05, wander=0.08, wander_seconds=4, drift=0.03, spike_share=0.05, spike=1.8, seed=seed)


def rewrites(names: Iterable[str]) -> list[Rewrite]:
    return [rewrite(name) for name in names]


class Scene:
    """One session: a runner, and what to hand to `search`."""

    def __init__(
        self,
        candidates: Sequence[Rewrite] | str,
        runner: FakeRunner,
        *,
        expected: Expected | Mapping[str, float] | None = None,
        earlier_race: EarlierRace | None = None,
        **others: Any,
    ) -> None:
        """`expected`: a model, or the gains that it expects; `others`: settings, or as `SearchState` takes them."""
        if expected is not None:
            others["expected"] = expected if callable(expected) else expecting(expected)
        asked = {name: others.pop(name) for name in ("budget_seconds", "seed", "allow") if name in others}
        self.settings = Settings(**{"budget_seconds": 300.0, **asked})
        self.candidates = rewrites(candidates) if isinstance(candidates, str) else candidates
        self.runner, self.budget_seconds = runner, self.settings.budget_seconds
        self.earlier_race, self.others = earlier_race, {"randomness_fixed": False, **others}
        self.events: list[tuple[str, object]] = []

    def run(self) -> SearchResult:
        return search(self.state(), earlier=self.earlier_race)

    def ran(self) -> tuple[SearchResult, Scene]:
        return self.run(), self

    def state(self) -> SearchState:
        """At the start of the search, whose budget begins now."""
        self.budget = TimePlan(self.budget_seconds, self.runner.clock)
        told = {"baselines": BASELINES, "settings": self.settings, "notify": self.notify, **self.others}
        return SearchState(self.candidates, self.runner, clock=self.runner.clock, budget=self.budget, **told)

    def notify(self, event: str, /, **details: object) -> None:
        self.events.append((event, details))

    def seconds(self) -> float:
        return self.budget.spent()


def runner(
    gains: Mapping[str, float] | None = None,
    *,
    noise: Noise | None = None,
    failing: Callable[[Plan], str] = lambda plan: "",
    **changes: object,
) -> FakeRunner:
    """`failing`: why windows of a plan fail, or ""."""
    made = FakeRunner(FakeClock(), gain=product(gains or {}), noise=noise or quiet())
    for name, value in changes.items():
        setattr(made, name, value)
    by_key = made._fail

    def fail(plan: Plan) -> None:
        by_key(plan)
        if why := failing(plan):
            raise RunFailed(why)

    made._fail = fail  # type: ignore[method-assign]
    return made


def apart(*rules: str) -> Callable[[Sequence[Rewrite]], str]:
    return lambda parts: "they exclude each other" if set(rules) <= {part.rule for part in parts} else ""


def names(plan: Plan | None) -> list[str]:
    return [part.rule for part in plan.rewrites] if plan else []


def of_key(trials: Iterable[Trial], key: str) -> list[Trial]:
    return [trial for trial in trials if trial.plan.key == key]


def reasons(found: SearchResult) -> dict[str, RejectionReason | None]:
    """Why each rewrite is not in the plan, by rule."""
    return {rejection.rule: rejection.reason for rejection in found.rejections}


def whys(found: SearchResult) -> dict[str, str]:
    return {rejection.rule: rejection.why for rejection in found.rejections}
