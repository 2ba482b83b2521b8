"""Which plans are raced, in which order, for how long, and what is said of those that are not in the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.recorded import FakeRunner, Noise, rewrite
from pipetune.core.edits import Plan, Rewrite, Safety
from pipetune.core.measurement import Interval, Window
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.results import Outcome, Prediction, RejectionReason, Trial
from pipetune.core.session import LIKELY_FROM, Candidate
from pipetune.core.time_plan import Part
from pipetune.search.candidates import next_race, not_run, open_plans
from pipetune.search.evidence import ShortWindow
from pipetune.search.race import EarlierRace, earlier_race
from pipetune.search.result import SearchResult
from pipetune.search.search import _find_candidate, _part_for
from pipetune.search.statistics import LOOKS
from tests.search.scenes import Scene, apart, expecting, names, of_key, product, reasons, rewrites, rough, runner, whys

LETTERS = "abcdefgh"


def raced(found: SearchResult) -> list[str]:
    """Keys of the plans measured in pairs, in that order."""
    return [trial.plan.key for trial in found.trials if trial.kind == "search" and trial.ratios]


def lucky(made: FakeRunner, key: str, times: float) -> FakeRunner:
    """The first window of this plan falls between what the neighbours do."""
    take = made.input_window

    def input_window(plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        luck = times if plan.key == key and key not in [other for _, other in made.windows] else 1.0
        gain, made.gain = made.gain, lambda plan: luck * gain(plan)
        try:
            return take(plan, seconds=seconds, warmup_seconds=warmup_seconds)
        finally:
            made.gain = gain

    made.input_window = input_window
    return made


def test_one_lucky_window_does_not_choose_against_the_model() -> None:
    """As beside a neighbour: the wrong map showed 2.4x in its one short window, the right one 1.6x."""
    expected = expecting({"right@n1": 1.83, "autotune": 1.8})
    for seed in range(10):
        made = runner({"right@n1": 1.6, "autotune": 1.6}, noise=rough(seed))
        candidates = rewrites(["first", "wrong", "right", "other"])
        found = Scene(candidates, lucky(made, "wrong@n1", 2.4), expected=expected, seed=seed, budget_seconds=120).run()
        assert raced(found)[0] == "right@n1"
        assert names(found.chosen) == ["right"]


def test_what_surely_reaches_what_training_can_gain_is_raced_at_once() -> None:
    """Of two such plans the one that holds less memory, which needs no cache to be filled either."""
    cached, gathered = replace(rewrite("cache"), predicted_bytes=1e9), replace(rewrite("gather"), predicted_bytes=1e6)
    gains = {cached.key: 240.0, gathered.key: 90.0}
    made = runner(gains, step_seconds=0.004, shares_processors=True)
    candidates = [cached, gathered, rewrite("other")]
    found = Scene(candidates, made, expected=gains, most_gain=lambda prediction: 6.0).run()
    assert raced(found)[0] == gathered.key and names(found.chosen)[0] == "gather"
    first = made.windows.index(("training", gathered.key))
    assert {key for _, key in made.windows[:first]} == {"defaults"}


def test_caches_that_take_too_long_to_fill_have_no_short_windows() -> None:
    gains = {"cache@n1": 1.3, "cache@n2": 1.3, "other@n1": 1.3}
    candidates = [rewrite("cache"), rewrite("cache", node="n2"), rewrite("other")]
    for epoch, keys in ((100, set(gains)), (1_000_000, {"other@n1"})):
        made = runner(gains, epoch_steps=epoch)
        found = Scene(candidates, made, expected=gains, budget_seconds=60).run()
        assert {one.plan.key for one in found.trials if one.kind == "screening"} == keys


@pytest.mark.parametrize(("gain", "first"), [(1.6, "patched"), (1.3, "planned")])
def test_what_the_source_can_express_is_raced_first_if_it_gains_enough(gain: float, first: str) -> None:
    gains = {"planned@n1": 2.0, "patched@n1": gain}
    candidates = [rewrite(name, group="one") for name in ("planned", "patched")]
    found = Scene(candidates, runner(gains), expected=gains, expressible=lambda one: one.rule == "patched").run()
    assert raced(found)[0] == f"{first}@n1" and names(found.chosen) == [first]


@pytest.mark.parametrize(
    ("gain", "more", "chosen"), [(1.5, 1.2, "patched"), (1.2, 1.0, "planned"), (1.0, 1.0, "planned")]
)
def test_what_the_source_can_express_takes_the_place_of_a_plan_without_a_patch(
    gain: float, more: float, chosen: str
) -> None:
    expected = {"planned@n1": 3.0, "patched@n1": 1.3, "more@n2": 1.2}
    candidates = [*(rewrite(name, group="one") for name in ("planned", "patched")), rewrite("more", node="n2")]
    made = runner({"planned@n1": 2.0, "patched@n1": gain, "more@n2": more})
    can_be_patched = {"expressible": lambda one: one.rule != "planned", "conflict": apart("planned", "more")}
    found = Scene(candidates, made, expected=expected, budget_seconds=60, **can_be_patched).run()
    assert raced(found)[0] == "planned@n1" and names(found.chosen)[0] == chosen
    if chosen == "patched":
        assert names(found.chosen) == ["patched", "more"] and found.gain is not None and found.gain.median < 2.0
        assert reasons(found) == {"planned": RejectionReason.EXCLUDED} and "gains 1.9" in whys(found)["planned"]
    elif gain > 1.0:
        assert reasons(found)["patched"] is RejectionReason.EXCLUDED and "planned 1.9" in whys(found)["patched"]


@pytest.mark.parametrize(("expressible", "skipped"), [("", True), ("slow", False), ("fast slow", True)])
def test_what_is_predicted_slower_than_its_kind_is_run_only_if_it_alone_makes_a_patch(expressible, skipped) -> None:
    gains = {"fast@n1": 4.0, "slow@n1": 1.5}
    candidates = [rewrite("fast", group="one"), rewrite("slow", group="one")]
    scene = Scene(candidates, runner(gains), expected=gains, expressible=lambda one: one.rule in expressible.split())
    assert ("slow@n1" in not_run(scene.state())) is skipped


def test_what_short_windows_show_to_lose_is_decided_without_a_race() -> None:
    """A number in place of AUTOTUNE among it, which no plan without a proof may have."""
    gains = {"a@n1": 0.7, "number@n1": 0.75}
    scene = Scene([*rewrites("a"), rewrite("number")], runner(gains), proven_alone=frozenset({"number@n1"}))
    found = scene.run()
    assert not raced(found) and not found.budget_too_small and found.candidate is None
    assert set(reasons(found).values()) == {RejectionReason.NOT_EXPECTED}


def test_only_what_is_expected_to_add_3_percent_is_joined() -> None:
    gains = {"a@n1": 1.5, "b@n1": 1.3, "c@n1": 1.01}
    found, scene = Scene(LETTERS, runner(gains), expected=gains).ran()
    assert names(found.chosen) == ["a", "b"]
    assert raced(found)[:2] == ["a@n1", "a@n1+b@n1"]
    joined = [key for _, key in scene.runner.windows if "+" in key]
    assert joined[0] == "a@n1+b@n1", "nothing else is joined before the first race"
    assert set(reasons(found).values()) <= {RejectionReason.NOT_EXPECTED, RejectionReason.NOT_FASTER}


def test_only_what_is_predicted_to_gain_is_tried_where_little_can_be_gained() -> None:
    expected = expecting({"a@n1": 1.2, "b@n1": 1.01})
    made = runner({"a@n1": 1.2, "c@n1": 1.5})
    found = Scene("abc", made, expected=expected, only_promising=True).run()
    assert names(found.chosen) == ["a"] and {key for _, key in made.windows} <= {"defaults", "off", "autotune", "a@n1"}
    assert reasons(found) == {"b": RejectionReason.NOT_EXPECTED, "c": RejectionReason.NOT_EXPECTED}

    sizes = [rewrite("a", number=number) for number in (AUTOTUNE, 2, 4)]
    found = Scene(sizes, runner({}), expected={}, only_promising=True).run()
    assert [one.reason for one in found.rejections] == [RejectionReason.NOT_EXPECTED, *[RejectionReason.OTHER_KIND] * 2]
    assert not found.budget_too_small and "of the budget" not in found.why

    cannot_tell = expecting({}, why="map runs Python")
    found = Scene("abc", runner({"a@n1": 1.2}), expected=cannot_tell, only_promising=True).run()
    assert found.chosen is None and not found.budget_too_small


def test_what_the_model_cannot_tell_of_is_added_where_windows_show_it() -> None:
    truth = {"a@n1": 1.5, "b@n1": 1.4}

    def expected(plan: Plan) -> Prediction:
        rules = {part.rule for part in plan.rewrites}
        return Prediction(why="map runs Python") if "b" in rules else expecting({"a@n1": 1.5})(plan)

    found = Scene("abc", runner(truth), expected=expected).run()
    assert names(found.chosen) == ["a", "b"]
    assert raced(found)[0] == "a@n1" and "c@n1" not in "".join(key for key in raced(found))
    assert found.gains["b@n1"].median == pytest.approx(1.4, rel=0.03)


@pytest.mark.parametrize(("candidates", "truth", "expected", "budget", "chosen"), [
    ("abc", {"a@n1": 1.5, "b@n1": 1.4}, {"a@n1": 1.5}, 300, "a"),  # nothing is run without a gain expected
    # an answer that gained less than expected makes way for another of its kind
    ([rewrite("small", group="cache"), rewrite("deep", group="cache")],
     {"small@n1": 1.9, "deep@n1": 1.3}, {"small@n1": 2.0, "deep@n1": 6.0}, 300, "small"),
    # the time that one plan does not need goes to the next best: the model is wrong about two of them
    ("abc", {"c@n1": 1.6}, {"a@n1": 3.0, "b@n1": 2.5, "c@n1": 2.0}, 60, "c"),
    # it expects a gain of one rewrite alone, and is wrong: the others are screened behind the first race
    (LETTERS, {"h@n1": 3.0}, {"a@n1": 1.5}, 120, "h"),
], ids=["proven", "less than expected", "time for the next", "screened behind"])  # fmt: skip
def test_the_search_goes_where_the_windows_lead(candidates, truth, expected, budget, chosen) -> None:
    found, scene = Scene(candidates, runner(truth), expected=expected, budget_seconds=budget).ran()
    assert names(found.chosen) == [chosen] and scene.seconds() < budget
    kinds = [trial.kind for trial in found.trials]
    assert chosen != "h" or "screening" in kinds[kinds.index("search") :]
    assert chosen != "a" or not any(key.startswith(("b@", "c@")) for _, key in scene.runner.windows)


def test_a_joined_plan_that_changes_the_data_makes_way_for_its_strongest_part_at_once() -> None:
    gains = {f"{letter}@n1": 1.2 for letter in LETTERS} | {"c@n1": 6.5}
    made = runner(gains, unequal_keys=frozenset({"f@n1"}), compare_seconds=8.0)
    found, scene = Scene(LETTERS, made, expected=gains, budget_seconds=60).ran()
    assert scene.runner.compared[:2] == ["+".join(f"{letter}@n1" for letter in LETTERS), "c@n1"]
    assert raced(found)[0] == "c@n1" and "c" in names(found.chosen)
    (whole,) = of_key(found.trials, "+".join(f"{letter}@n1" for letter in LETTERS))
    assert whole.outcome is Outcome.REJECTED and "not the same data" in whole.why


def test_nothing_is_called_too_short_while_time_is_left() -> None:
    for seed in range(10):
        made = runner({"a@n1": 1.07}, noise=Noise(spread=0.2, seed=seed))
        found, scene = Scene("a", made, expected={"a@n1": 1.1}, seed=seed, budget_seconds=60).ran()
        if found.budget_too_small:
            assert scene.seconds() > 0.95 * 60
            assert reasons(found) == {"a": RejectionReason.UNDECIDED}


def test_a_race_is_begun_though_windows_of_the_pipeline_as_written_are_too_long_for_a_whole_one() -> None:
    """A shuffle buffer takes seven seconds to fill, in a tenth of that where rows are gathered."""
    made = runner({"gather@n1": 10.0})
    take = made.input_window

    def input_window(plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        made.first_seconds = 0.7 if "gather@n1" in plan.key else 7.0
        return take(plan, seconds=seconds, warmup_seconds=warmup_seconds)

    made.input_window = input_window
    expected = expecting({"gather@n1": 10.0, "autotune": 1.0})
    found = Scene(rewrites(["a", "gather", "b"]), made, expected=expected, budget_seconds=60).run()
    assert names(found.chosen) == ["gather"]


def test_a_plan_rejected_by_its_pairs_is_not_called_too_short() -> None:
    found = Scene("ab", runner(), expected={"a@n1": 1.5, "b@n1": 1.2}).run()
    assert found.chosen is None and not found.budget_too_small
    assert found.why == "No plan was proven faster than the current pipeline." and found.candidate is None
    assert not any(trial.outcome is Outcome.UNDECIDED for trial in found.trials)
    assert reasons(found)["a"] is RejectionReason.NOT_FASTER
    assert reasons(found)["b"] in (RejectionReason.NOT_FASTER, RejectionReason.NOT_EXPECTED), "its window showed that"


@pytest.mark.parametrize(("gain", "company", "chosen"), [
    (1.0, {"cache@n1": 3.0, "fusion@n1": 1.3}, ["cache", "fusion"]),
    (1.3, {"cache@n1": 3.0}, ["parallel-map", "cache"]),
])  # fmt: skip
def test_a_number_in_autotunes_place_is_in_no_plan_before_it_is_proven_by_itself(gain, company, chosen) -> None:
    """The model expects more of it than it gains, or less."""
    number = rewrite("parallel-map", number=2)
    others, alone = rewrites(key.partition("@")[0] for key in company), frozenset({number.key})
    made, expected = runner({number.key: gain, **company}), {number.key: 1.2, **company}
    found = Scene([number, *others], made, expected=expected, proven_alone=alone).run()
    assert names(found.chosen) == chosen
    proofs = [trial for trial in found.trials if trial.kind == "search" and number in trial.plan.rewrites]
    assert all(is_only_new_one(number, trial, found) for trial in proofs)
    if "parallel-map" in chosen:
        assert len(proofs) == 1 and found.gains[number.key].median == pytest.approx(gain, rel=0.03)
    else:
        assert reasons(found)["parallel-map"] in (RejectionReason.NOT_FASTER, RejectionReason.NOT_EXPECTED)


def test_a_number_in_autotunes_place_that_is_not_proven_leaves_nothing_to_decide() -> None:
    number = rewrite("parallel-map", number=2)
    noisy = runner({number.key: 1.03}, noise=Noise(spread=0.2, seed=1))
    found = Scene([number], noisy, expected={number.key: 1.1}, proven_alone=frozenset({number.key})).run()
    assert found.chosen is None and found.candidate is None and not found.budget_too_small
    (trial,) = [trial for trial in found.trials if trial.kind == "search"]
    assert trial.outcome is Outcome.REJECTED and trial.why == "not proven better than what AUTOTUNE chooses"


@pytest.mark.parametrize(("raced", "ratio", "kept"), [
    ("", 1.0, "a@n1+b@n1"),
    ("ab", 1.0, None),  # the whole showed less than is expected of its parts
    ("a", 1.06, "a@n1"),  # a part showed less than is expected of it: so will the whole
    ("a", 1.3, "a@n1"),  # what is likely by windows, not what the model alone expects more of
])  # fmt: skip
def test_races_speak_for_parts_and_wholes_that_were_not_raced(raced: str, ratio: float, kept: str | None) -> None:
    state = Scene("ab", runner(), expected={"a@n1": 1.3, "b@n1": 1.25}).state()
    if raced:
        plan, ratios = state.composer.plan(rewrites(raced)), (0.98 * ratio, 1.02 * ratio) * 6
        state.trials.append(Trial(plan, Outcome.UNDECIDED, "", kind="search", ratios=ratios))
        state.gains.pairs[plan.key, state.base.key] = ratios
    _find_candidate(state)
    assert (state.candidate.plan.key if state.candidate else None) == kept


def test_few_pairs_of_a_plan_do_not_outweigh_many_of_its_part() -> None:
    state = Scene("ab", runner(), expected={"a@n1": 2.0}).state()
    many, few = (0.8, 1.05) * 8, (0.83, 1.74, 1.16)
    for rules, outcome, ratios in (("a", Outcome.REJECTED, many), ("ab", Outcome.UNDECIDED, few)):
        plan = state.composer.plan(rewrites(rules))
        state.trials.append(Trial(plan, outcome, "", kind="search", ratios=ratios))
        state.gains.pairs[plan.key, state.base.key] = ratios
    assert state.gains.attainable(plan).probability > LIKELY_FROM
    _find_candidate(state)
    assert state.candidate is None


@pytest.mark.parametrize(("outcome", "plans"), [(None, ["a@n1", "b@n1", "a@n1+b@n1"]), (Outcome.REJECTED, ["b@n1"])])
def test_what_its_own_race_ruled_out_is_in_no_plan_that_may_gain(outcome: Outcome | None, plans: list[str]) -> None:
    candidates = rewrites("ab")
    state = Scene(candidates, runner(), expected={"a@n1": 1.1, "b@n1": 1.2}).state()
    if outcome is not None:
        state.trials.append(Trial(state.composer.plan(candidates[:1]), outcome, "", ratios=(1.0,) * 8))
    assert [plan.key for plan in open_plans(state)] == plans


@pytest.mark.parametrize(("shown", "plans"), [(0.95, ["a@n1", "b@n1"]), (1.05, ["a@n1", "b@n1", "a@n1+b@n1"])])
def test_the_model_alone_does_not_speak_for_parts_whose_windows_show_no_gain(shown: float, plans: list[str]) -> None:
    candidates, saved = rewrites("ab"), product({"a@n1": 1.05, "b@n1": 1.05})
    made = runner()
    made.shares_processors = True

    def expected(plan: Plan) -> Prediction:
        return Prediction(why="It runs Python.", cpu_seconds_per_example=1 / saved(plan))

    state = Scene(candidates, made, expected=expected).state()
    state.gains.spread = 0.25
    for one in candidates:
        state.gains.short_windows[one.key].append(ShortWindow(one, state.base, shown, shown))
    assert [plan.key for plan in open_plans(state)] == plans


@pytest.mark.parametrize(("gain", "chosen"), [(1.0, ["cache"]), (1.5, ["cache", "fusion"])])
def test_other_draws_are_in_no_plan_before_their_gain_is_proven(gain: float, chosen: list[str]) -> None:
    cache, fusion = rewrite("cache"), rewrite("fusion", safety=Safety.STATISTICAL)
    made, expected = runner({cache.key: 3.0, fusion.key: gain}), {cache.key: 3.0, fusion.key: 1.5}
    found = Scene([cache, fusion], made, expected=expected, budget_seconds=60).run()
    assert names(found.chosen) == chosen and raced(found)[0] == made.compared[0] == cache.key


def is_only_new_one(number: Rewrite, trial: Trial, found: SearchResult) -> bool:
    """Whether everything else in the plan was proven before."""
    rest = {one.key for one in trial.plan.rewrites if one.key != number.key}
    proven = [one for one in found.trials if one.kind == "search" and one.outcome is Outcome.ACCEPTED]
    before = proven[: proven.index(trial)] if trial in proven else proven
    return not rest or any(rest == {part.key for part in one.plan.rewrites} for one in before)


def test_every_rewrite_left_out_has_its_true_reason() -> None:
    gains = {"best@n1": 3.0, "idle@n1": 1.0, "slow@n1": 0.3, "wrong@n1": 1.5}
    candidates = [
        *rewrites(["best", "idle", "slow", "wrong", "broken", "large", "against"]),
        rewrite("best-too", group="best"),
        rewrite("offered", safety=Safety.REORDERS, group="offer"),  # no gain is expected of it
    ]
    made = runner(
        gains,
        fails={"broken@n1": "bad data"},
        unequal_keys=frozenset({"wrong@n1"}),
        predicted_bytes_by_key={"large@n1": 1e12},
    )
    expected = expecting(gains | {"broken@n1": 1.2, "large@n1": 1.3})
    conflict = apart("best", "against")
    found = Scene(candidates, made, expected=expected, conflict=conflict, memory_limit_bytes=1e9).run()
    assert names(found.chosen) == ["best"] and not any("not tried" in why for why in whys(found).values())
    assert reasons(found) == {
        "idle": RejectionReason.NOT_EXPECTED,
        "slow": RejectionReason.PREDICTED_SLOWER,
        "wrong": RejectionReason.NOT_EQUAL,
        "broken": RejectionReason.FAILED,
        "large": RejectionReason.REFUSED,
        "against": RejectionReason.EXCLUDED,
        "best-too": RejectionReason.NOT_EXPECTED,
        "offered": RejectionReason.NEEDS_CONSENT,
    }


def test_an_earlier_race_goes_on_with_its_pairs() -> None:
    """Its plan is raced first, nothing is screened before, and both sessions' pairs count together."""
    before = EarlierRace(frozenset({"b@n1"}), "input", (1.3, 1.35, 1.28), sessions=1)
    made = runner({"b@n1": 1.3, "a@n1": 1.1})
    found = Scene("abc", made, expected={"a@n1": 1.5}, earlier_race=before).run()
    assert names(found.chosen) == ["b"] and raced(found)[0] == "b@n1"
    assert {key for _, key in made.windows[:9]} == {"defaults", "b@n1"}
    (trial,) = of_key([one for one in found.trials if one.kind == "search"], "b@n1")
    assert trial.ratios[:3] == before.ratios and len(trial.ratios) >= 7


