"""Data that runs out, epochs that are mixed, examples that are counted twice."""

from __future__ import annotations

import pytest

from tests.lint.uses import codes, found, use

ROWS = "range elements=100"
DRAWS = "map calls=StatelessRandomUniformV2"
COUNTER = "b = from_tensors elements=1 | repeat | scan"
KERAS_3 = {"restarts_data": True}

FIRES = [
    (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10", {"steps": 5, "epochs": 3}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10", {"steps": 11}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10 | repeat 2", {"steps": 7, "epochs": 3}, ["runs-out-of-data n2"]),
    (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3, **KERAS_3}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10", {"steps": 11, "epochs": 1, **KERAS_3}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10", {"steps": 20, "role": "validation"}, ["runs-out-of-data n1"]),
    (f"{ROWS} | batch 10 | repeat", {"role": "validation"}, ["endless-validation n2"]),
    (f"{ROWS} | repeat | shuffle 50", {}, ["epochs-blend n2"]),
    (f"{ROWS} | map | repeat 3 | map | shuffle 2 | batch 10", {}, ["epochs-blend n4"]),
    ("list_files | repeat | interleave | shuffle 50", {}, ["epochs-blend n4"]),
    (f"a = {ROWS}; b = {ROWS}; zip a b elements=100 | repeat | shuffle 50", {}, ["epochs-blend n4"]),
    (f"{ROWS} | repeat | batch 32", {"steps": 3, "epochs": 9}, ["repeat-before-batch n1"]),
    (f"{ROWS} | repeat | map | batch 32 | prefetch 2", {"steps": 4, "epochs": 9}, ["repeat-before-batch n1"]),
    (f"{ROWS} | repeat | batch 32", {"steps": 4, "role": "validation"}, ["uneven-evaluation n1"]),
    (f"{ROWS} | batch 10 | repeat", {"steps": 11, "role": "evaluation"}, ["uneven-evaluation n2"]),
    (f"{ROWS} | repeat 2 | batch 10", {"steps": 15, "role": "evaluation"}, ["uneven-evaluation n1"]),
    (f"a = {ROWS}; b = {ROWS}; zip a b | shuffle 50 | {DRAWS} | batch 10", {}, ["augmentation-repeats n4"]),
    (f"a = {ROWS}; {COUNTER}; zip a b | {DRAWS} | repeat", {"epochs": 9}, ["augmentation-repeats n5"]),
    (f"{ROWS} | shuffle 50 | {DRAWS}", {}, ["augmentation-repeats n2"]),
]

SILENT = [
    (f"{ROWS} | batch 10", {"steps": 5, "epochs": 2}),
    (f"{ROWS} | batch 10", {"steps": 10, "epochs": 3}),  # Keras restarts the data if the numbers are equal
    (f"{ROWS} | batch 10", {"steps": 5, "epochs": 3, **KERAS_3}),  # Keras 3 also if they are multiples
    (f"{ROWS} | batch 10", {"epochs": 5}),
    (f"{ROWS} | batch 10 | repeat", {"steps": 4, "epochs": 30}),
    (f"{ROWS} | batch 10 | repeat 3", {"steps": 10, "epochs": 3}),
    (f"{ROWS} | filter | batch 10", {"steps": 1000, "epochs": 3}),  # unknown cardinality
    (f"{ROWS} | batch 10", {"steps": 10, "role": "validation"}),
    (f"{ROWS} | batch 10 | repeat", {"role": "training"}),
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
    (f"{ROWS} | repeat | batch 20", {"steps": 5, "role": "validation"}),
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
]


@pytest.mark.parametrize(("text", "how", "expected"), [*FIRES, *((*row, []) for row in SILENT)])
def test_findings(text, how, expected):
    assert codes(text, **how) == expected


@pytest.mark.parametrize(
    ("text", "how", "words"),
    [
        (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3}, "4 steps x 3 epochs = 12 batches; the dataset has 10"),
        (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3}, "training stops there"),
        (f"{ROWS} | batch 10", {"steps": 4, "epochs": 3, **KERAS_3}, "epoch 3 ends after 2 steps"),
        (f"{ROWS} | batch 10", {"steps": 40, "epochs": 3, **KERAS_3}, "every epoch ends after 10 steps"),
        (f"{ROWS} | repeat | shuffle 30", {}, "Up to 30 of 100 elements"),
        (f"{ROWS} | repeat | batch 32", {"steps": 4, "role": "validation"}, "128 examples of data that has 100: 28 of"),
        (f"{ROWS} | batch 10 | repeat", {"steps": 12, "role": "evaluation"}, "12 batches of data that has 10: 2 of"),
        (f"{ROWS} | repeat 2 | batch 10", {"steps": 90, "role": "evaluation"}, "200 examples of data that has 100"),
    ],
)
def test_message_has_the_numbers(text, how, words):
    message = " ".join(finding.message for finding in found(text, **how))
    assert words in message


def test_validation_data_of_fit_is_checked():
    validation = use(f"{ROWS} | batch 10", role="validation", steps=11)
    (finding,) = found(f"{ROWS} | batch 10", validation)
    assert finding.message == "The validation requests 11 batches; the dataset has 10."
