"""What the rules are told of the script: how long it trains, where that is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Rewrite
from pipetune.core.measurement import RunFailed
from pipetune.stages import planning
from pipetune.stages.planning import facts_of
from pipetune.testing.runner import rewrite
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


def test_rules_that_are_left_out_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study(numbers())
    one.settings = replace(one.settings, without=frozenset({"cache"}))
    tried: list[str] = []

    def search(candidates: Sequence[Rewrite], *_arguments: object, **_more: object) -> None:
        tried.extend(candidate.rule for candidate in candidates)
        raise RunFailed("the test has seen enough")

    monkeypatch.setattr(planning, "completed", lambda study, profile: profile)
    monkeypatch.setattr(planning, "watch_autotune", lambda study: None)
    monkeypatch.setattr(planning.rules, "propose_all", lambda context: ([rewrite("cache"), rewrite("prefetch")], []))
    monkeypatch.setattr(planning, "search", search)
    with pytest.raises(RunFailed, match="seen enough"):
        planning.find_plan(one, PROFILE, DIAGNOSIS)
    assert tried == ["prefetch"]
