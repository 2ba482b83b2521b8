"""Subsets of a shuffled dataset: validation leaks, and subsets that change in each epoch."""

from __future__ import annotations

import pytest

from tests.lint.uses import codes, sharing, use

SHUFFLED = "range elements=100 | shuffle 100"
LEAK = "validation-leak n1"


@pytest.mark.parametrize(
    ("training", "other", "role", "shared", "expected"),
    [
        (f"{SHUFFLED} | skip 20", f"{SHUFFLED} | take 20", "validation", 2, [LEAK]),
        (f"{SHUFFLED} | skip 20 | batch 4", f"{SHUFFLED} | take 20 | batch 4", "evaluation", 2, [LEAK]),
        (f"{SHUFFLED} | take 80 | cache", f"{SHUFFLED} | skip 80", "prediction", 2, ["frozen-order n3", LEAK]),
        (f"{SHUFFLED} | shuffle 9 | skip 20", f"{SHUFFLED} | shuffle 9 | take 20", "validation", 3,
         ["validation-leak n2"]),
        (
            f"{SHUFFLED} | skip 20",
            f"{SHUFFLED} | take 20",
            "preview",
            2,
            [],
        ),  # unless it is known to be the rest
        (f"{SHUFFLED} | skip 20", f"{SHUFFLED} | take 20", "validation", 1, []),  # a separate shuffle
        (f"{SHUFFLED} | skip 20", f"{SHUFFLED} | cache | take 20", "validation", 2, ["partial-cache n2"]),
        (f"{SHUFFLED} | cache | skip 20", f"{SHUFFLED} | cache | take 20", "validation", 3, ["frozen-order n2"]),
        (f"{SHUFFLED} reshuffle_each_iteration=False | skip 20", f"{SHUFFLED} | take 20", "validation", 2, []),
        (f"{SHUFFLED} | batch 4", f"{SHUFFLED} | take 20", "validation", 2, []),  # no split
        (f"{SHUFFLED} | skip 20", f"{SHUFFLED} | map", "validation", 2, []),
        ("range elements=100 | skip 20 | shuffle 80", "range elements=100 | take 20", "validation", 1, []),
    ],
)  # fmt: skip
def test_validation_leaks(training, other, role, shared, expected):
    read = use(training)
    assert codes(training, sharing(read, use(other, role=role), shared)) == expected


def test_leak_is_found_before_other_part_is_read():
    assert codes(f"{SHUFFLED} | skip 20", complemented_nodes=frozenset({"n2"})) == [LEAK]
    assert codes(f"{SHUFFLED} | take 80 | batch 4", complemented_nodes=frozenset({"n2"})) == [LEAK]
    assert codes(f"{SHUFFLED} | cache | take 80", complemented_nodes=frozenset({"n3"})) == [
        "frozen-order n2",
        "partial-cache n2",
    ]


CHANGES = "subset-changes n2"


@pytest.mark.parametrize(
    ("text", "how", "expected"),
    [
        (f"{SHUFFLED} | take 10", {}, [CHANGES]),
        (f"{SHUFFLED} | take 10 | batch 5 | prefetch 2", {"epochs": 3}, [CHANGES]),
        ("range elements=100 | shuffle 50 | map | take 10", {}, ["subset-changes n3"]),
        (f"{SHUFFLED} | take 10", {"epochs": 1}, [CHANGES]),  # of a call that a loop may make again
        (f"{SHUFFLED} | take 10", {"epochs": 1, "epochs_certain": True}, []),
        (f"{SHUFFLED} | take 10", {"role": "validation"}, []),
        (f"{SHUFFLED} | take 100", {}, []),
        (f"{SHUFFLED} | skip 10", {}, []),  # a resumed run
        (f"{SHUFFLED} | repeat | take 10", {}, []),
        (f"{SHUFFLED} | batch 5 | take 10", {}, []),  # a preview of some batches
        (f"{SHUFFLED} | filter | take 10", {}, []),
        ("range | shuffle 50 | take 10", {}, []),  # possibly all elements
        (f"{SHUFFLED} reshuffle_each_iteration=False | take 10", {}, []),
        ("range elements=100 | take 10 | shuffle 10", {}, []),
        (f"{SHUFFLED} | take 10 | cache | shuffle 10", {}, []),
    ],
)
def test_changing_subsets_are_reported(text, how, expected):
    assert codes(text, **how) == expected
