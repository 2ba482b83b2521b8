"""The rate limit of Python code: the suggestion for generators, and no more parallel calls where the GIL is held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import Rewrite
from pipetune.core.profile import ConsumerProfile, Finding
from pipetune.rewrites import propose_all
from pipetune.rewrites.parallel_map import suggest_generator_alternatives
from pipetune.testing.rules import context


def advice(words: str, *, input_wall_seconds: float | None = 0.1, **consumer: Any) -> list[Finding]:
    described = context(words)
    assert described.profile is not None
    profile = replace(
        described.profile,
        consumer=ConsumerProfile(kind="keras-fit", **consumer),
        input_wall_seconds=input_wall_seconds,
    )
    return list(suggest_generator_alternatives(replace(described, profile=profile)))


SILENT = [
    "range 9 | map python cpu=2ms waits=0us | batch 32",
    "list_files | map! reads_file | batch 32",
    "range 2 | flat_map! inner=GeneratorDataset python | batch 32",
    "from_generator cpu=100us waits=0us | map! | batch 32",  # 3 ms of the 100 ms per batch
]


@pytest.mark.parametrize("words", SILENT)
def test_no_suggestion(words: str) -> None:
    assert advice(words) == []


def test_generator_limit_and_alternative_are_suggested() -> None:
    (found,) = advice("from_generator cpu=2ms waits=0us | batch 32", bound_seconds=0.02)
    assert (found.code, found.file, found.line) == ("python-generator", "train.py", 1)
    assert "at most 500 elements/s (2.0 ms each)" in found.message and "under the GIL" in found.message
    assert "Per training step, that is 64 ms, 3.2 times what the model needs." in found.message
    assert "from_tensor_slices((paths, labels)).map(load" in found.hint and "TFRecords" in found.hint
    (found,) = advice("from_generator cpu=1ms waits=3ms | batch 32", bound_seconds=0.32)
    assert "at most 250 elements/s (4.0 ms each, 75% of that waiting)" in found.message
    assert "40% of what the model needs" in found.message
    (found,) = advice("from_generator cpu=2ms | batch 32")
    assert "training step" not in found.message  # no step was measured


def test_no_suggestion_without_a_profile() -> None:
    assert list(suggest_generator_alternatives(context("from_generator", profiled=False))) == []
    assert advice("from_generator cpu=2ms | batch 32", input_wall_seconds=None) == []


def test_no_rule_rewrites_a_generator_or_parallelizes_busy_python() -> None:
    found, silences = propose_all(context("from_generator cpu=2ms waits=0us | map python cpu=2ms waits=0us"))
    assert not [one for one in found if isinstance(one, Rewrite) and "num_parallel_calls" in repr(one.edits)]
    assert not [one for one in found if one.node == "n0"]
    assert {silence.rule for silence in silences if "under the GIL" in silence.why} == {"parallel-map"}
