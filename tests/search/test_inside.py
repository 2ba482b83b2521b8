"""Rewrites that gain inside a training step only: tried on top of the plan, never by the input alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.recorded import Noise, rewrite
from pipetune.core.results import Outcome
from tests.search.scenes import Scene, names, rewrites, runner, whys

DEVICE = replace(rewrite("device"), only_training=True)
TRAINS = {"step_seconds": 0.001}  # an accelerator: it shares no processors with the input


def units(scene: Scene, key: str) -> set[str]:
    return {unit for unit, plan in scene.runner.windows if key in plan.split("+")}


@pytest.mark.parametrize(
    ("gains", "unequal", "plan"),
    [
        ({"a@n1": 1.4, "device@n1": 1.2}, (), ["device", "a"]),
        ({"device@n1": 1.2}, (), ["device"]),
        ({"a@n1": 1.4}, (), ["a"]),
        ({"device@n1": 1.5}, ("device@n1",), []),
    ],
    ids=["joins", "alone", "gains nothing", "changes the data"],
)
def test_it_enters_the_plan_where_training_steps_prove_it(
    gains: dict[str, float], unequal: tuple[str, ...], plan: list[str]
) -> None:
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


def test_where_the_input_decides_it_is_no_candidate_by_training_steps() -> None:
    """Its pairs are of another unit than the gain that a candidate is told with."""
    noisy = runner({"device@n1": 1.1}, noise=Noise(spread=0.25, seed=4), **TRAINS)
    found = Scene([DEVICE], noisy, budget_seconds=60).run()
    (trial,) = [trial for trial in found.trials if trial.kind == "search"]
    assert trial.outcome is Outcome.UNDECIDED and found.candidate is None
