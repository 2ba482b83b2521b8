"""The gate of equality: what it says of a plan it does not let pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.recorded import rewrite
from pipetune.core.edits import Plan, Remove, Safety
from pipetune.core.results import Comparison, EqualityCheck, Outcome, RunFailed
from pipetune.search.equality import EqualityGate
from tests.search.scenes import runner

PLAN = Plan("tuned", (replace(rewrite("drop"), edits=(Remove("n1"),)),))
SAME = EqualityCheck("values", True)


VALUES_LATE = EqualityCheck("values", None, "time ran out", late=True)
DRAWN = EqualityCheck("randomness", False, "the random draws differ (values: time ran out)", late=True)
RAISES = "the pipeline raises an error in every epoch"


@pytest.mark.parametrize(
    ("checks", "outcome", "said"),
    [
        ((EqualityCheck("values", False, "element 3 differs"), replace(VALUES_LATE, name="epochs")),
         Outcome.REJECTED, "not the same data: values: element 3 differs"),
        ((SAME, EqualityCheck("epochs", None, "time ran out before three epochs", late=True)),
         Outcome.UNDECIDED, "not proven to be the same data: epochs: time ran out before three epochs"),
        ((SAME, EqualityCheck("epochs", None, RAISES)),
         Outcome.REJECTED, f"not proven to be the same data: epochs: {RAISES}"),
        ((VALUES_LATE, DRAWN),
         Outcome.UNDECIDED, f"not proven to be the same data: randomness: {DRAWN.detail}"),
        (None, Outcome.REJECTED, "not proven to be the same data: could not be compared: it raised"),
    ],
)  # fmt: skip
def test_only_a_difference_that_was_seen_is_called_one(
    checks: tuple[EqualityCheck, ...] | None, outcome: Outcome, said: str
) -> None:
    made = runner({})

    def compare(plan: Plan) -> Comparison:
        if checks is None:
            raise RunFailed("it raised")
        return Comparison(Safety.EXACT, checks, elements=3, epochs=1)

    made.compare = compare
    gate = EqualityGate(made, made.clock, notify=lambda *args, **more: None)
    assert not gate.equal(PLAN)
    assert [(trial.outcome, trial.why) for trial in gate.trials] == [(outcome, said)]