def test_an_earlier_race_of_many_pairs_goes_on_for_more_than_a_look() -> None:
    before = EarlierRace(frozenset({"b@n1"}), "input", (1.02, 1.08) * 15, sessions=1)
    made = runner({"b@n1": 1.05}, noise=Noise(spread=0.05, seed=1))
    found = Scene("b", made, earlier_race=before, budget_seconds=180.0).run()
    (trial,) = of_key([one for one in found.trials if one.kind == "search"], "b@n1")
    assert len(trial.ratios) > len(before.ratios) + LOOKS[1]


def test_the_longest_race_of_an_earlier_session_that_may_still_be_won_goes_on() -> None:
    plan, other = Plan("tuned", tuple(rewrites("ab"))), Plan("tuned", tuple(rewrites("c")))
    candidate = Candidate(plan, Interval(1.1, 1.0, 1.2, 3), probability=0.6, unit="training", why="")
    trials = [
        Trial(plan, Outcome.UNDECIDED, "", kind="search", ratios=(1.2,)),
        Trial(plan, Outcome.UNDECIDED, "", kind="search", ratios=(1.1, 1.2), unit="input"),
        Trial(plan, Outcome.REJECTED, "", kind="search", ratios=(0.9,) * 9),
        Trial(plan, Outcome.ACCEPTED, "", kind="confirmation", ratios=(1.3,) * 9),
        Trial(other, Outcome.UNDECIDED, "", kind="search", ratios=(1.4,) * 9),
    ]
    keys = frozenset({"a@n1", "b@n1"})
    assert earlier_race(candidate, trials, resumptions=1) == EarlierRace(keys, "input", (1.1, 1.2), sessions=2)
    assert earlier_race(candidate, [], resumptions=0) == EarlierRace(keys, "training", (), sessions=1)
    assert earlier_race(None, trials, resumptions=0) is None


