"""The model's prediction and the screening windows as one distribution."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest

from pipetune.core.edits import Plan
from pipetune.core.results import Prediction
from pipetune.search.composing import Composer
from pipetune.search.evidence import QUIET_SPREAD, Expected, Gains, Shown, spread_of
from tests.search.scenes import BASELINES, expecting, names, rewrites

LETTERS = rewrites("abcdef")
A, B, C = LETTERS[:3]
BASE = BASELINES["defaults"]


def known(expected: Expected | None, *, shown: Mapping[str, float] | None = None, cpu: float = 1.0) -> Gains:
    """`shown`: what the window of each showed, by name, at the spread of a quiet machine."""
    base = BASELINES["defaults"]
    made = Gains(expected, base, Composer(tuple(LETTERS)), shares_processors=cpu != 1.0)
    for name, rate in (shown or {}).items():
        made.shown[f"{name}@n1"].append(Shown(next(one for one in LETTERS if one.rule == name), base, rate, cpu))
    return made


def test_between_model_and_window_the_surer_one_counts_for_more() -> None:
    idle = known(expecting({}), shown={"a": 1.3}).added(A)
    assert 0.2 * math.log(1.3) < idle.expected < 0.6 * math.log(1.3)  # it knows best where nothing changes
    unknown = known(expecting({}, why="map runs Python"), shown={"a": 1.3}).added(A)
    assert unknown.expected == pytest.approx(math.log(1.3), rel=0.05)
    assert unknown.deviation == pytest.approx(QUIET_SPREAD, rel=0.05)
    large = known(expecting({"a@n1": 10.0}), shown={"a": 3.0}).added(A)
    assert large.expected == pytest.approx(math.log(3.0), rel=0.05)  # it errs by much where it predicts much


def test_a_window_corrects_the_prediction_beside_others_by_what_the_model_was_wrong_alone() -> None:
    def expected(plan: Plan) -> Prediction:
        """`b` gains much alone and little beside `a`."""
        rates = {"b": 2.0, "a": 3.0, "a+b": 3.1}
        return Prediction(1600 * rates.get("+".join(part.rule for part in plan.rewrites), 1.0))

    right = known(expected, shown={"b": 2.0})
    over = Composer(tuple(LETTERS)).plan([A])
    assert right.added(B, over).expected == pytest.approx(math.log(3.1 / 3.0), abs=1e-9)
    better = known(expected, shown={"b": 2.6})
    assert better.added(B, over).expected > right.added(B, over).expected


def test_joined_is_only_what_adds_3_percent_given_the_others() -> None:
    def expected(plan: Plan) -> Prediction:
        """`a` and `b` stand for each other, `c` and `d` pay together only, `e` pays a little, `f` nothing."""
        rules = {part.rule for part in plan.rewrites}
        rate = (2.0 if rules & {"a", "b"} else 1.0) * (1.5 if {"c", "d"} <= rules else 1.0)
        return Prediction(1600 * rate * (1.05 if "e" in rules else 1.0) * (1.01 if "f" in rules else 1.0))

    assert names(known(expected).joined(LETTERS, A)) == ["a", "c", "d", "e"]


def test_where_the_model_cannot_tell_only_what_windows_surely_show_is_joined() -> None:
    shown = {"a": 1.6, "b": 1.3, "c": 1.06, "d": 0.9}
    assert names(known(expecting({}, why="Python"), shown=shown).joined(LETTERS, A)) == ["a", "b"]


def test_fewer_cpu_seconds_are_a_gain_where_the_model_shares_them() -> None:
    def cheaper(plan: Plan) -> Prediction:
        return Prediction(1600.0, 0.5 if plan.rewrites else 1.0)

    assert known(cheaper, shown={"a": 1.0}).added(A).expected == pytest.approx(0.0, abs=0.01)
    assert known(cheaper, shown={"a": 1.0}, cpu=2.0).added(A).expected == pytest.approx(math.log(2.0), abs=0.01)


def test_a_window_far_from_what_is_expected_is_a_surprise() -> None:
    made = known(expecting({"a@n1": 1.8}))
    assert not made.surprised_by(Shown(A, BASE, 1.6, 1.0)) and not made.surprised_by(Shown(B, BASE, 1.1, 1.0))
    assert made.surprised_by(Shown(B, BASE, 2.0, 1.0)) and made.surprised_by(Shown(A, BASE, 0.8, 1.0))


def test_every_window_of_a_rewrite_counts_and_narrows_what_is_expected() -> None:
    made = known(expecting({"a@n1": 1.0}))
    deviations, means = [made.added(A).parts[0][2]], []
    for rate in (0.92, 1.12):
        made.shown[A.key].append(Shown(A, BASE, rate, 1.0))
        deviations.append(made.added(A).parts[0][2])
        means.append(made.added(A).expected)
    assert means[0] < 0 < means[1] < math.log(1.12)
    assert deviations[0] > deviations[1] > deviations[2]


def test_the_spread_of_windows_is_learned_and_few_say_little() -> None:
    assert spread_of([100.0]) == pytest.approx(math.sqrt(1.5) * QUIET_SPREAD)
    draw = random.Random(0)
    noisy = [100 * math.exp(draw.gauss(0, 0.3)) for _ in range(40)]
    assert spread_of(noisy) == pytest.approx(math.sqrt(1.5) * 0.3, rel=0.25)
    assert spread_of(noisy[:3]) < spread_of(noisy)
