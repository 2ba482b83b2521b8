"""Made-up pipelines of real elements: plans of rewrites that say EXACT give the same elements, epoch by epoch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.exhaustive,  # `tests/soundness` composes such pipelines, too
    pytest.mark.usefixtures("patient_looks"),
]

from pipetune import rules
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Safety
from pipetune.rules.base import RuleContext
from pipetune.rules.conflicts import conflict
from pipetune.tf.pipelines import fusion, gathering, live, on_batches, on_inputs
from pipetune.tf.pipelines.replay import replay

Draw = random.Random
Operator = Callable[[Any, Draw], Any]

EARLY = {"drop-no-op", "filter-early", "map-fusion", "merge-repeats", "shard-early", "split-early"}


def _scaled(x: Any, y: Any) -> Any:
    return x * 2 + 1, y


def _shifted(x: Any, y: Any) -> Any:
    return x - 3, y


def _added(x: Any, y: Any) -> Any:
    return x + y, y


def _as_it_is(x: Any, y: Any) -> Any:
    return x, y


def _labelled(x: Any, y: Any) -> Any:
    return x, y + 1


def _drawn(x: Any, y: Any) -> Any:
    return x + tf.random.uniform([], maxval=9, dtype=tf.int64, seed=2), y


def _some(_x: Any, y: Any) -> Any:
    return y % 3 != 1


def _even(x: Any, _y: Any) -> Any:
    return x % 2 == 0


def _between(_x: Any, y: Any) -> Any:
    return (y < 20) & (y > 2)


OPERATORS: list[Operator] = [
    lambda ds, draw: ds.map(draw.choice([_scaled, _shifted, _added, _as_it_is, _labelled, _drawn])),
    lambda ds, draw: ds.map(draw.choice([_scaled, _shifted, _added]), num_parallel_calls=2),
    lambda ds, draw: ds.filter(draw.choice([_some, _even, _between])),
    lambda ds, draw: ds.skip(draw.choice([0, 2, 5])),
    lambda ds, draw: ds.take(draw.choice([-1, 4, 9])),
    lambda ds, draw: ds.shard(draw.choice([1, 2, 3]), 0),
    lambda ds, draw: ds.prefetch(draw.choice([1, 4])),
    lambda ds, draw: ds.repeat(draw.choice([1, 2])),
    lambda ds, draw: ds.repeat(2).repeat(draw.choice([1, 2])),
    lambda ds, draw: ds.shuffle(draw.choice([3, 50]), seed=4, reshuffle_each_iteration=draw.random() < 0.5),
    lambda ds, draw: ds.cache(),
]
_WEIGHTS = [5, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1]
_OPTIONS = tf.data.Options()
_OPTIONS.experimental_optimization.noop_elimination = False


def made_up(seed: int) -> Any:
    """A dataset, the same for the same seed, whatever was made before."""
    draw = Draw(seed)
    dataset = tf.data.Dataset.from_tensor_slices((np.arange(30), np.arange(30)[::-1].copy()))
    for operator in draw.choices(OPERATORS, _WEIGHTS, k=draw.randint(2, 7)):
        dataset = operator(dataset, draw)
    dataset = dataset.batch(4) if draw.random() < 0.5 else dataset
    return dataset.with_options(_OPTIONS) if draw.random() < 0.5 else dataset


def epochs(dataset: Any) -> list[list[tuple[bytes, ...]]]:
    return [[tuple(part.numpy().tobytes() for part in element) for element in dataset] for _ in range(2)]


def test_exact_plans_give_the_same_elements() -> None:
    tried: Counter[str] = Counter()
    for seed in range(80):
        source = live.read(made_up(seed))
        told = source.pipeline
        for answers in (on_batches, on_inputs, fusion, gathering):
            told = answers.with_answers(source, told)
        context = RuleContext(told, cores=2, cycle_length_in_force=2)
        found = [one for one in rules.propose_all(context)[0] if one.safety is Safety.EXACT and not one.needs]
        early = [one for one in found if one.rule in EARLY]
        if not early:
            continue
        draw = Draw(seed)
        chosen = [draw.choice(early), *draw.sample(found, min(len(found), draw.randint(0, 4)))]
        plan = [one for one in found if any(one is other for other in chosen)]
        if conflict(context, plan):
            continue
        # Both are made anew: a shuffle that two share goes on where the other stopped.
        fresh = live.read(made_up(seed))
        edited = replay(fresh, apply_edits(fresh.pipeline, [edit for one in plan for edit in one.edits]))
        assert epochs(edited) == epochs(made_up(seed)), (seed, [one.key for one in plan])
        tried.update(one.rule for one in plan)
    assert set(tried) >= EARLY, tried
