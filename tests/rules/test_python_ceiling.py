"""What Python code can give at most: advice on generators, and no more parallel calls for what holds the lock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import Rewrite
from pipetune.core.profile import ConsumerProfile, Finding
from pipetune.rules import propose_all
from pipetune.rules.python_ceiling import slow_generators
from pipetune.testing.rules import context


def advice(words: str, *, input_wall_seconds: float | None = 0.1, **consumer: Any) -> list[Finding]:
    described = context(words)
    assert described.profile is not None
    profile = replace(
        described.profile,
        consumer=ConsumerProfile(kind="keras-fit", **consumer),
        input_wall_seconds=input_wall_seconds,
    )
    return list(slow_generators(replace(described, profile=profile)))


SILENT = [
    "range 9 | map python cpu=2ms waits=0us | batch 32",
    "list_files | map! reads_file | batch 32",
    "range 2 | flat_map! inner=GeneratorDataset python | batch 32",
    "from_generator cpu=100us waits=0us | map! | batch 32",  # 3 ms of the 100 ms that a batch takes
]


@pytest.mark.parametrize("words", SILENT)
def test_silent(words: str) -> None:
    assert advice(words) == []


def test_the_most_that_a_generator_gives_is_told_with_what_to_write_instead() -> None:
    (found,) = advice("from_generator cpu=2ms waits=0us | batch 32", bound_seconds=0.02)
    assert (found.code, found.file, found.line) == ("python-generator", "train.py", 1)
    assert "500 elements/s at most (2.0 ms each)" in found.message and "interpreter's lock" in found.message
    assert "For one training step that is 64 ms, 3.2 times what the model needs." in found.message
    assert "from_tensor_slices((paths, labels)).map(load" in found.hint and "TFRecords" in found.hint
    (found,) = advice("from_generator cpu=1ms waits=3ms | batch 32", bound_seconds=0.32)
    assert "250 elements/s at most (4.0 ms each, 75% of it waiting)" in found.message
    assert "40% of what the model needs" in found.message
    (found,) = advice("from_generator cpu=2ms | batch 32")
    assert "training step" not in found.message  # no step was measured


def test_without_a_profile_no_figure_is_made_up() -> None:
    assert list(slow_generators(context("from_generator", profiled=False))) == []
    assert advice("from_generator cpu=2ms | batch 32", input_wall_seconds=None) == []


def test_no_rule_rewrites_a_generator_or_gives_working_python_more_calls() -> None:
    found, silences = propose_all(context("from_generator cpu=2ms waits=0us | map python cpu=2ms waits=0us"))
    assert not [one for one in found if isinstance(one, Rewrite) and "num_parallel_calls" in repr(one.edits)]
    assert not [one for one in found if one.node == "n0"]
    assert {silence.rule for silence in silences if "interpreter's lock" in silence.why} == {"parallel-map"}
