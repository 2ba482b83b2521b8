"""The last measurement of a plan: how many pairs, in which order and unit, and what counts as confirmed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.recorded import FakeRunner, rewrite
from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, RunFailed, Window
from pipetune.core.results import Outcome, Trial
from pipetune.core.settings import Settings
from pipetune.search.confirmation import LOOKS, Confirmation, confirm
from tests.search.scenes import BASELINES, quiet, rough, runner, shared

PLAN = Plan("tuned", (rewrite("a"),))


def confirmed(
    made: FakeRunner | BesideNeighbour, *, steps: int | None = None, seed: int = 0, **more: Any
) -> Confirmation:
    if isinstance(made, FakeRunner):
        more = {"seconds": 300, "bound_step_seconds": 0.012, "clock": made.clock, **more}
    return confirm(PLAN, made, baselines=BASELINES, settings=Settings(steps=steps, seed=seed), **more)


def training(gain: float, *, autotune: float = 1.1, **changes: Any) -> FakeRunner:
    """Steps of 20 ms as written: the input holds them back."""
    return runner({"a@n1": gain, "autotune": autotune}, noise=quiet(1), step_seconds=0.002, **changes)


def claim(low: float, high: float, unit: str = "training") -> Trial:
    return Trial(PLAN, Outcome.ACCEPTED, "", gain=Interval((low + high) / 2, low, high, 8), unit=unit)


def test_a_faster_plan_is_confirmed_by_six_pairs_of_training_steps() -> None:
    found = confirmed(training(1.5))
    assert found.confirmed and found.unit == "training" and found.gain is not None
    assert found.gain.low < 1.5 < found.gain.high and found.gain.pairs == len(found.pairs) == 6
    assert found.training is not None and found.training.speedup == found.gain
    assert found.training.defaults_step_ms == pytest.approx(20, rel=0.03)
    assert found.training.tuned_step_ms == pytest.approx(20 / 1.5, rel=0.03)
    assert found.training.bound_step_ms == pytest.approx(12)
    assert f"{found.gain.median:.2f} times as fast" in found.why and "6 pairs" in found.why


def test_a_plan_that_makes_training_slower_is_not_confirmed_nor_measured_further() -> None:
    made = training(0.54)
    heard: list[str] = []
    found = confirmed(made, notify=lambda event, **_: heard.append(event))
    assert not found.confirmed and found.why.startswith("It is slower: 0.5")
    assert found.trial(PLAN, kind="verification").outcome is Outcome.REJECTED
    assert "proven" not in heard and {key for _, key in made.windows} == {"defaults", "a@n1"}, "it ends there"


def test_where_nothing_trains_the_input_alone_decides_and_three_percent_do_not_count() -> None:
    found = confirmed(runner({"a@n1": 1.5}, noise=quiet()))
    assert found.confirmed and (found.unit, found.training) == ("input", None)
    assert found.input_speedup == found.gain
    assert not confirmed(runner({"a@n1": 1.02}, noise=quiet())).confirmed


def test_an_input_that_is_faster_for_nothing_is_not_confirmed() -> None:
    """A step of 50 ms does not wait for an element that takes 20 ms."""
    busy = confirmed(runner({"a@n1": 2.0}, noise=quiet(), step_seconds=0.05))
    assert not busy.confirmed and busy.gain is not None and busy.gain.high < 1.03


@pytest.mark.parametrize("noise", [shared, rough])
def test_what_makes_no_difference_is_hardly_ever_confirmed(noise: Callable[[int], object]) -> None:
    """At most 2.5 % of the time, however many looks: of 120 more than 9 would be a chance of one in 1,000."""
    found = [confirmed(runner(noise=noise(seed), step_seconds=0.002), seed=seed) for seed in range(120)]
    assert sum(one.confirmed for one in found) <= 9
    assert {one.gain.pairs for one in found if one.gain} <= set(LOOKS)


def test_what_six_pairs_leave_open_takes_more_of_them_and_is_found() -> None:
    found = [confirmed(runner({"a@n1": 1.15}, noise=rough(seed), step_seconds=0.002), seed=seed) for seed in range(80)]
    pairs = [one.gain.pairs for one in found if one.gain]
    assert set(pairs) == set(LOOKS)
    assert sum(one.confirmed for one in found) >= 36


def test_more_pairs_are_taken_only_within_the_budget() -> None:
    found = [confirmed(runner({"a@n1": 1.15}, noise=rough(seed), step_seconds=0.002), seconds=5) for seed in range(10)]
    assert {one.gain.pairs for one in found if one.gain} == {6}


def test_each_pair_has_a_window_of_both_in_an_order_of_its_own() -> None:
    made = training(1.5)
    found = confirmed(made, seconds=1)
    taken = [key for _, key in made.windows]
    assert taken[:2] == ["defaults", "a@n1"], "one of each is thrown away"
    orders = [tuple(taken[2 + 2 * number : 4 + 2 * number]) for number in range(6)]
    assert {frozenset(order) for order in orders} == {frozenset({"defaults", "a@n1"})}
    assert len(set(orders)) == 2
    assert [pair.tuned_first for pair in found.pairs] == [order[0] == "a@n1" for order in orders]
    assert confirmed(training(1.5), seconds=1) == found, "drawn by the seed"
    again = [confirmed(training(1.5), seconds=1, seed=seed).pairs for seed in (1, 2)]
    assert len({tuple(pair.tuned_first for pair in pairs) for pairs in (found.pairs, *again)}) > 1


def test_every_window_says_what_it_took() -> None:
    trial = confirmed(training(1.5)).trial(PLAN, kind="verification")
    assert len(trial.windows) == len(trial.ratios) == 6
    for pair, ratio in zip(trial.windows, trial.ratios, strict=True):
        assert pair.original.step_seconds / pair.tuned.step_seconds == pytest.approx(ratio)
        assert pair.tuned.cpu_seconds_per_example > 0 and not pair.tuned.intervals


@pytest.mark.parametrize(
    ("gain", "asked", "steps"), [(1.5, None, 30), (6.0, None, 45), (1.5, 7, 7)], ids=["0.6 s", "0.15 s", "as asked for"]
)
def test_a_window_is_long_enough_for_both(gain: float, asked: int | None, steps: int) -> None:
    """As many steps of both: 0.6 s of the slower, and 0.15 s of the faster at least."""
    found = confirmed(training(gain), seconds=1, steps=asked)
    assert found.pairs[0].tuned.steps == found.pairs[0].original.steps == pytest.approx(steps, rel=0.1)


@pytest.mark.parametrize(
    ("epoch", "first_seconds", "steps"),
    [(40, 0.2, 40), (500, 0.2, 30), (40, 0.02, 30)],
    ids=["short", "long", "short, and soon begun"],
)
def test_a_window_covers_whole_epochs_where_their_start_counts(epoch: int, first_seconds: float, steps: int) -> None:
    made = training(1.5, epoch_steps=epoch, first_seconds=first_seconds)
    assert confirmed(made, seconds=30).pairs[0].tuned.steps == pytest.approx(steps, rel=0.1)


def test_a_window_has_as_many_whole_epochs_as_there_is_time_for() -> None:
    made = training(1.5, epoch_steps=20, first_seconds=0.2)
    assert [confirmed(made, seconds=seconds).pairs[0].tuned.steps for seconds in (30, 8)] == [40, 20]


def test_where_whole_epochs_take_too_long_the_first_element_of_a_window_counts_once_an_epoch() -> None:
    found = confirmed(training(1.5, epoch_steps=40, first_seconds=0.2), seconds=8)
    assert found.pairs[0].tuned.steps == pytest.approx(30, rel=0.1)
    assert found.gain is not None and found.training is not None
    original, tuned = 0.2 + 39 * 0.020, 0.2 + 39 * 0.020 / 1.5
    assert found.gain.median == pytest.approx(original / tuned, rel=0.02)
    assert found.training.defaults_step_ms == pytest.approx(1000 * original / 40, rel=0.03)
    assert found.trial(PLAN, kind="verification").ratios == found.ratios


@pytest.mark.parametrize(
    ("claimed", "holds"),
    [(claim(1.4, 1.7), True), (claim(1.1, 1.2), True), (claim(2.0, 2.4), False), (claim(2.0, 2.4, "input"), True)],
    ids=["as claimed", "more than claimed", "less than claimed", "claimed of the input"],
)
def test_what_is_faster_by_less_than_was_claimed_is_measured_for_longer_and_told(claimed: Trial, holds: bool) -> None:
    found = confirmed(training(1.5), claimed=claimed)
    assert found.confirmed and found.gain is not None
    assert (found.gain.pairs == LOOKS[0]) is holds
    assert found.why.endswith(" The search had measured 2.00 to 2.40.") is not holds


def test_a_plan_that_fails_now_is_not_confirmed() -> None:
    found = confirmed(runner(fails={"a@n1": "killed"}))
    assert not found.confirmed and found.why == "It was not measured: tuned: killed."
    assert found.trial(PLAN, kind="verification").outcome is Outcome.FAILED


def test_a_script_whose_steps_cannot_be_timed_any_more_is_measured_by_its_input() -> None:
    class Ended(FakeRunner):
        def training_window(self, plan: Plan, *, steps: int) -> object:
            raise RunFailed("the loop has ended")

    made = Ended(training(1.5).clock, lambda plan: 1.5 if plan.rewrites else 1.0, step_seconds=0.002, noise=quiet())
    assert (confirmed(made).confirmed, confirmed(made).unit) == (True, "input")


@pytest.mark.parametrize(("low", "median", "shorter"), [(1.25, 1.5, True), (1.04, 1.1, False)])
def test_a_clear_gain_is_proven_by_short_windows(low: float, median: float, shorter: bool) -> None:
    def seconds(claimed: Trial | None) -> float:
        made = training(1.5, first_seconds=1.5)
        began = made.clock.now()
        assert confirmed(made, claimed=claimed, beside_seconds=0).confirmed
        return made.clock.now() - began

    gain = Interval(median, low, 2.0, pairs=8, method="")
    claimed = Trial(PLAN, Outcome.ACCEPTED, "", gain=gain, unit="training")
    assert (seconds(claimed) < 0.8 * seconds(None)) is shorter


# -- beside the decision


def test_with_time_left_autotune_and_the_input_alone_are_measured_too() -> None:
    heard: list[str] = []
    found = confirmed(training(1.5, autotune=1.2), notify=lambda event, **_: heard.append(event))
    assert heard.count("pair") == len(found.pairs) and heard.count("proven") == 1
    assert set(heard[heard.index("proven") + 1 :]) == {"trying"}, "the proof is told before what only informs"
    assert found.input_speedup is not None and found.input_speedup.median == pytest.approx(1.5, rel=0.05)
    assert found.input_speedup_over_autotune is not None
    assert found.training is not None and found.training.speedup_over_autotune is not None
    assert found.training.speedup_over_autotune.median == pytest.approx(1.25, rel=0.05)
    assert found.training.autotune_step_ms == pytest.approx(20 / 1.2, rel=0.05)
    assert set(found.rates) == {"defaults", "autotune", "tuned"}


@pytest.mark.parametrize(("most", "units"), [(0.0, set()), (7.5, {"input"}), (1000.0, {"input", "training"})])
def test_only_what_is_whole_in_the_time_is_measured_beside_the_decision(most: float, units: set[str]) -> None:
    made = training(1.5)
    found = confirmed(made, beside_seconds=most)
    assert found.confirmed
    beside = made.windows[2 + 2 * len(found.pairs) :]
    assert {unit for unit, _ in beside} == units
    assert ("input" in units) == bool(found.rates) == (found.input_speedup is not None)
    assert ("input", "autotune") in beside or most < 1000


def test_autotune_that_fails_does_not_matter() -> None:
    found = confirmed(training(1.5, failing=lambda plan: "out of threads" if plan.name == "autotune" else ""))
    assert found.confirmed and found.input_speedup_over_autotune is None


# -- one after the other


def test_one_at_a_time_they_are_visited_abba_and_the_first_window_of_a_visit_does_not_count() -> None:
    firsts = set()
    for seed in range(8):
        made = training(1.5)
        visits = lambda plan, made=made: made.windows.append(("visit", plan.key))  # noqa: E731
        found = confirmed(made, visit=visits, step_seconds=0.02, seed=seed)
        assert found.confirmed and found.gain is not None and found.gain.pairs == 6
        first, second, *rest = [key for unit, key in made.windows if unit == "visit"]
        assert {first, second} == {"defaults", "a@n1"} and rest == [second, first]
        each = [unit for unit, _ in made.windows][: len(made.windows) // 4]
        assert each == ["visit", "training", *["training"] * 3, "input"]
        assert [pair.tuned_first for pair in found.pairs] == [first == "a@n1"] * 3 + [first != "a@n1"] * 3
        assert set(found.rates) == {"defaults", "tuned"}
        assert found.input_speedup is None, "two windows of each are too few"
        firsts.add(first)
    assert firsts == {"defaults", "a@n1"}, "which comes first is drawn"


def test_slow_steps_are_confirmed_in_windows_of_few() -> None:
    """Windows of five steps of 0.8 s, and of ten before them, took twice what a verification has."""
    made = runner({"a@n1": 2.0}, noise=quiet(), step_seconds=0.05, batch_seconds=0.8, first_seconds=0.1)
    began = made.clock.now()
    found = confirmed(made, seconds=15, step_seconds=0.8, beside_seconds=0)
    assert found.confirmed and len(found.pairs) == 6
    assert made.clock.now() - began < 20


class BesideNeighbour:
    """Two cores, one taken by another process in half of the windows, or in all: the tuned plan uses both, else one.

    Training windows of 20 ms a step as written; the tuned plan is twice as fast while nobody else runs.
    """

    trains, epoch_steps, pause = True, None, None

    def __init__(self, *, always: bool = False) -> None:
        self.taken, self.always = 0, always

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        raise RunFailed("only training windows are taken")

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        self.taken += 1
        others = float(self.always or self.taken % 4 > 1)
        cores = 1.0 if plan is not PLAN else 2.0 - others
        seconds = steps * 0.02 / cores
        return Window(steps, steps, seconds, cores * seconds, 0.1, others_seconds=others * seconds, cores=2)


def test_gain_beside_a_neighbour_is_that_without_it_and_both_are_told() -> None:
    found = confirmed(BesideNeighbour(), seed=1, seconds=60, beside_seconds=0)
    assert found.confirmed and found.gain is not None and found.training is not None
    assert found.ratios == pytest.approx([2.0] * 6)
    assert found.training.tuned_step_ms == pytest.approx(10)
    raw = [pair.tuned.examples_per_second / pair.original.examples_per_second for pair in found.pairs]
    assert {round(one, 3) for one in raw} == {1.0, 2.0}, "the pairs are kept as they were measured"
    assert f"without the other processes of this machine; with them {statistics.median(raw):.2f}" in found.why


@pytest.mark.parametrize(
    ("unit", "usable", "ratio"),
    [("training", (2.0, 1.0), 2.0), ("training", (None, 1.0), 1.0), ("input", (2.0, 1.0), 1.0)],
    ids=["the search saw both alone", "never the plan", "another unit"],
)
def test_where_no_window_is_quiet_the_search_has_shown_what_a_plan_can_use(unit, usable, ratio) -> None:
    claimed = replace(claim(1.8, 2.2, unit), usable_cores=usable)
    found = confirmed(BesideNeighbour(always=True), seconds=60, claimed=claimed, beside_seconds=0)
    assert found.ratios == pytest.approx([ratio] * len(found.ratios)) and found.confirmed is (ratio > 1)
