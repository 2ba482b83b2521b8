"""Example sessions for tests, with every field set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.core import edits, profile
from pipetune.core.distribution import Coverage, ElementIdentity, ModuleCheck, WorkerShare
from pipetune.core.edits import Consent, Insert, Move, Plan, Rewrite, Safety, SetArgument
from pipetune.core.functions import FunctionFacts, FunctionSplit, FunctionVariant, RowWindows, SplitPosition
from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, Rate, StepSeries
from pipetune.core.pipeline import Node, Pipeline, SourceLocation
from pipetune.core.profile import VALIDATION_INPUT, Finding, Verdict
from pipetune.core.results import Comparison, DatasetCost, EqualityCheck, Outcome, Trial
from pipetune.core.session import (
    DatasetResult,
    DistributedResult,
    OptionalRewrite,
    PatchResult,
    Rejection,
    Reproducibility,
    Session,
    TrainingResult,
)
from pipetune.core.settings import Command

FOLDER = "/home/ada/secret project"
SCRIPT = f"{FOLDER}/train.py"

MACHINE = Machine(
    cores_granted=2.0,
    cores_host=64,
    cores_affinity=2,
    memory_limit_bytes=8 << 30,
    memory_host_bytes=64 << 30,
    memory_available_bytes=6 << 30,
    processor="An Invented Processor",
    system="Linux",
    python="3.11.7",
    tensorflow="2.21.0",
    keras="3.15.1",
    devices=("/device:CPU:0",),
    device="cpu",
)

AHEAD = Insert("n3", "prefetch", "prefetch@n3", {"buffer_size": -1})
PREPARES = "Prepare the next batch while the model works on this one."
WINDOW = Rewrite("prefetch", "n3", Safety.EXACT, (AHEAD,), PREPARES, group="prefetch", predicted_bytes=1e6)
CALLS = SetArgument("n2", "num_parallel_calls", 2)
PARALLEL = Rewrite("parallel-map", "n2", Safety.STATISTICAL, (CALLS,), "Run two calls at a time.", reproducible=False)
FILE_CACHE = Rewrite(
    rule="cache",
    node="n1",
    safety=Safety.REORDERS,
    edits=(
        Insert("n1", "cache", "cache@n1", {"filename": "/data/private/cache"}),
        Move("n2", "n0"),
        edits.Remove("n3"),
        edits.SetOption("deterministic", True),
        edits.ReplaceFunction("n2", FunctionVariant.ON_BATCHES, "digest"),
        edits.ReplaceSource("n0", "n3", "digest", RowWindows(5, 1, 1, length_known=False)),
        edits.SplitFunction("n2", FunctionSplit(SplitPosition.BEFORE_DRAWS, position=5, element_bytes=2.5, taken=(1,))),
    ),
    summary="Keep what was read in /data/private/cache.",
    needs=frozenset({Consent.FILE_CACHE, Consent.REORDER}),
)


def interval(median: float, *, spread: float = 0.1, pairs: int = 16) -> Interval:
    return Interval(median, median - spread, median + spread, pairs)


def location(line: int, method: str, *, file: str = SCRIPT) -> SourceLocation:
    return SourceLocation(file, line, 4, line, 40, method, scope="make_dataset")


def pipeline() -> Pipeline:
    decode = FunctionFacts("decode", "d1", operations=("DecodeJpeg", "RandomUniform"), random=True)
    return Pipeline(
        (
            Node("n0", "list_files", (), {"pattern": "/data/private/*.tfrecord"}, location=location(3, "list_files")),
            Node("n1", "interleave", ("n0",), {"cycle_length": 4, "block_length": 1}, inner=("TFRecordDataset",)),
            Node("n2", "map", ("n1",), {"num_parallel_calls": None}, function=decode, location=location(5, "map")),
            Node("n3", "batch", ("n2",), {"batch_size": 32, "drop_remainder": False}, location=location(7, "batch")),
        ),
        name="train",
        options={"deterministic": True},
    )


COVERAGE = Coverage(
    (WorkerShare(3, 2, 1, 5, (2, 1), 90, 20), WorkerShare(2, 1, 0, 5, (0, 2), 90, 40)),
    "elements",
    ElementIdentity.INDEX,
    elements=5,
    never=1,
    once=3,
    twice=1,
    oftener=0,
    cells=(2, 3),
)


def session(
    *, speedup: float = 1.3, wait: float = 0.3, verdict: Verdict = Verdict.INPUT_BOUND, spread: float = 0.1
) -> Session:
    plan, wait_share = Plan("tuned", (WINDOW, PARALLEL)), interval(wait, spread=spread / 2)
    limits: dict[str, Any] = {"bottleneck": "n2", "sequential_segments": (("n2", "n3"),)}
    told = "Training waits for input."
    costs = (profile.OperatorProfile("n2", profile.Stage.TRANSFORM, cpu_seconds=0.002, ratio=1.0, random=True),)
    consumer = profile.ConsumerProfile("keras-fit", 0.1, 0.07, 0.05, wait_share)
    dataset = DatasetResult(
        pipeline=pipeline(),
        role="training",
        consumer="fit at train.py:12",
        consumed_elements=100,
        profile=profile.Profile(costs, consumer, examples_per_element=32, cardinality={"n0": 16}),
        diagnosis=profile.Diagnosis(Verdict(verdict), told, wait_share, 0.03, **limits),
        rates={"defaults": Rate(1000.0, 31.25, 800.0, 0.5, 700.0), "tuned": Rate(1500.0)},
        plan=plan,
        gains={WINDOW.key: interval(1.2), PARALLEL.key: interval(1.1)},
        input_speedup=interval(1.5),
        input_speedup_over_autotune=interval(1.2),
        predicted=Rate(1600.0, peak_rss_mib=720.0),
        offered=(OptionalRewrite(FILE_CACHE, interval(3.0), "--allow reorder,file-cache", "freezes the order"),),
        rejected=(Rejection("cache", "n3", f"{SCRIPT}:5 draws at random"),),
        silences=(edits.NoProposal("parallel-interleave", "n1", "no files to overlap"),),
        comparison=Comparison(
            Safety.STATISTICAL, (EqualityCheck("values", True), EqualityCheck("epochs", None, "one epoch")), 128, 3
        ),
        order=Reproducibility(True, False, True, "draws are taken in parallel"),
        tuned=pipeline(),
        step_series={
            "defaults": StepSeries((0.1, 0.25, 0.1), (0.03, 0.18, 0.03), epoch_ends=(1,), compile_seconds=0.05),
            "tuned": StepSeries(why="20 steps need 2.0 s, and 1.5 s were left for them."),
        },
    )
    return Session(
        version="0.1.0",
        command=Command(SCRIPT, "", ("--token", "hunter2-token"), directory=FOLDER, date="2026-01-01T00:00:00+00:00"),
        machine=MACHINE,
        datasets=(dataset, DatasetResult(replace(pipeline(), name="validation"), "validation")),
        trials=(Trial(plan, Outcome.ACCEPTED, "faster", interval(1.5), ratios=(1.4, 1.6), seconds=9.0),),
        training=TrainingResult(100.0, 77.0, 70.0, 95.0, interval(speedup, spread=spread)),
        findings=(Finding("validation-leak", f"take/skip after shuffle in {SCRIPT}", "Split first.", SCRIPT, 9),),
        patch=PatchResult(
            "--- a/train.py\n+++ b/train.py\n", (SCRIPT,), {SCRIPT: "0" * 64}, (WINDOW.key,), verified=True
        ),
        distributed=DistributedResult(
            "multiworker", "import hunter", "distributed.py", checks=(ModuleCheck(2),), coverage=(COVERAGE,)
        ),
        side_effects={"saves_suppressed": 2},
        seconds={"capture": 3.0, "total": 70.5},
        status="done",
        complete=True,
    )


BOTH = "--- a/train.py\n+++ b/train.py\n of both\n"
ALONE = "--- a/train.py\n+++ b/train.py\n of validation\n"
SPLIT = Rewrite("split-early", "n3", Safety.EXACT, (Move("n3", "n1"),), "Let skip drop elements before map.")


def validated(before: Session, *, trained: bool = True) -> Session:
    """Returns the session with a plan for validation that is to be verified.

    Args:
        before: a session as in `session`.
        trained: whether there is a plan for training, too.
    """
    training, validation = before.datasets
    validation = replace(
        validation,
        cost=DatasetCost(element_wall_seconds=0.1, epoch_elements=11, first_wall_seconds=0.9),
        share=0.25,
        plan=Plan("validation", (SPLIT,)),
        tuned=validation.pipeline,
        comparison=training.comparison,
        patch=PatchResult(BOTH, (SCRIPT,), {SCRIPT: "0" * 64}, (SPLIT.key,), expected=("a",), process_mib=1000.0),
    )
    if not trained:
        training = replace(training, plan=None, tuned=None, gains={}, input_speedup=None)
    patch, found = (before.patch, before.training) if trained else (None, TrainingResult(100.0, bound_step_ms=70.0))
    warning = Finding(VALIDATION_INPUT, "The input of validation takes at least 25 %.", "--dataset analyzes it.")
    findings = (*before.findings, warning)
    return replace(before, datasets=(training, validation), patch=patch, training=found, findings=findings)
