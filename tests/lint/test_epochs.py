"""Data that runs out, epochs that are mixed, examples that are counted twice, subsets of a shuffled dataset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.pipeline import SourceLocation
from pipetune.lint import find_mistakes
from tests.lint.uses import check, codes, rows, sharing, use

ROWS = "range elements=100"
DRAWS = "map calls=StatelessRandomUniformV2"
COUNTER = "b = from_tensors elements=1 | repeat | scan"
KERAS_3 = {"restarts_data": True}
SHUFFLED = "range elements=100 | shuffle 100"
CHANGES = "subset-changes n2"
LEAK = "validation-leak n1"

FIRES = [
    (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3}, ["runs-out-of-data n1"],
     "4 steps x 3 epochs = 12 batches; the dataset has 10: training stops there"),
    (f"{ROWS} | batch 10", {"steps": 11}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10 | repeat 2", {"steps": 7, "epochs": 3}, ["runs-out-of-data n2"]),
    (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3, **KERAS_3}, ["runs-out-of-data n1"], "epoch 3 ends after 2 steps"),
    (f"{ROWS} | batch 10", {"steps": 11, "epochs": 1, **KERAS_3}, ["runs-out-of-data n1"],
     "every epoch ends after 10 steps"),
    (f"{ROWS} | batch 10", {"steps": 20, "role": "validation"}, ["runs-out-of-data n1"],
     "The validation requests 20 batches; the dataset has 10."),
    (f"{ROWS} | batch 10 | repeat", {"role": "validation"}, ["endless-validation n2"]),
    (f"{ROWS} | repeat | shuffle 50", {}, ["epochs-blend n2"], "Up to 50 of 100 elements"),
    (f"{ROWS} | map | repeat 3 | map | shuffle 2 | batch 10", {}, ["epochs-blend n4"]),
    ("list_files | repeat | interleave | shuffle 50", {}, ["epochs-blend n4"]),
    (f"a = {ROWS}; b = {ROWS}; zip a b elements=100 | repeat | shuffle 50", {}, ["epochs-blend n4"]),
    (f"{ROWS} | repeat | batch 32", {"steps": 3, "epochs": 9}, ["repeat-before-batch n1"]),
    (f"{ROWS} | repeat | batch 32", {"steps": 4, "role": "validation"}, ["uneven-evaluation n1"],
     "128 examples of data that has 100: 28 of"),
    (f"{ROWS} | batch 10 | repeat", {"steps": 11, "role": "evaluation"}, ["uneven-evaluation n2"],
     "11 batches of data that has 10: 1 of"),
    (f"{ROWS} | repeat 2 | batch 10", {"steps": 90, "role": "evaluation"},
     ["runs-out-of-data n2", "uneven-evaluation n1"], "200 examples of data that has 100: 100 of them count twice"),
    (f"{ROWS} | repeat | batch 10", {"steps": 25, "role": "evaluation"}, ["uneven-evaluation n1"], "more than once"),
    (f"a = {ROWS}; b = {ROWS}; zip a b | shuffle 50 | {DRAWS} | batch 10", {}, ["augmentation-repeats n4"]),
    (f"a = {ROWS}; {COUNTER}; zip a b | {DRAWS} | repeat", {"epochs": 9}, ["augmentation-repeats n5"]),
    (f"{ROWS} | shuffle 50 | {DRAWS}", {}, ["augmentation-repeats n2"]),
    (f"{SHUFFLED} | take 10 | batch 5 | prefetch 2", {"epochs": 3}, [CHANGES]),
    ("range elements=100 | shuffle 50 | map | take 10", {}, ["subset-changes n3"]),
    (f"{SHUFFLED} | take 10", {"epochs": 1}, [CHANGES]),  # of a call that a loop may make again
]  # fmt: skip

SILENT = [
    (f"{ROWS} | batch 10", {"steps": 5, "epochs": 2}),
    (f"{ROWS} | batch 10", {"steps": 10, "epochs": 3}),  # Keras restarts the data if the numbers are equal
    (f"{ROWS} | batch 10", {"steps": 5, "epochs": 3, **KERAS_3}),  # Keras 3 also if they are multiples
    (f"{ROWS} | batch 10 | repeat", {"steps": 4, "epochs": 30}),
    (f"{ROWS} | batch 10 | repeat 3", {"steps": 10, "epochs": 3}),
    (f"{ROWS} | filter | batch 10", {"steps": 1000, "epochs": 3}),  # unknown cardinality
    (f"{ROWS} | batch 10", {"steps": 10, "role": "validation"}),
    (f"{ROWS} | batch 10 | repeat", {"role": "validation", "steps": 10}),
    (f"{ROWS} | shuffle 50 | repeat | batch 10", {}),
    (f"{ROWS} | repeat | shuffle 1 | batch 10", {}),
    (f"{ROWS} | repeat 1 | shuffle 50 | batch 10", {}),
    (f"{ROWS} | repeat | shuffle 50", {"role": "evaluation"}),
    (f"{ROWS} | repeat 2 | cache | shuffle 50", {}),
    ("range elements=100000 | repeat | shuffle 500", {}),  # only a small share is mixed
    ("range elements=1 | repeat | shuffle 50", {}),
    # another epoch of the backgrounds, of the rare class, not of all data
    (f"a = {ROWS}; b = range elements=9 | repeat; zip a b elements=100 | shuffle 50", {}),
    (f"a = range elements=9 | repeat 10; b = {ROWS}; concatenate a b | shuffle 50", {}),
    (f"a = range elements=9 | repeat; b = {ROWS} | repeat; choose a b | shuffle 50", {}),
    ("from_generator | repeat | shuffle 50", {}),  # it may be infinite
    (f"{ROWS} | repeat | batch 32", {"epochs": 9}),  # epochs without a number of steps
    (f"{ROWS} | repeat | batch 20", {"steps": 5, "epochs": 9}),
    (f"{ROWS} | repeat | batch 32 drop_remainder=True", {"steps": 3, "epochs": 9}),
    (f"{ROWS} | batch 32 | repeat", {"steps": 3, "epochs": 9}),
    (f"{ROWS} | repeat | filter | batch 32", {"steps": 3, "epochs": 9}),
    (f"{ROWS} | repeat | batch 32", {"steps": 25, "epochs": 9}),  # 800 examples: eight epochs of the data
    (f"{ROWS} | repeat | batch 32", {"steps": 3, "role": "validation"}),  # a part of the data, as requested
    (f"{ROWS} | batch 32 | repeat", {"steps": 4, "role": "validation"}),
    (f"{ROWS} | batch 10 | repeat | take 20", {"steps": 20, "role": "evaluation"}),
    (f"a = {ROWS} | shuffle 50; b = {ROWS}; zip a b | {DRAWS}", {}),  # an element meets another seed in each epoch
    (f"a = {ROWS} | repeat; {COUNTER}; zip a b | {DRAWS}", {}),
    (f"a = {ROWS}; b = random | repeat; zip a b | {DRAWS}", {}),
    (f"a = {ROWS} | map random; b = {ROWS}; zip a b | {DRAWS}", {}),
    (f"a = {ROWS} | map 2 deterministic=False; b = {ROWS}; zip a b | {DRAWS}", {}),
    *((f"{ROWS} | {DRAWS} {word}", {}) for word in ("random", "python", "variable=w")),
    (f"{ROWS} | map unknown", {}),
    (f"from_generator | {DRAWS}", {}),
    (f"{ROWS} | {DRAWS}", {"epochs": 1}),
    (f"{ROWS} | {DRAWS}", {"role": "validation"}),
    (f"{SHUFFLED} | take 10", {"epochs": 1, "epochs_certain": True}),
    (f"{SHUFFLED} | take 10", {"role": "validation"}),
    (f"{SHUFFLED} | take 100", {}),
    (f"{SHUFFLED} | skip 10", {}),  # a resumed run
    (f"{SHUFFLED} | repeat | take 10", {}),
    (f"{SHUFFLED} | batch 5 | take 10", {}),  # a preview of some batches
    ("range | shuffle 50 | take 10", {}),  # possibly all elements
    (f"{SHUFFLED} reshuffle_each_iteration=False | take 10", {}),
    ("range elements=100 | take 10 | shuffle 10", {}),
    (f"{SHUFFLED} | take 10 | cache | shuffle 10", {}),
]


@pytest.mark.parametrize(("text", "how", "expected", "words"), rows(FIRES, SILENT))
def test_findings(text: str, how: dict[str, Any], expected: list[str], words: str) -> None:
    check(text, expected, words, **how)


def test_validation_data_of_fit_is_checked():
    validation = use(f"{ROWS} | batch 10", role="validation", steps=11)
    assert codes(f"{ROWS} | batch 10", validation) == ["runs-out-of-data n1"]


@pytest.mark.parametrize(
    ("training", "other", "role", "shared", "expected"),
    [
        (f"{SHUFFLED} | skip 20", f"{SHUFFLED} | take 20", "validation", 2, [LEAK]),
        (f"{SHUFFLED} | skip 20 | batch 4", f"{SHUFFLED} | take 20 | batch 4", "evaluation", 2, [LEAK]),
        (f"{SHUFFLED} | take 80 | cache", f"{SHUFFLED} | skip 80", "prediction", 2, ["frozen-order n3", LEAK]),
        (f"{SHUFFLED} | shuffle 9 | skip 20", f"{SHUFFLED} | shuffle 9 | take 20", "validation", 3,
         ["validation-leak n2"]),
        (f"{SHUFFLED} | skip 20", f"{SHUFFLED} | take 20", "preview", 2, []),  # unless it is known to be the rest
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


@pytest.mark.parametrize(("method", "hint"), [
    ("shuffle", "Split before the shuffle, or shuffle with reshuffle_each_iteration=False."),
    ("make_csv_dataset", "Split before the shuffle: turn off the one of make_csv_dataset, and shuffle behind it."),
])  # fmt: skip
def test_hint_for_a_call_that_shuffles_what_it_reads(method, hint):
    read = use(f"{SHUFFLED} | skip 20", complemented_nodes=frozenset({"n2"}))
    place = SourceLocation("train.py", 3, 0, 3, 9, method)
    nodes = tuple(replace(node, location=place) if node.op == "shuffle" else node for node in read.pipeline)
    (found,) = find_mistakes(replace(read, pipeline=replace(read.pipeline, nodes=nodes)))
    assert found.hint == hint


def test_leak_is_found_before_other_part_is_read():
    assert codes(f"{SHUFFLED} | skip 20", complemented_nodes=frozenset({"n2"})) == [LEAK]
    cached = codes(f"{SHUFFLED} | cache | take 80", complemented_nodes=frozenset({"n3"}))
    assert cached == ["frozen-order n2", "partial-cache n2"]
