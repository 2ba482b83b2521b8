"""How well the cost model predicts rates: the plans rules and composer would try, predicted and then measured.

On the examples, and on pipelines of a grammar (`bench/grammar.py`), the same for the same seed. Every plan is
measured by windows interleaved with the others', after the profile and independent of it: nothing measured under a
plan is used to predict it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipetune.bench import Say, grammar
from pipetune.bench.alone import facts_of, study_of
from pipetune.bench.examples import example_datasets
from pipetune.bench.keeping import Kept
from pipetune.core import files
from pipetune.core.accuracy import Claim
from pipetune.core.codec import decode, encode
from pipetune.core.edits import Plan, Rewrite
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.results import RunFailed
from pipetune.model.throughput import predict_examples
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.search.composing import Composer, structural
from pipetune.stages import planning

RESUMES = True
PIPELINES, QUICK_PIPELINES = 12, 2
MOST_PLANS = 10
ROUNDS, QUICK_ROUNDS = 3, 1
WINDOW_SECONDS, WARMUP_SECONDS = 0.5, 0.25
WANTED_ERROR, WANTED_SHARE = 0.10, 0.9

ALIKE = 0.97
"""Rates that differ by less are taken as the same: pipetune accepts no gain below 3 %."""

FIRST = 3
"""Places in the model's order that the best plan must be in."""


