"""`merge-repeats`: where it is proposed and where not."""

from __future__ import annotations

import pytest

from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

RULE = "merge-repeats"

SILENT: list[tuple[str, str | None]] = [
    ("range 9 | batch 2", None),
    ("range 9 | repeat", None),
    ("range 9 | repeat 2", None),
    ("range 9 | repeat 2 | map | repeat 3", None),
    ("range 9 | repeat 2 | batch 2 | repeat 3", None),
    ("range 9 | repeat 2 | shuffle 9 | repeat 3", None),
    ("range 9 | repeat 2 | take 9 | repeat 3", None),
    ("range 9 | repeat 2 | skip 9 | repeat 3", None),
    ("range 9 | repeat 2 | cache | repeat 3", None),
    ("range 9 | repeat 2 | prefetch 2 | repeat 3", None),
    ("range 9 | repeat 2 | enumerate | repeat 3", None),
    ("range 9 | repeat 2 | with_options | repeat 3", None),
    ("a = range 9 | repeat 2; b = a | repeat 3; c = a | batch 2; zip b c", None),
    ("a = range 9 | repeat 2; b = range 9 | repeat 3; zip a b", None),
    ("a = range 9 | repeat 2; b = range 9; concatenate a b | repeat 3", None),
    ("range 9 | repeat | repeat 3", "unknown how often"),
    ("range 9 | repeat 3 | repeat None", "unknown how often"),
    ("range 9 | shuffle 9 | repeat 2 | repeat 3", "how often its iteration is restarted"),
    ("range 9 | shuffle 9 seed=3 | batch 2 | repeat 2 | repeat -1", "how often its iteration is restarted"),
    ("list_files | interleave | repeat 2 | repeat 3", "how often its iteration is restarted"),
    ("a = range 9; b = range 9; choose a b | repeat 2 | repeat 3", "how often its iteration is restarted"),
    ("range 9 | repeat 0 | repeat 3", "yields no elements"),
    ("range 9 | repeat -1 | repeat 0", "yields no elements"),
]


@pytest.mark.parametrize(("words", "why"), SILENT)
def test_no_proposal(words: str, why: str | None) -> None:
    silences = check_no_proposal(RULE, words)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, list[str]]] = [
    ("range 9 | repeat 2 | repeat 3", ["EXACT -n2 n1.count=6"]),
    ("range 9 | shuffle 9 reshuffle_each_iteration=False | repeat 2 | repeat 3 | batch 2", ["EXACT -n3 n2.count=6"]),
    ("range 9 | repeat 2 | repeat 3 | shuffle 9", ["EXACT -n2 n1.count=6"]),
    ("range 9 | map random | repeat 2 | repeat 3", ["EXACT -n3 n2.count=6"]),
    ("range 9 | repeat -1 | repeat 3", ["EXACT -n2"]),
    ("range 9 | repeat 3 | repeat -1", ["EXACT -n1"]),
    ("range 9 | repeat -1 | repeat -1", ["EXACT -n2"]),
    ("range 9 | repeat -2 | repeat 3", ["EXACT -n2"]),  # any negative count is infinite
    ("range 9 | repeat 1 | repeat 3", ["EXACT -n1"]),
    ("range 9 | repeat 2 | repeat 3 | repeat 4", ["EXACT -n2 -n3 n1.count=24"]),
    ("range 9 | repeat 2 | repeat -1 | repeat 4", ["EXACT -n1 -n3"]),
    ("range 9 | repeat 2 | repeat 2 | batch 2 | repeat 3 | repeat 5",
     ["EXACT -n2 n1.count=4", "EXACT -n5 n4.count=15"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), FIRES)
def test_proposed_edits(words: str, expected: list[str]) -> None:
    rewrites = check_proposes(RULE, words)
    assert outlines(rewrites) == expected


def test_summary_states_the_count() -> None:
    (finite,) = check_proposes(RULE, "range 9 | repeat 2 | repeat 3")
    assert finite.summary == "Repeat 6 times in one operator instead of 2."
    (endless,) = check_proposes(RULE, "range 9 | repeat 2 | repeat -1")
    assert endless.summary == "Repeat endlessly in one operator instead of 2."
