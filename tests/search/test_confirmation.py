"""The confirmation: fresh numbers, a fixed number of rounds, and what counts as confirmed."""

from __future__ import annotations

import pytest

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, Outcome, RunFailed
from pipetune.core.settings import Settings
from pipetune.search.budget import Budget
from pipetune.search.confirmation import Confirmation, confirm
from pipetune.search.result import SearchResult
from pipetune.testing.runner import FakeRunner, rewrite
from tests.search.scenes import BASELINES, Scene, rewrites, runner, shared

PLAN = Plan("tuned", (rewrite("a"),))


def confirmed(
    made: FakeRunner, *, seconds: float = 300, pairs: int | None = None, **more: object
) -> Confirmation:
    return confirm(
        PLAN,
        made,
        baselines=BASELINES,
        settings=Settings(),
        budget=Budget(seconds, made.clock),
        clock=made.clock,
        pairs=pairs,
        **more,  # type: ignore[arg-type]
    )


def test_a_faster_plan_is_confirmed_against_both_baselines() -> None:
    found = confirmed(runner({"a@n1": 1.5, "autotune": 1.2}, noise=shared(1)))
    assert found.confirmed
    assert found.input_speedup is not None and found.input_speedup_over_autotune is not None
    assert found.input_speedup.low < 1.5 < found.input_speedup.high
    assert found.input_speedup_over_autotune.low < 1.25 < found.input_speedup_over_autotune.high
    assert set(found.rates) == {"defaults", "autotune", "tuned"}
    assert found.training is not None and found.training.speedup is None and found.training.why


def test_no_gain_is_not_confirmed() -> None:
    confirmations = [confirmed(runner(noise=shared(seed))) for seed in range(20)]
    assert not any(found.confirmed for found in confirmations)
    assert all(found.trials[0].outcome is Outcome.REJECTED for found in confirmations)


def test_a_gain_within_three_percent_is_not_confirmed() -> None:
    assert not confirmed(runner({"a@n1": 1.02}), pairs=16).confirmed


def test_the_training_step_decides_where_processors_are_shared() -> None:
    gains = {"a@n1": 2.0, "autotune": 1.1}
    starving = confirmed(runner(gains, step_seconds=0.012, shares_processors=True), bound_step_seconds=0.012)
    assert starving.confirmed
    assert starving.training is not None and starving.training.speedup is not None
    assert starving.training.defaults_step_ms == pytest.approx(20, rel=0.03)
    assert starving.training.tuned_step_ms == pytest.approx(12, rel=0.03)
    assert starving.training.autotune_step_ms == pytest.approx(18.2, rel=0.03)
    assert starving.training.bound_step_ms == pytest.approx(12)
    busy = confirmed(runner(gains, step_seconds=0.05, shares_processors=True))
    assert not busy.confirmed
    assert busy.input_speedup is not None and busy.input_speedup.low > 1.9
    accelerator = confirmed(runner(gains, step_seconds=0.05, shares_processors=False))
    assert accelerator.confirmed


def test_the_number_of_rounds_is_what_the_time_allows_within_bounds() -> None:
    assert confirmed(runner(), seconds=10_000).rounds == 16
    assert confirmed(runner(), seconds=1).rounds == 5
    assert confirmed(runner(), pairs=7).rounds == 7
    between = confirmed(runner(), seconds=60).rounds
    assert 5 < between < 16


def test_noise_in_the_search_asks_for_more_rounds_than_the_time_holds() -> None:
    def rounds(low: float, high: float, *, unit: str = "input", seconds: float = 40.0) -> int:
        gain = Interval(1.4, low, high, 8)
        return confirmed(runner(), seconds=seconds, found=SearchResult(PLAN, "", gain=gain, unit=unit)).rounds

    usual = confirmed(runner(), seconds=40).rounds
    assert usual < rounds(1.39, 1.41) == rounds(1.2, 1.6) < 12  # by what may be overrun
    assert rounds(1.2, 1.6, unit="training") == usual  # says nothing of the input's noise
    assert rounds(1.2, 1.6, seconds=1000) == 16


def test_a_quiet_search_does_not_make_a_short_confirmation() -> None:
    quiet_search = SearchResult(PLAN, "", gain=Interval(1.4, 1.39, 1.41, 8), unit="input")
    louder = SearchResult(PLAN, "", gain=Interval(1.4, 1.33, 1.47, 8), unit="input")
    assert confirmed(runner(), seconds=60).rounds < confirmed(runner(), seconds=60, found=quiet_search).rounds == 12
    assert confirmed(runner(), seconds=60, found=louder).rounds > 12


def test_every_round_measures_each_contender_once_in_an_order_of_its_own() -> None:
    made = runner()
    found = confirmed(made, pairs=12)
    keys = [key for _, key in made.windows][-3 * found.rounds :]
    orders = [tuple(keys[start : start + 3]) for start in range(0, len(keys), 3)]
    assert {frozenset(order) for order in orders} == {frozenset({"defaults", "autotune", "a@n1"})}
    assert len(set(orders)) > 2


def test_a_failing_autotune_baseline_is_left_out() -> None:
    made = runner({"a@n1": 1.5})
    fail = made._fail

    def failing(plan: Plan) -> None:
        fail(plan)
        if plan.name == "autotune":
            raise RunFailed("out of threads")

    made._fail = failing  # type: ignore[method-assign]
    found = confirmed(made)
    assert found.confirmed
    assert found.input_speedup_over_autotune is None


def test_a_plan_that_fails_now_is_not_confirmed() -> None:
    found = confirmed(runner(fails={"a@n1": "killed"}))
    assert not found.confirmed and "killed" in found.why


def test_what_the_search_learned_about_windows_is_used() -> None:
    scene = Scene(rewrites("a"), runner({"a@n1": 1.5}), budget_seconds=200)
    result = scene.run()
    assert result.chosen is not None
    before = len(scene.runner.windows)
    found = confirm(
        result.chosen,
        scene.runner,
        baselines=BASELINES,
        settings=scene.settings,
        budget=scene.budget,
        found=result,
        clock=scene.runner.clock,
    )
    assert found.confirmed
    assert len(scene.runner.windows) - before == 3 * found.rounds  # no round thrown away
    assert scene.budget.spent() < 1.1 * 200
