"""`threads`: proposed only where kernels were measured to use several threads, or an accelerator waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import needs_comparison
from pipetune.core.profile import Cause, ConsumerProfile, Diagnosis, Verdict
from pipetune.rewrites.pricing import POOL_SIZE
from pipetune.rewrites.rule import RuleContext
from pipetune.rewrites.threads import KERNEL_THREADS, RULE
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.tables import outlines

_OFF = {"experimental_optimization.apply_default_optimizations": False}

SILENT: list[tuple[str, dict[str, Any], str]] = [
    ("range 9 | map! AUTOTUNE | batch 2", {}, ""),  # its kernels stay in their thread
    ("range 9 | map! | batch 2", {}, ""),
    ("range 9 | batch 2 spread", {}, "do not run in parallel"),
    ("range 9 | map! random spread | batch 2", {}, "do not run in parallel"),  # TensorFlow runs it serially
    ("range 9 | map! spread | batch 2", {"options": _OFF}, "do not run in parallel"),
    ("range 9 | map! 1 spread | batch 2", {}, "do not run in parallel"),
    ("range 9 | map! 2 spread | batch 2", {"cores": 4}, "do not run in parallel"),  # two cores are left for kernels
    ("range 9 | map! AUTOTUNE spread | batch 2", {"cores": 1}, "On 1 core, running a kernel in one thread"),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"cores": 3}, "On 3 cores, running a kernel in one thread"),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"profiled": False}, ""),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"options": {KERNEL_THREADS: 2}, "cores": 4}, "sets options.thr"),
    ("range 9 | map! spread | batch 2", {}, "On 2 cores, running a kernel in one thread"),
    ("list_files | interleave 4 cycle_length=4 | map! random spread", {}, "do not run in parallel"),
    ("range 9 | map! AUTOTUNE | batch 2", {"device": "gpu"}, ""),  # no step was measured
]


@pytest.mark.parametrize(("words", "fields", "says"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], says: str) -> None:
    said = check_no_proposal("threads", words, **fields)
    assert bool(said) == bool(says)
    assert all(says in silence.why for silence in said)


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "range 9 | map! AUTOTUNE spread | batch 2",
        {"cores": 4},
        [f"EXACT options.{KERNEL_THREADS}=1", f"EXACT options.{KERNEL_THREADS}=1 options.{POOL_SIZE}=4"],
    ),
    (
        "range 9 | map! spread | batch 2",  # TensorFlow makes it parallel
        {"cores": 8},
        [f"EXACT options.{KERNEL_THREADS}=1", f"EXACT options.{KERNEL_THREADS}=1 options.{POOL_SIZE}=8"],
    ),
    ("range 9 | map! 4 random spread", {"options": {POOL_SIZE: 3}, "cores": 4}, [f"EXACT options.{KERNEL_THREADS}=1"]),
    ("range 9 | map! spread", {"cores": 4, "detected_cores": 64}, [f"EXACT options.{KERNEL_THREADS}=1"]),
]


@pytest.mark.parametrize(("words", "fields", "wanted"), FIRES)
def test_proposed_options(words: str, fields: dict[str, Any], wanted: list[str]) -> None:
    rewrites = check_proposes("threads", words, **fields)
    assert outlines(rewrites) == wanted
    assert len({rewrite.group for rewrite in rewrites}) == 1
    assert not any(rewrite.only_training for rewrite in rewrites)
    assert all("map (train.py:2)" in rewrite.summary for rewrite in rewrites)


def on_accelerator(words: str, *, lost: float, cause: Cause | None, **fields: Any) -> RuleContext:
    """A step of 10 ms with an input of 5 ms; the share `lost` is neither the model's time nor input wait."""
    fields.setdefault("device", "gpu")
    told = context(words, cores=8, diagnosis=Diagnosis(Verdict.INPUT_BOUND, "", cause=cause), **fields)
    assert told.profile is not None
    consumer = ConsumerProfile("loop", real_seconds=0.01, bound_seconds=0.01 * (1 - lost), input_seconds=0.005)
    return replace(told, profile=replace(told.profile, consumer=consumer))


def test_thread_pool_is_proposed_for_lost_overlap_on_an_accelerator() -> None:
    (pool,), _ = proposals(RULE, on_accelerator("range 9 | map! AUTOTUNE | batch 2", lost=0.2, cause=Cause.OPERATOR))
    assert outlines([pool]) == [f"EXACT options.{POOL_SIZE}=8"]
    assert pool.only_training and "20% of a step" in pool.summary


@pytest.mark.parametrize(
    ("words", "lost", "cause", "fields"),
    [
        ("range 9 | map! AUTOTUNE", 0.04, Cause.OPERATOR, {}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.NO_PREFETCH, {}),  # a prefetch is missing
        ("range 9 | map! AUTOTUNE", 0.2, Cause.BUFFER, {}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.PYTHON, {}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"device": "cpu"}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"options": {POOL_SIZE: 4}}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"detected_cores": 64}),
        ("range 9 | map! random", 0.2, Cause.OPERATOR, {}),
        ("range 9 | batch 2", 0.2, Cause.OPERATOR, {}),
    ],
)
def test_no_thread_pool_where_another_cause_is_found(
    words: str, lost: float, cause: Cause, fields: dict[str, Any]
) -> None:
    rewrites, _ = proposals(RULE, on_accelerator(words, lost=lost, cause=cause, **fields))
    assert rewrites == []


def test_single_threaded_kernels_need_comparison() -> None:
    alone, with_pool = check_proposes("threads", "range 9 | map! AUTOTUNE spread | batch 2", cores=4)
    assert needs_comparison(alone.edits) and needs_comparison(with_pool.edits)
    assert not needs_comparison(with_pool.edits[1:])