def test_an_earlier_plan_that_is_not_legal_any_more_is_left() -> None:
    before = EarlierRace(frozenset({"gone@n1"}), "input", (1.3,), sessions=1)
    found = Scene("ab", runner({"a@n1": 1.5}), expected={"a@n1": 1.5}, earlier_race=before).run()
    assert names(found.chosen) == ["a"] and any("not legal any more" in note for note in found.notes)


def test_sessions_that_go_on_share_the_error_that_the_first_has_left() -> None:
    errors = [EarlierRace(frozenset(), "input", (), sessions=number).error for number in range(1, 20)]
    assert 0.8 * 0.05 + sum(0.5 * one for one in errors) < 0.05
    assert errors == sorted(errors, reverse=True)


def test_autotune_everywhere_is_a_candidate_whatever_its_parts_show_alone() -> None:
    parts = [rewrite("parallel-map", number=AUTOTUNE, node=node) for node in ("n1", "n2")]
    together = {one.key for one in parts}
    made = runner()
    made.gain = lambda plan: 1.5 if together <= {one.key for one in plan.rewrites} else 1.0
    found = Scene([*rewrites("ab"), *parts], made, expected=expecting({}, why="map runs Python")).run()
    assert found.chosen is not None and {one.key for one in found.chosen.rewrites} == together

    useless = Scene([*rewrites("ab"), *parts], runner(), expected={one.key: 0.7 for one in parts}).run()
    assert not any(together <= {one.key for one in trial.plan.rewrites} for trial in useless.trials if trial.ratios)


