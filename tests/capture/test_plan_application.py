"""Applying a plan to a live dataset: accepted for an equal pipeline, otherwise refused with the first difference."""

from __future__ import annotations

import contextlib
import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pipetune
from pipetune.core.edits import Edit, Insert, SetArgument
from pipetune.core.errors import PipetuneError, PlanMismatch
from pipetune.core.plan_file import PlanFile, save_plan

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import substitution
from pipetune.capture.patches import Patches
from pipetune.pipelines import call_sites, live


def build(*, size: int = 2, seed: int = 3) -> Any:
    return tf.data.Dataset.range(12).shuffle(4, seed=seed).map(lambda x: x * 2).batch(size)


EDITS: tuple[Edit, ...] = (
    SetArgument("n2", "num_parallel_calls", 2),
    Insert("n3", "prefetch", "prefetch@n3", {"buffer_size": 2}),
)


def plan_for(dataset: Any, *edits: Edit) -> PlanFile:
    pipeline = live.read(dataset).pipeline
    return PlanFile(fingerprint=pipeline.fingerprint, operators=pipeline.identities(), edits=edits)


def elements(dataset: Any) -> list[Any]:
    return [[batch.tolist() for batch in dataset.as_numpy_iterator()] for _ in range(2)]


def test_plan_is_applied_to_an_equal_pipeline() -> None:
    plan = plan_for(build(), *EDITS)
    dataset = build()
    tuned = pipetune.apply_plan(dataset, plan)
    pipeline = live.read(tuned).pipeline
    assert [node.op for node in pipeline] == ["range", "shuffle", "map", "batch", "prefetch"]
    assert pipeline["n2"].argument("num_parallel_calls") == 2 and elements(tuned) == elements(build())


def test_plan_is_read_from_a_file_or_folder(tmp_path: Path) -> None:
    save_plan(plan_for(build(), *EDITS), tmp_path / "plan.json")
    for path in (tmp_path / "plan.json", str(tmp_path / "plan.json"), tmp_path):
        tuned = pipetune.apply_plan(build(seed=9), path)
        assert live.read(tuned).pipeline.output.op == "prefetch"


def test_no_plan_and_no_edits_change_nothing() -> None:
    dataset = build()
    assert pipetune.apply_plan(dataset, None) is dataset and pipetune.apply_plan(dataset, plan_for(dataset)) is dataset


def test_different_pipeline_is_refused_with_its_first_difference() -> None:
    plan = plan_for(build(), *EDITS)
    with call_sites.Recorder():
        other = build(size=5)
    first = r"operator 3, batch, .*: batch_size=5 here, 2 in the plan \(.*test_plan_application\.py:\d+\)"
    with pytest.raises(PlanMismatch, match=first):
        pipetune.apply_plan(other, plan)


def test_missing_or_damaged_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError):
        pipetune.apply_plan(build(), tmp_path / "none.json")
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(PipetuneError):
        pipetune.apply_plan(build(), tmp_path / "plan.json")


def test_applier_serves_every_dataset_of_the_plan() -> None:
    told: list[str] = []
    unchanged = plan_for(build())  # of another dataset with the same pipeline
    plan = replace(plan_for(build(), *EDITS), more=(plan_for(build(size=5), EDITS[0]), unchanged))
    applier = substitution.Applier(plan, told.append)
    train, validation, other = build(), build(size=5), build(size=7)
    tuned = applier(train)
    assert live.read(tuned).pipeline.output.op == "prefetch"
    assert applier(train) is tuned  # the same object again, with its caches
    assert applier(tuned) is tuned
    assert live.read(applier(validation)).pipeline["n2"].argument("num_parallel_calls") == 2
    assert applier(other) is other and applier.applied == 2 and len(told) == 2
    assert applier.nearest is not None and applier.nearest[1].dataset is not None


def test_what_the_script_drops_is_not_kept() -> None:
    """As where training in parts makes a dataset of the arrays of each file."""
    applier = substitution.Applier(plan_for(build(), *EDITS), lambda _name: None)
    add = tf.function(lambda total, dataset: dataset.reduce(total, lambda so_far, batch: so_far + tf.reduce_sum(batch)))
    dropped = []
    with contextlib.closing(Patches()) as patches:
        substitution.substitute(applier, patches)
        for _ in range(2):
            dataset = build()
            assert len(list(dataset)) == 6 and int(add(tf.constant(0, tf.int64), dataset)) == 132
            dropped.append(weakref.ref(dataset))
    del dataset
    gc.collect()
    assert applier.applied == 2 and [reference() for reference in dropped] == [None, None]
