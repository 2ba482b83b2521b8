"""The accuracy of predicted rates: the plans that a search would try are predicted by the cost model, and measured.

The pipelines are those of the examples, and random ones from a grammar (`bench/grammar.py`) that depend on the seed
alone. The windows of all plans are interleaved, and are measured after the profile: no measurement of a plan is used to
predict it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import ProgressCallback
from benchmarks.accuracy import grammar
from benchmarks.claims import Claim
from benchmarks.dataset_study import create_study, measure_facts
from benchmarks.examples import example_datasets
from benchmarks.resumable import ResumableResults
from pipetune.core import files
from pipetune.core.edits import Consent, Plan, Rewrite
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.model.throughput import predict_examples
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.search.composing import Composer, structural
from pipetune.search.race import Arm, race
from pipetune.stages import planning

PIPELINES, QUICK_PIPELINES = 12, 2
MAX_PLANS = 10
ROUNDS, QUICK_ROUNDS = 3, 1
WINDOW_SECONDS, WARMUP_SECONDS = 0.5, 0.25
TARGET_ERROR, TARGET_SHARE = 0.10, 0.9

EQUAL_ABOVE = 0.97
"""Rates above this fraction of the best one count as equal to it: pipetune accepts no gain below 3 %."""

FIRST = 3
"""The best plan must be among this many plans with the highest predicted rates."""


@dataclass(frozen=True)
class PlanRow:
    """One plan of one pipeline. Rates are those of the input alone, in elements of the output per second."""

    pipeline: str  # name of the example, or sentence of the grammar
    plan: str  # its key
    predicted: float | None
    measured: float  # median of the rounds
    low: float  # slowest round
    high: float  # fastest round
    why: str = ""  # why there is no prediction

    @property
    def error(self) -> float | None:
        """The relative error, predicted / measured - 1; None without a prediction."""
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclass(frozen=True)
class PredictionAccuracy:
    """The figure. Errors are relative: 0.1 is 10 %; None if nothing was predicted."""

    plans: int  # predicted and measured
    mean_abs_error: float | None
    best_in_first_three: float | None  # share of the pipelines
    pipelines: int = 0
    not_predicted: int = 0  # plans without a prediction
    rows: tuple[PlanRow, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredPlan:
    """One plan of a case, as measured."""

    plan: str  # its key
    pipeline: Pipeline  # with the plan applied
    rates: tuple[float, ...]  # of each round, in elements of the output per second

    @property
    def rate(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Case:
    """One pipeline: its profile, and all measured plans."""

    name: str
    profile: Profile
    cores: float
    plans: tuple[MeasuredPlan, ...]


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> PredictionAccuracy:
    """Measures all pipelines that are not saved yet, and compares them with the predictions."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    cases: list[Case] = []
    failed: list[str] = []
    with files.temporary_folder("grammar") as folder:
        datasets: dict[str, Callable[[], Any]] = {} if quick else example_datasets()
        for text in grammar.sentences(QUICK_PIPELINES if quick else PIPELINES, seed):
            datasets[text] = partial(grammar.build, text, Path(folder))
        for number, (name, build) in enumerate(datasets.items(), 1):
            progress(f"pipeline {number} of {len(datasets)}")
            try:
                cases.append(saved.get(Case, name, partial(measure_case, name, build, seed=seed, rounds=rounds)))
            except RunFailed as failure:
                failed.append(f"{name}: {failure}")
    notes = [f"Rates within {1 - EQUAL_ABOVE:.0%} of the best count as the best.", *failed]
    return summarize(cases, notes=tuple(notes))


def claims(result: PredictionAccuracy, *, quick: bool) -> Sequence[Claim]:
    """Returns the mean error and how often the best plan is among the first; quick runs have no targets."""
    error, share = result.mean_abs_error, result.best_in_first_three
    plans = f"{result.plans} plans of {result.pipelines} pipelines"
    return (
        Claim(
            f"mean error of predicted rates, {plans}",
            "not measured" if error is None else f"{error:.1%}",
            f"at most {TARGET_ERROR:.0%}",
            None if error is None or quick else error <= TARGET_ERROR,
        ),
        Claim(
            f"the best plan among the model's first {FIRST}",
            "not measured" if share is None else f"{share:.0%} of {_ranked_pipelines(result)}",
            f"at least {TARGET_SHARE:.0%}",
            None if share is None or quick else share >= TARGET_SHARE,
        ),
    )


