"""The search, one behaviour at a time, on a runner with invented times; and the gate of equality."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.recorded import Noise, rewrite
from pipetune.core.edits import Consent, Insert, Plan, Remove, Rewrite, Safety
from pipetune.core.measurement import Pause, RunFailed
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.results import Comparison, EqualityCheck, Outcome, RejectionReason
from pipetune.core.time_plan import TimePlan
from pipetune.search.meter import EarlierWindows, Meter
from pipetune.search.result import name_of
from pipetune.search.runner import EqualityGate
from tests.search.scenes import Scene, apart, names, of_key, quiet, reasons, rewrites, runner, shared, whys


def test_the_plan_is_what_pays_in_the_order_of_the_candidates_compared_as_it_is() -> None:
    found, scene = Scene("abcde", runner({"a@n1": 1.3, "b@n1": 0.5, "c@n1": 1.5, "d@n1": 0.95}, noise=shared(3))).ran()
    assert found.chosen is not None and names(found.chosen) == ["a", "c"]
    assert found.gain is not None and found.gain.low > 1.03
    assert set(found.gains) >= {"a@n1", "c@n1"}
    assert found.gains["c@n1"].median == pytest.approx(1.5, rel=0.06)
    assert found.comparison is not None and found.comparison.equal and found.chosen.key in scene.runner.compared
    assert reasons(found).keys() == {"b", "d", "e"}


def test_rewrites_that_stand_for_each_other_are_not_both_dropped() -> None:
    made = runner(compare_seconds=0.1)
    made.gain = lambda plan: 1.5 if plan.rewrites else 1.0
    assert len(names(Scene("ab", made).run().chosen)) == 1


FAST, SPARING = rewrite("fast"), replace(rewrite("sparing"), predicted_bytes=-(2.0**27))
AHEAD = Rewrite("prefetch", "n1", Safety.EXACT, (Insert("n1", "prefetch", "prefetch@n1"),), "reads ahead")
BOTH_FIT_ALONE = {"predicted_bytes_by_key": {"a@n1": 6e8, "b@n1": 6e8}}


@pytest.mark.parametrize(("candidates", "gains", "machine", "limits", "chosen"), [
    ("abcdef", {"a@n1": 3.0}, {}, {"budget_seconds": 34}, ["a"]),  # no time to grow a plan
    ("ab", {"a@n1": 1.3, "b@n1": 1.6}, BOTH_FIT_ALONE, {"memory_limit_bytes": 1e9}, ["b"]),  # not together
    ([rewrite("a"), rewrite("freeze", safety=Safety.REORDERS)], {"a@n1": 1.3, "freeze@n1": 4.0}, {},
     {"allow": frozenset({Consent.REORDER})}, ["a", "freeze"]),
    ([AHEAD], {AHEAD.key: 1.4}, {"unprovable": True}, {}, ["prefetch"]),  # reading ahead needs no proof of values
    # what spares memory joins a faster plan and is no plan of its own
    ([SPARING, FAST], {FAST.key: 1.4}, {}, {}, ["sparing", "fast"]),
    ([SPARING], {}, {}, {}, []),
], ids=["short", "memory", "consent", "no proof", "sparing", "sparing alone"])  # fmt: skip
def test_chosen(candidates, gains, machine, limits, chosen) -> None:
    found = Scene(candidates, runner(gains, **machine), **limits).run()
    assert names(found.chosen) == chosen and found.offers == ()


def numbers(*values: int) -> list[Rewrite]:
    return [rewrite("parallel", group="parallel@n1", number=value) for value in values]


@pytest.mark.mission("A3.curve")
@pytest.mark.parametrize(("gain", "chosen"), [(1.52, AUTOTUNE), (1.95, 2)], ids=["too little", "by the rule"])
def test_autotune_stands_unless_a_number_is_proven_faster(gain: float, chosen: int) -> None:
    gains = {"parallel@n1=-1": 1.5, "parallel@n1=2": gain, "parallel@n1=4": 1.4}
    found = Scene(numbers(2, AUTOTUNE, 4), runner(gains)).run()
    assert found.chosen is not None and found.chosen.key == f"parallel@n1={chosen}"
    proofs = [trial for trial in of_key(found.trials, "parallel@n1=2") if trial.outcome is Outcome.ACCEPTED]
    assert len(proofs) == (chosen == 2)
    for proof in proofs:
        assert proof.gain is not None and proof.gain.median == pytest.approx(1.3, rel=0.03)  # over AUTOTUNE


@pytest.mark.parametrize(("changes", "limits", "outcome", "why", "runs"), [
    ({"fails": {"b@n1": "decode_jpeg: bad data"}}, {}, Outcome.FAILED, "bad data", True),
    ({}, {"failed": {"b@n1": "killed by signal 9"}}, Outcome.FAILED, "killed by signal 9", False),
    ({"predicted_bytes_by_key": {"b@n1": 2e9}}, {"memory_limit_bytes": 1e9}, Outcome.REFUSED, "MiB", False),
], ids=["raises", "killed a worker before", "above the memory limit"])  # fmt: skip
def test_a_plan_that_cannot_run_is_a_trial_with_the_reason_and_the_search_goes_on(
    changes: dict[str, Any], limits: dict[str, Any], outcome: Outcome, why: str, runs: bool
) -> None:
    found, scene = Scene("ab", runner({"a@n1": 1.4, "b@n1": 9.0}, **changes), **limits).ran()
    assert names(found.chosen) == ["a"]
    (trial,) = of_key(found.trials, "b@n1")
    assert trial.outcome is outcome and why in trial.why
    assert why in whys(found)["b"]
    assert any("b@n1" in key for _, key in scene.runner.windows) is runs


def test_plans_that_fail_only_together_leave_the_best_of_both() -> None:
    gains = {"a@n1": 1.3, "c@n1": 1.2, "b@n1": 1.1}
    made = runner(gains, failing=lambda plan: "it raises" if {"a@n1", "b@n1"} <= set(plan.key.split("+")) else "")
    found = Scene("abc", made, expected=gains).run()
    assert names(found.chosen) == ["a", "c"]
    assert reasons(found) == {"b": RejectionReason.FAILED}


def test_a_plan_that_changes_the_data_is_rejected_however_fast() -> None:
    found = Scene("ab", runner({"a@n1": 1.3, "b@n1": 8.0}, unequal_keys=frozenset({"b@n1"}))).run()
    assert names(found.chosen) == ["a"]
    trials = [trial for trial in found.trials if "same data" in trial.why]
    assert all(trial.outcome is Outcome.REJECTED for trial in trials)
    assert trials and all("b@n1" in trial.plan.key for trial in trials)
    assert "element 3 differs" in whys(found)["b"] and reasons(found)["b"] is RejectionReason.NOT_EQUAL
    unknown = Scene("ab", runner({"a@n1": 1.4}, unprovable=True)).run()
    assert unknown.chosen is None and any("cannot be serialized" in trial.why for trial in unknown.trials)


def test_rewrites_that_conflict_are_never_in_one_window() -> None:
    found, scene = Scene("abc", runner({"a@n1": 1.3, "b@n1": 1.5, "c@n1": 1.2}), conflict=apart("a", "b")).ran()
    assert names(found.chosen) == ["b", "c"]
    assert not [key for _, key in scene.runner.windows if "a@n1" in key and "b@n1" in key]


@pytest.mark.parametrize(("fixed", "expected"), [(False, ["random"]), (True, [])])
def test_statistical_rewrites_need_consent_where_randomness_is_fixed(fixed: bool, expected: list[str]) -> None:
    candidates = [rewrite("random", safety=Safety.STATISTICAL)]
    found = Scene(candidates, runner({"random@n1": 1.6}), randomness_fixed=fixed).run()
    assert names(found.chosen) == expected
    assert [offer.consent for offer in found.offers] == (["--allow statistical"] if fixed else [])
    both = replace(rewrite("both", safety=Safety.APPROXIMATE), needs=frozenset({Consent.STATISTICAL}))  # draws, too
    scene = Scene([both], runner({"both@n1": 1.6}), randomness_fixed=fixed, allow=frozenset({Consent.APPROXIMATE}))
    found = scene.run()
    assert names(found.chosen) == ([] if fixed else ["both"])
    assert [offer.consent for offer in found.offers] == (["--allow statistical"] if fixed else [])


@pytest.mark.parametrize("shares", [True, False], ids=["shared processors", "an accelerator"])
@pytest.mark.parametrize(("bound", "ends"), [(0.01, True), (0.005, False), (None, False)])
def test_the_search_ends_where_training_hardly_waits_with_the_plan(shares, bound, ends) -> None:
    made = runner({"a@n1": 4.0, "b@n1": 1.5}, shares_processors=shares, step_seconds=0.01)
    found = Scene("ab", made, budget_seconds=60, bound_seconds=bound).run()
    raced = {trial.plan.key for trial in found.trials if trial.kind == "search" and trial.ratios}
    if ends:
        assert names(found.chosen) == ["a"]
        assert whys(found)["b"] == "with the plan, training hardly waits for the input"
    races = [key for unit, key in made.windows if key == "a@n1+b@n1" and unit == ("training" if shares else "input")]
    assert "a@n1+b@n1" in raced
    assert len(races) == 3 if ends else len(races) > 3


def test_a_budget_too_small_to_decide_is_said_to_be() -> None:
    found, scene = Scene("ab", runner({"a@n1": 1.5}, first_seconds=12.0), budget_seconds=60).ran()
    assert found.chosen is None
    assert found.budget_too_small
    assert "Nothing was proven within the 60 s" in found.why
    assert scene.seconds() < 1.05 * 60
    # There may be something to gain.
    assert reasons(found) == {"a": RejectionReason.UNDECIDED, "b": RejectionReason.NO_TIME}


def test_no_candidates_no_plan_but_rates() -> None:
    found = Scene([], runner({"off": 0.5, "autotune": 1.2})).run()
    assert found.chosen is None
    assert found.rates["autotune"].examples_per_second == pytest.approx(1.2 * 1600, rel=0.05)
    assert found.rates["off"].examples_per_second == pytest.approx(800, rel=0.05)


def test_a_pipeline_that_cannot_run_as_written_ends_the_search_with_the_reason() -> None:
    found = Scene("a", runner(failing=lambda plan: "element 500 is corrupt")).run()
    assert found.chosen is None
    assert "element 500 is corrupt" in found.why
    (one,) = found.rejections
    assert (one.why, one.undecided) == ("the search ended before it was measured in pairs", True)


@pytest.mark.parametrize(("needed", "converges"), [(0.8, True), (1e9, False)])
def test_a_window_that_has_not_converged_is_repeated_with_a_longer_warm_up(needed: float, converges: bool) -> None:
    """Short windows only screen. What never converges counts as it is, and is named."""
    found, scene = Scene("ab", runner({"a@n1": 1.4}, warm_up_needed={"a@n1": needed})).ran()
    assert names(found.chosen) == ["a"]
    warm_ups = [seconds for key, seconds in scene.runner.warm_ups if key == "a@n1"]
    first = warm_ups.index(1.0)
    assert set(warm_ups[:first]) == {0.5}
    assert set(warm_ups[first + 1 :]) == {1.0 if converges else 0.5}, "the longer one is remembered where it helped"
    assert any("never stood still under a" in note for note in found.notes) is not converges


@pytest.mark.parametrize(("shares", "step_seconds", "unit", "gain"), [
    (True, 0.05, "training", None),  # the input alone gains threefold, but the model is what training waits for
    (True, 0.01, "training", 2.0),
    (False, 0.05, "input", 3.0),
    (True, None, "input", 3.0),  # the loop was never switched
])  # fmt: skip
def test_training_windows_decide_where_processors_are_shared(shares, step_seconds, unit, gain) -> None:
    found = Scene("a", runner({"a@n1": 3.0}, shares_processors=shares, step_seconds=step_seconds)).run()
    assert (found.unit, names(found.chosen)) == (unit, [] if gain is None else ["a"])
    assert gain is None or (found.gain is not None and found.gain.median == pytest.approx(gain, rel=0.05))


def test_the_seed_makes_a_session_repeatable() -> None:
    one, two = (Scene("abc", runner({"a@n1": 1.4}, noise=quiet(7)), seed=3).run() for _ in range(2))
    assert one == two


def test_the_listener_hears_each_plan_before_it_runs_and_each_trial() -> None:
    found, scene = Scene("ab", runner({"a@n1": 1.4})).ran()
    trying = [details["plan"].key for event, details in scene.events if event == "trying"]
    assert set(trying) >= {key for _, key in scene.runner.windows}
    heard = [details["trial"] for event, details in scene.events if event == "trial"]
    ended = [replace(trial, predicted=None, measured=None) for trial in found.trials]  # told at the end
    assert sorted(map(repr, heard)) == sorted(map(repr, ended))


def test_time_reserved_for_the_confirmation_is_left_once_a_plan_is_proven() -> None:
    for seed in range(2):
        candidates = [*rewrites("abcdefgh"), rewrite("offer", safety=Safety.REORDERS)]
        scene = Scene(candidates, runner({"a@n1": 1.5}, noise=shared(seed)), budget_seconds=120)
        assert "a" in names(scene.run().chosen)
        assert scene.seconds() <= 0.85 * 120


def test_a_small_budget_still_decides_on_one_large_gain() -> None:
    """Long windows, little time: they are shortened, and the time of the ablation nobody needs is used."""
    for seed in range(2):
        made = runner({"a@n1": 3.0}, noise=shared(seed), shares_processors=True, step_seconds=0.004)
        assert "a" in names(Scene("abcdef", made, budget_seconds=60.0, seed=seed).run().chosen)


@pytest.mark.parametrize(
    ("key", "words"), [("cache@n3+prefetch@n4", "cache + prefetch"), ("baseline-autotune@n5:-1", "AUTOTUNE everywhere")]
)
def test_a_plan_that_never_converges_has_the_name_that_the_report_gives_it(key: str, words: str) -> None:
    assert name_of(key) == words


@pytest.mark.parametrize(("epoch", "steps"), [(None, 100), (10, 100), (55, 110), (150, 150), (1000, 100)])
def test_training_windows_cover_whole_epochs_where_they_are_short(epoch, steps) -> None:
    made = runner(step_seconds=0.01, batch_seconds=0.02, epoch_steps=epoch, noise=Noise(spread=0.0))
    meter = Meter(made, made.clock, budget=TimePlan(400, made.clock), window_seconds=1.0)
    meter.choose_steps(Plan("defaults"), steps=None)
    assert meter.steps == steps
    meter.shorten("training", seconds=0.1)
    assert meter.steps <= steps and (epoch in (None, 1000) or meter.steps % epoch == 0)


@pytest.mark.parametrize(("pause", "seconds", "steps", "misses"), [
    (Pause(70, 0.3), 400, 210, False),  # three of them
    (Pause(500, 5.0), 400, 500, False),  # few pairs, but each has one
    (Pause(500, 5.0), 100, 178, True),
    (Pause(500, 0.05), 100, 178, False),  # it takes 1 % of training
])  # fmt: skip
def test_training_windows_reach_the_pauses_of_the_input_if_there_is_time(pause, seconds, steps, misses) -> None:
    made = runner(step_seconds=0.01, batch_seconds=0.01, pause=pause, noise=Noise(spread=0.0))
    meter = Meter(made, made.clock, budget=TimePlan(seconds, made.clock), window_seconds=1.0)
    meter.choose_steps(Plan("defaults"), steps=None, earlier=EarlierWindows(0.01, around_steps=1.0, around_input=1.0))
    assert (meter.steps, meter.misses_pauses) == (steps, misses)
    assert not misses or meter.steps < pause.elements


def test_what_is_not_faster_between_two_pauses_is_undecided() -> None:
    pause = Pause(500, 5.0)
    made = runner(step_seconds=0.01, batch_seconds=0.02, shares_processors=True, pause=pause)
    found = Scene("a", made, expected={"a@n1": 1.5}, budget_seconds=60).run()
    assert found.chosen is None and found.budget_too_small
    assert [one.reason for one in found.rejections] == [RejectionReason.UNDECIDED]
    assert any("pauses for 5 s after every 500 elements" in note for note in found.notes)


def test_windows_that_the_verdict_took_choose_how_long_those_of_the_search_are() -> None:
    made = runner({"a@n1": 1.5}, step_seconds=0.02, batch_seconds=0.05, shares_processors=True)
    earlier = EarlierWindows(step=0.05, around_steps=0.3, around_input=0.5)
    found = Scene("a", made, expected={"a@n1": 1.5}, budget_seconds=60, earlier=earlier).run()
    assert names(found.chosen) == ["a"]
    training = [key for unit, key in made.windows if unit == "training"]
    assert made.windows[0][0] == "training", "no window of the input alone, and none that is thrown away"
    assert training.count("defaults") == training.count("a@n1")


@pytest.mark.parametrize(("step", "steps"), [(0.05, 5), (0.25, 5), (0.4, 4), (0.8, 2), (5.0, 2)])
def test_slow_steps_make_windows_of_few(step: float, steps: int) -> None:
    made = runner(step_seconds=step, batch_seconds=step, noise=Noise(spread=0.0))
    meter = Meter(made, made.clock, budget=TimePlan(60, made.clock), window_seconds=0.3)
    meter.choose_steps(Plan("defaults"), steps=None, earlier=EarlierWindows(step, around_steps=2.0, around_input=1.0))
    assert meter.steps == steps


def test_what_there_is_no_time_to_compare_is_not_begun() -> None:
    gains = {"a@n1": 1.5, "b@n1": 1.4, "c@n1": 1.3}
    made = runner(gains, unequal_keys=frozenset(gains), compare_seconds=22.0)
    found = Scene("abc", made, expected=gains, budget_seconds=60).run()
    assert found.chosen is None and len(made.compared) == 2, "the third would have ended after the search"


DROPS = Plan("tuned", (replace(rewrite("drop"), edits=(Remove("n1"),)),))
SAME = EqualityCheck("values", True)


VALUES_LATE = EqualityCheck("values", None, "time ran out", late=True)
DRAWN = EqualityCheck("randomness", False, "the random draws differ (values: time ran out)", late=True)
RAISES = "the pipeline raises an error in every epoch"


@pytest.mark.parametrize(("checks", "outcome", "said"), [
    ((EqualityCheck("values", False, "element 3 differs"), replace(VALUES_LATE, name="epochs")),
     Outcome.REJECTED, "not the same data: values: element 3 differs"),
    ((SAME, EqualityCheck("epochs", None, "time ran out before three epochs", late=True)),
     Outcome.UNDECIDED, "not proven to be the same data: epochs: time ran out before three epochs"),
    ((SAME, EqualityCheck("epochs", None, RAISES)),
     Outcome.REJECTED, f"not proven to be the same data: epochs: {RAISES}"),
    ((VALUES_LATE, DRAWN),
     Outcome.UNDECIDED, f"not proven to be the same data: randomness: {DRAWN.detail}"),
    (None, Outcome.REJECTED, "not proven to be the same data: could not be compared: it raised"),
])  # fmt: skip
def test_only_a_difference_that_was_seen_is_called_one(checks, outcome, said) -> None:
    made = runner({})

    def compare(plan: Plan) -> Comparison:
        if checks is None:
            raise RunFailed("it raised")
        return Comparison(Safety.EXACT, checks, elements=3, epochs=1)

    made.compare = compare
    gate = EqualityGate(made, made.clock, notify=lambda *args, **more: None)
    assert not gate.equal(DROPS)
    assert [(trial.outcome, trial.why) for trial in gate.trials] == [(outcome, said)]


DEVICE = replace(rewrite("device"), only_training=True)
TRAINS = {"step_seconds": 0.001}  # an accelerator: it shares no processors with the input


def units(scene: Scene, key: str) -> set[str]:
    return {unit for unit, plan in scene.runner.windows if key in plan.split("+")}


@pytest.mark.parametrize(("gains", "unequal", "plan"), [
    ({"a@n1": 1.4, "device@n1": 1.2}, (), ["device", "a"]),
    ({"device@n1": 1.2}, (), ["device"]),
    ({"a@n1": 1.4}, (), ["a"]),
    ({"device@n1": 1.5}, ("device@n1",), []),
], ids=["joins", "alone", "gains nothing", "changes the data"])  # fmt: skip
def test_it_enters_the_plan_where_training_steps_prove_it(gains, unequal, plan) -> None:
    made = runner(gains, unequal_keys=frozenset(unequal), **TRAINS)
    found, scene = Scene([DEVICE, *rewrites("ab")], made).ran()
    assert names(found.chosen) == plan and units(scene, "device@n1") <= {"training"}
    if "device" in plan:
        assert found.gains["device@n1"].median == pytest.approx(1.2, rel=0.03)
        assert units(scene, "device@n1") == {"training"}
    elif not unequal:
        assert "gain" in whys(found)["device"] or "proven" in whys(found)["device"]


def test_it_is_not_tried_where_nothing_trains_and_the_reason_is_said() -> None:
    found, scene = Scene([DEVICE, *rewrites("a")], runner({"a@n1": 1.4, "device@n1": 2.0})).ran()
    assert names(found.chosen) == ["a"] and units(scene, "device@n1") == set()
    assert "inside the training step" in whys(found)["device"]


def test_where_nothing_trains_no_time_is_kept_for_it() -> None:
    def pairs(*more: Rewrite) -> int:
        made = runner({"a@n1": 1.12}, noise=Noise(spread=0.2, seed=1))
        found = Scene([*more, *rewrites("a")], made, budget_seconds=60).run()
        return max(len(trial.ratios) for trial in of_key(found.trials, "a@n1"))

    assert pairs(DEVICE) == pairs()


def test_where_the_input_decides_it_is_no_candidate_by_training_steps() -> None:
    """Its pairs are of another unit than the gain that a candidate is told with."""
    noisy = runner({"device@n1": 1.1}, noise=Noise(spread=0.25, seed=4), **TRAINS)
    found = Scene([DEVICE], noisy, budget_seconds=60).run()
    (trial,) = [trial for trial in found.trials if trial.kind == "search"]
    assert trial.outcome is Outcome.UNDECIDED and found.candidate is None


USELESS = [f"useless-{number}" for number in range(10)]


@pytest.mark.slow
@pytest.mark.parametrize(("gain", "seconds", "useless"), [(1.3, 200, USELESS), (1.5, 60, USELESS[:5])])
def test_a_real_gain_is_found_and_nothing_else(gain: float, seconds: float, useless: list[str]) -> None:
    found = []
    for seed in range(40):
        candidates = rewrites([*useless[:5], "useful", *useless[5:]])
        made = runner({"useful@n1": gain}, noise=shared(seed))
        found.append(names(Scene(candidates, made, budget_seconds=seconds, seed=seed).run().chosen))
    assert sum("useful" in plan for plan in found) >= 36
    assert sum(plan == ["useful"] for plan in found) >= 34
