"""`prefetch`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.profile import Diagnosis, Verdict
from pipetune.testing.rules import check_no_proposal, check_proposes
from pipetune.testing.words import pipeline
from tests.rewrites.outline import outlines

_W = frozenset({"w"})

SILENT: list[tuple[str, dict[str, Any], str]] = [
    ("range 9 | map variable=w | batch 2", {}, "reads the variable w"),
    ("range 9 | map variable=w | batch 2", {"trained_variables": _W}, "reads the variable w"),
    ("range 9 | map variable=w | shuffle 5 | batch 2 | repeat", {"trained_variables": _W}, "variable w"),
    ("range 9 | map variable=w | prefetch 1 | batch 2", {"trained_variables": _W}, "variable w"),
    ("range 9 | map variable=w | prefetch 1", {"trained_variables": _W}, "variable w"),
    ("range 9 | filter variable=w | batch 2", {"trained_variables": _W}, "variable w"),
    ("list_files | interleave variable=w | batch 2", {"trained_variables": _W}, "variable w"),
    ("a = range 9; b = range 9 | map variable=w; zip a b | batch 2", {"trained_variables": _W}, "variable w"),
    ("range 9 | map writes=seen | batch 2", {"trained_variables": frozenset()}, "writes a variable"),
    ("range 9 | map writes python_random | batch 2", {}, "reads the variable w"),
    ("range 9 | map table | batch 2", {"trained_variables": frozenset()}, "table"),
    ("range 9 | map file | batch 2", {}, "side effect (WriteFile)"),
    ("range 9 | map unknown | batch 2", {}, "nothing is known"),
    ("range 9 | opaque | batch 2", {}, "nothing is known"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str) -> None:
    (silence,) = check_no_proposal("prefetch", words, **fields)
    assert why in silence.why


def _end(node: str) -> list[str]:
    return [f"EXACT prefetch(buffer_size={size})>{node}" for size in (-1, 1, 2, 4)]


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("range 9 | map | batch 2", {}, _end("n2")),
    ("range 9 | map random | shuffle 5 | batch 2 | repeat", {}, _end("n4")),
    ("range 9 | map variable=w | batch 2", {"trained_variables": frozenset({"v"})}, _end("n2")),
    ("range 9 | map print | batch 2", {}, _end("n2")),
    ("range 9 | map writes python_random | batch 2", {"trained_variables": frozenset()}, _end("n2")),
    ("range 9 | map python | batch 2", {}, _end("n2")),
    ("from_generator | batch 2", {}, _end("n1")),
    ("range 9 | batch 2 | with_options", {}, _end("n2")),
    ("range 9 | batch 2 | prefetch 2", {}, [f"EXACT n2.buffer_size={size}" for size in (-1, 1, 4)]),
    ("range 9 | batch 2 | prefetch AUTOTUNE", {}, [f"EXACT n2.buffer_size={size}" for size in (1, 2, 4)]),
    (
        "range 9 | batch 2 | prefetch 2 | with_options",
        {},
        [f"EXACT n2.buffer_size={size}" for size in (-1, 1, 4)],
    ),
    ("range 9 | batch 2 | prefetch 3 | map", {}, [*_end("n3"), "EXACT n2>n3"]),
    (
        "range 9 | prefetch 1000 | batch 2",
        {},
        [*_end("n2"), "EXACT n1>n2 n1.buffer_size=-1", "EXACT n1>n2 n1.buffer_size=2"],
    ),
    ("a = range 9 | prefetch 2; b = range 9; zip a b", {}, _end("n3")),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("A2.inserted")
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_proposes("prefetch", words, **fields)
    assert outlines(rewrites) == expected
    assert len({rewrite.group for rewrite in rewrites}) == 1
    assert all(rewrite.reproducible and rewrite.epochs_kept and not rewrite.needs for rewrite in rewrites)


def test_buffer_is_priced_by_its_elements() -> None:
    rewrites = check_proposes("prefetch", "range 9 | map bytes=1k | batch 10")
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [80_000, 10_000, 20_000, 40_000]


def _diagnosis(words: str, segment: tuple[str, ...], bottleneck: str) -> Diagnosis:
    assert all(node in pipeline(words) for node in segment)
    return Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=bottleneck, sequential_segments=(segment,))


_STAGES = "list_files | interleave cpu=4ms | map random cpu=5ms | filter cpu=1us | shuffle 9 | batch 2 | prefetch 1"
_SEGMENT = ("n0", "n1", "n2", "n3", "n4", "n5", "n6")


def _between(words: str, diagnosis: Diagnosis | None, **fields: Any) -> list[str]:
    rewrites = check_proposes("prefetch", words, diagnosis=diagnosis, **fields)
    last = pipeline(words).output.id
    return outlines([rewrite for rewrite in rewrites if rewrite.node != last])


@pytest.mark.mission("A2.inserted")
def test_limiting_segment_is_split_in_half() -> None:
    diagnosis = _diagnosis(_STAGES, _SEGMENT, "n3")
    assert _between(_STAGES, diagnosis) == [
        "EXACT prefetch(buffer_size=-1)>n2",
        "EXACT prefetch(buffer_size=2)>n2",
    ]


@pytest.mark.parametrize(
    ("words", "segment", "bottleneck", "fields"),
    [
        (_STAGES, _SEGMENT, "n7", {}),  # another operator limits
        (_STAGES, (), "n3", {}),
        (_STAGES, ("n3",), "n3", {}),  # a single operator cannot be split
        (_STAGES, _SEGMENT, "n3", {"profiled": False}),  # no place is known without costs
        ("range 9 | map! | map cpu=1us | prefetch 1", ("n1", "n2"), "n1", {}),  # one operator takes all the time
    ],
)
def test_segment_is_not_split(words: str, segment: tuple[str, ...], bottleneck: str, fields: dict[str, Any]) -> None:
    assert _between(words, _diagnosis(words, segment, bottleneck), **fields) == []


def test_segment_is_not_split_without_a_diagnosis() -> None:
    assert _between(_STAGES, None) == []