def _ranked_pipelines(result: PredictionAccuracy) -> int:
    """Returns the number of pipelines with at least one predicted plan."""
    return len({row.pipeline for row in result.rows if row.predicted is not None})


def summarize(cases: Sequence[Case], *, notes: tuple[str, ...] = ()) -> PredictionAccuracy:
    """Predicts all measured plans, and returns the errors and how often the best plan is among the first."""
    by_case = [predict_rows(case) for case in cases]
    rows = [row for case_rows in by_case for row in case_rows]
    errors = [abs(row.error) for row in rows if row.error is not None]
    ranked = [best for case_rows in by_case if (best := best_in_first(case_rows)) is not None]
    return PredictionAccuracy(
        plans=len(errors),
        mean_abs_error=statistics.fmean(errors) if errors else None,
        best_in_first_three=sum(ranked) / len(ranked) if ranked else None,
        pipelines=len(cases),
        not_predicted=len(rows) - len(errors),
        rows=tuple(rows),
        notes=notes,
    )


def predict_rows(case: Case) -> tuple[PlanRow, ...]:
    """Predicts every plan of a case from its profile."""
    rows = []
    for plan in case.plans:
        predicted = predict_examples(plan.pipeline, case.profile, case.cores)
        rate = predicted.examples_per_second
        per_element = case.profile.examples_per_element
        rows.append(
            PlanRow(
                pipeline=case.name,
                plan=plan.plan,
                predicted=None if rate is None else rate / per_element,
                measured=plan.rate,
                low=min(plan.rates),
                high=max(plan.rates),
                why=predicted.why,
            )
        )
    return tuple(rows)


def best_in_first(rows: Sequence[PlanRow]) -> bool | None:
    """Whether one of the `FIRST` plans by predicted rate is as fast as the best one; None without predictions."""
    predicted = [row for row in rows if row.predicted is not None]
    if not predicted:
        return None
    first = sorted(predicted, key=lambda row: -(row.predicted or 0.0))[:FIRST]
    best = max(row.measured for row in rows)
    return any(row.measured >= EQUAL_ABOVE * best for row in first)


def candidate_plans(
    candidates: Sequence[Rewrite], baselines: Mapping[str, Plan], composer: Composer
) -> tuple[Plan, ...]:
    """Returns up to `MAX_PLANS` plans: baselines, each structural rewrite alone, all of them, then other rewrites."""
    order = structural(candidates)
    plans = [*baselines.values(), *(composer.plan([rewrite]) for rewrite in order), composer.everything(order)]
    plans += [composer.plan([rewrite]) for rewrite in candidates if rewrite not in order]
    allowed = {plan.key: plan for plan in plans if not composer.conflict(plan)}
    return tuple(allowed.values())[:MAX_PLANS]


def measure_case(name: str, build: Callable[[], Any], *, seed: int = 0, rounds: int = ROUNDS) -> Case:
    """Profiles a pipeline, and then measures its plans in rounds of interleaved windows.

    Plans that cannot be run are left out.

    Args:
        name: name of the case.
        build: builds the pipeline.
        seed: seed of the order in each round.
        rounds: number of windows per plan.

    Raises:
        RunFailed: the original pipeline cannot be run.
    """
    study = create_study(build())
    try:
        context = measure_facts(study)
        candidates, _ = propose_all(context)
        composer = Composer(candidates, conflict=lambda rewrites: find_conflict(context, rewrites))
        plans = candidate_plans(candidates, planning.baselines_of(study, allow=tuple(Consent)), composer)
        arms = [Arm(plan, "input") for plan in plans]
        measure_window = partial(study.runner.input_window, seconds=WINDOW_SECONDS, warmup_seconds=WARMUP_SECONDS)
        race(arms, None, take=lambda arm: measure_window(arm.plan), draw=random.Random(seed), rounds=rounds)
        measured = tuple(
            MeasuredPlan(
                arm.plan.key,
                study.runner.edited(arm.plan),
                tuple(window.steps / window.wall_seconds for window in arm.windows),
            )
            for arm in arms
            if not arm.failure
        )
        assert context.profile is not None
        return Case(name, context.profile, study.machine.cores_granted, measured)
    finally:
        study.runner.close()