@dataclass(frozen=True)
class PlanRow:
    """One plan of one pipeline; rates in elements of the output per second, the input alone."""

    pipeline: str  # the sentence
    plan: str  # its key
    predicted: float | None
    measured: float
    low: float  # the slowest and the fastest round
    high: float
    why: str = ""  # why nothing was predicted

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclass(frozen=True)
class PredictionAccuracy:
    """The figure."""

    plans: int  # predicted and measured
    mean_abs_error: float | None
    best_in_first_three: float | None  # share of the pipelines
    pipelines: int = 0
    not_predicted: int = 0  # plans of which the model said that it cannot tell
    rows: tuple[PlanRow, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One plan of a case: the pipeline it makes, and the rate of each round in elements of the output per second."""

    plan: str
    pipeline: Pipeline
    rates: tuple[float, ...]
    cpu_seconds: tuple[float, ...]  # of the process, per element of the output

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Case:
    """One pipeline: its profile, and every plan as measured."""

    name: str
    profile: Profile
    cores: float
    plans: tuple[Measured, ...]


def measure(*, quick: bool, seed: int, say: Say, kept: Kept) -> PredictionAccuracy:
    """Predicts and measures; what was measured before an interruption is taken up."""
    cases: list[Case] = []
    failed: list[str] = []
    with files.temporary_folder("grammar") as folder:
        datasets: dict[str, Callable[[], Any]] = {} if quick else example_datasets()
        for text in grammar.sentences(QUICK_PIPELINES if quick else PIPELINES, seed):
            datasets[text] = partial(grammar.build, text, Path(folder))
        for number, (name, build) in enumerate(datasets.items(), 1):
            say(f"pipeline {number} of {len(datasets)}")
            if name not in kept:
                try:
                    rounds = QUICK_ROUNDS if quick else ROUNDS
                    kept[name] = encode(measured_case(name, build(), seed=seed, rounds=rounds))
                except RunFailed as failure:
                    failed.append(f"{name}: {failure}")
                    continue
            cases.append(decode(Case, kept[name]))
    notes = [f"Rates within {1 - ALIKE:.0%} of the best count as the best.", *failed]
    return judge(cases, notes=tuple(notes))


def claims(found: PredictionAccuracy, *, quick: bool) -> Sequence[Claim]:
    error, share = found.mean_abs_error, found.best_in_first_three
    over = f"{found.plans} plans of {found.pipelines} pipelines"
    return (
        Claim(
            f"mean error of predicted rates, {over}",
            "not measured" if error is None else f"{error:.1%}",
            f"at most {WANTED_ERROR:.0%}",
            None if error is None or quick else error <= WANTED_ERROR,
        ),
        Claim(
            f"the best plan among the model's first {FIRST}",
            "not measured" if share is None else f"{share:.0%} of {_ranked(found)}",
            f"at least {WANTED_SHARE:.0%}",
            None if share is None or quick else share >= WANTED_SHARE,
        ),
    )


def _ranked(found: PredictionAccuracy) -> int:
    """Pipelines with a plan of which something was predicted."""
    return len({row.pipeline for row in found.rows if row.predicted is not None})


def judge(cases: Sequence[Case], *, notes: tuple[str, ...] = ()) -> PredictionAccuracy:
    """Predicted beside measured, and how often the best plan was among the first the model would try."""
    rows = [row for case in cases for row in rows_of(case)]
    errors = [abs(row.error) for row in rows if row.error is not None]
    ranked = [found for case in cases if (found := best_in_first(rows_of(case))) is not None]
    return PredictionAccuracy(
        plans=len(errors),
        mean_abs_error=statistics.fmean(errors) if errors else None,
        best_in_first_three=sum(ranked) / len(ranked) if ranked else None,
        pipelines=len(cases),
        not_predicted=len(rows) - len(errors),
        rows=tuple(rows),
        notes=notes,
    )


def rows_of(case: Case) -> tuple[PlanRow, ...]:
    """Every plan of a case predicted from its profile, which was taken before and apart."""
    found = []
    for plan in case.plans:
        predicted = predict_examples(plan.pipeline, case.profile, case.cores)
        rate = predicted.examples_per_second
        per_element = case.profile.examples_per_element
        found.append(
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
    return tuple(found)


def best_in_first(rows: Sequence[PlanRow]) -> bool | None:
    """Whether the first plans in the model's order hold one that measures as the best; None without predictions."""
    predicted = [row for row in rows if row.predicted is not None]
    if not predicted:
        return None
    first = sorted(predicted, key=lambda row: -(row.predicted or 0.0))[:FIRST]
    best = max(row.measured for row in rows)
    return any(row.measured >= ALIKE * best for row in first)


def tried_plans(candidates: Sequence[Rewrite], baselines: Mapping[str, Plan], composer: Composer) -> tuple[Plan, ...]:
    """The baselines, each rewrite alone, all that go together, and numbers in AUTOTUNE's place; ten at most."""
    order = structural(candidates)
    plans = [*baselines.values(), *(composer.plan([rewrite]) for rewrite in order), composer.everything(order)]
    plans += [composer.plan([rewrite]) for rewrite in candidates if rewrite not in order]
    allowed = {plan.key: plan for plan in plans if not composer.conflict(plan)}
    return tuple(allowed.values())[:MOST_PLANS]


def measured_case(name: str, dataset: Any, *, seed: int = 0, rounds: int = ROUNDS) -> Case:
    """Profiles the pipeline and measures every plan, its windows interleaved with the others', after the profile.

    A plan that cannot be run is left out.

    Raises:
        RunFailed: the pipeline itself cannot be run.
    """
    study = study_of(dataset)
    try:
        context = facts_of(study)
        candidates, _ = propose_all(context)
        composer = Composer(candidates, conflict=lambda rewrites: find_conflict(context, rewrites))
        plans = tried_plans(candidates, planning.baselines_of(study), composer)
        rates: dict[str, list[float]] = {plan.key: [] for plan in plans}
        cpu: dict[str, list[float]] = {plan.key: [] for plan in plans}
        draw = random.Random(seed)
        for _ in range(rounds):
            for plan in draw.sample(plans, len(plans)):
                try:
                    window = study.runner.input_window(plan, seconds=WINDOW_SECONDS, warmup_seconds=WARMUP_SECONDS)
                except RunFailed:
                    continue
                rates[plan.key].append(window.steps / window.wall_seconds)
                cpu[plan.key].append(window.cpu_seconds / window.steps)
        measured = tuple(
            Measured(plan.key, study.runner.edited(plan), tuple(rates[plan.key]), tuple(cpu[plan.key]))
            for plan in plans
            if len(rates[plan.key]) == rounds
        )
        assert context.profile is not None
        return Case(name, context.profile, study.machine.cores_granted, measured)
    finally:
        study.runner.close()
