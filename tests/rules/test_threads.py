"""`threads`: silent unless kernels were measured to spread where cores are full, or an accelerator waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import needs_proof
from pipetune.core.profile import Cause, ConsumerProfile, Diagnosis, Verdict
from pipetune.rules.base import RuleContext
from pipetune.rules.granted_cores import POOL_SIZE
from pipetune.rules.threads import KERNEL_THREADS, RULE
from pipetune.testing.rules import check_fires, check_silent, context, proposals
from tests.rules.outline import outlines

_OFF = {"experimental_optimization.apply_default_optimizations": False}

SILENT: list[tuple[str, dict[str, Any], str]] = [
    ("range 9 | map! AUTOTUNE | batch 2", {}, ""),  # its kernels stay in their thread
    ("range 9 | map! | batch 2", {}, ""),
    ("range 9 | batch 2 spread", {}, "do not run side by side"),
    ("range 9 | map! random spread | batch 2", {}, "do not run side by side"),  # TensorFlow runs it serially
    ("range 9 | map! spread | batch 2", {"options": _OFF}, "do not run side by side"),
    ("range 9 | map! 1 spread | batch 2", {}, "do not run side by side"),
    ("range 9 | map! 2 spread | batch 2", {"cores": 4}, "do not run side by side"),  # two cores are left for kernels
    ("range 9 | map! AUTOTUNE spread | batch 2", {"cores": 1}, "On 1 core the threads"),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"cores": 3}, "On 3 cores the threads"),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"profiled": False}, ""),
    ("range 9 | map! AUTOTUNE spread | batch 2", {"options": {KERNEL_THREADS: 2}, "cores": 4}, "sets options.thr"),
    ("range 9 | map! spread | batch 2", {}, "On 2 cores the threads"),
    ("list_files | interleave 4 cycle_length=4 | map! random spread", {}, "do not run side by side"),
    ("range 9 | map! AUTOTUNE | batch 2", {"device": "gpu"}, ""),  # nobody measured a step
]


@pytest.mark.parametrize(("words", "fields", "says"), SILENT)
def test_silent(words: str, fields: dict[str, Any], says: str) -> None:
    said = check_silent("threads", words, **fields)
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
    ("range 9 | map! spread", {"cores": 4, "cores_believed": 64}, [f"EXACT options.{KERNEL_THREADS}=1"]),
]


@pytest.mark.parametrize(("words", "fields", "wanted"), FIRES)
def test_fires(words: str, fields: dict[str, Any], wanted: list[str]) -> None:
    rewrites = check_fires("threads", words, **fields)
    assert outlines(rewrites) == wanted
    assert len({rewrite.group for rewrite in rewrites}) == 1
    assert not any(rewrite.only_training for rewrite in rewrites)
    assert all("map (train.py:2)" in rewrite.summary for rewrite in rewrites)


def on_accelerator(words: str, *, lost: float, cause: Cause | None, **fields: Any) -> RuleContext:
    """A step of 10 ms, of which the share `lost` is neither the model's nor waiting for an input of 5 ms."""
    fields.setdefault("device", "gpu")
    told = context(words, cores=8, diagnosis=Diagnosis(Verdict.INPUT_BOUND, "", cause=cause), **fields)
    assert told.profile is not None
    consumer = ConsumerProfile("loop", real_seconds=0.01, bound_seconds=0.01 * (1 - lost), input_seconds=0.005)
    return replace(told, profile=replace(told.profile, consumer=consumer))


def test_a_pool_of_its_own_where_an_accelerator_and_the_input_hold_each_other_up() -> None:
    (pool,), _ = proposals(RULE, on_accelerator("range 9 | map! AUTOTUNE | batch 2", lost=0.2, cause=Cause.OPERATOR))
    assert outlines([pool]) == [f"EXACT options.{POOL_SIZE}=8"]
    assert pool.only_training and "20% of a step" in pool.summary


@pytest.mark.parametrize(
    ("words", "lost", "cause", "fields"),
    [
        ("range 9 | map! AUTOTUNE", 0.04, Cause.OPERATOR, {}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.TURNS, {}),  # a prefetch is missing
        ("range 9 | map! AUTOTUNE", 0.2, Cause.BUFFER, {}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.PYTHON, {}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"device": "cpu"}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"options": {POOL_SIZE: 4}}),
        ("range 9 | map! AUTOTUNE", 0.2, Cause.OPERATOR, {"cores_believed": 64}),
        ("range 9 | map! random", 0.2, Cause.OPERATOR, {}),
        ("range 9 | batch 2", 0.2, Cause.OPERATOR, {}),
    ],
)
def test_no_pool_where_something_else_explains_it(
    words: str, lost: float, cause: Cause, fields: dict[str, Any]
) -> None:
    rewrites, _ = proposals(RULE, on_accelerator(words, lost=lost, cause=cause, **fields))
    assert rewrites == []


def test_how_a_kernel_adds_up_in_one_thread_is_compared() -> None:
    alone, with_pool = check_fires("threads", "range 9 | map! AUTOTUNE spread | batch 2", cores=4)
    assert needs_proof(alone.edits) and needs_proof(with_pool.edits)
    assert not needs_proof(with_pool.edits[1:])
