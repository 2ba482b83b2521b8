"""What the rules are told of the script: how long it trains, where that is certain."""

from __future__ import annotations

from dataclasses import replace

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.stages.planning import facts_of
from tests.stages.test_own_work import DIAGNOSIS, PROFILE, numbers, study


@pytest.mark.parametrize("certain", [True, False])
def test_how_many_epochs_the_script_trains_is_told_where_that_is_certain(certain: bool) -> None:
    one = study(numbers())
    use = replace(one.subject.use, epochs=7, steps_per_epoch=50, certain=certain)
    one.subject = replace(one.subject, use=use)
    context = facts_of(one, PROFILE, DIAGNOSIS)
    assert (context.epochs, context.steps_per_epoch) == (7 if certain else None, 50)


def test_without_a_call_that_says_so_nothing_is_known() -> None:
    context = facts_of(study(numbers()), PROFILE, DIAGNOSIS)
    assert context.epochs is None and context.steps_per_epoch is None