def test_what_only_might_gain_is_raced_once_nothing_else_is_left() -> None:
    """With windows that tell little, a gain is not out of sight: nobody can say yet that there is nothing to gain."""
    made = Scene("ab", runner(), expected=expecting({}, why="Python")).state()
    made.races, made.gains.spread = 1, 0.4
    for one, rates in zip(made.candidates, ((1.0,), (0.7, 0.8, 0.75)), strict=True):
        made.gains.short_windows[one.key] += [ShortWindow(one, made.base, rate, 1.0) for rate in rates]
    assert next_race(made) == ("", [])
    key, plans = next_race(made, in_doubt=True)
    assert (key, [names(plan) for plan in plans]) == ("a@n1", [["a"]])
    assert next_race(made, in_doubt=True) == ("", [])


def test_what_is_not_expected_to_gain_leaves_time_for_what_needs_consent() -> None:
    candidates = [*rewrites("ab"), rewrite("c", safety=Safety.REORDERS)]
    asking = Scene(candidates, runner(), expected={"a@n1": 1.5}).state()
    alone = Scene("ab", runner(), expected={"a@n1": 1.5}).state()
    plan_a, plan_b = (asking.composer.plan([one]) for one in candidates[:2])
    assert _part_for([plan_b], asking) is Part.SEARCH
    assert _part_for([plan_a, plan_b], asking) is _part_for([plan_b], alone) is Part.EXTENSION
    most = Scene(candidates, runner(), expected={"a@n1": 1.1, "c@n1": 6.0}).state()
    assert _part_for([plan_a], most) is Part.SEARCH  # far more is expected of what needs consent
    some = Scene(candidates, runner(), expected={"a@n1": 1.1, "c@n1": 1.2}).state()
    assert _part_for([plan_a], some) is Part.EXTENSION
