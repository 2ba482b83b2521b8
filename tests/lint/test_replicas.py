"""Replicas that get fewer rows than others or none, and rows that reach no replica."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.distribution import DATASET, FIT, FUNCTION, InputDistribution
from tests.lint.uses import codes, found


def mirrored(
    *shares: int, how: str = DATASET, batch: int = 0, replicas: int = 0, workers: int = 1
) -> InputDistribution:
    count = replicas or len(shares)
    return InputDistribution("MirroredStrategy", count, how, workers, batch or sum(shares), shares)


@pytest.mark.parametrize(
    ("text", "handover"),
    [
        ("range elements=9 | batch 8", None),  # no strategy
        ("range elements=16 | batch 8", mirrored(4, 4)),
        ("range elements=13 | batch 8", mirrored(4, 4)),  # 5 rows: 4 and 1
        ("range elements=12 | batch 8 drop_remainder=True", mirrored(4, 4)),
        ("range elements=12 | batch 8 | repeat", mirrored(4, 4)),  # filled up by the next epoch
        ("range elements=12 | repeat | batch 8", mirrored(4, 4)),
        ("range elements=12 | batch 8", mirrored(4, 4, replicas=4, workers=2)),  # other workers have rows too
        ("range elements=12 | batch 8", InputDistribution("OneDeviceStrategy", 1, DATASET, batch=8)),
        ("range elements=12 | filter | batch 8", mirrored(4, 4)),  # unknown cardinality
        ("range elements=12 | batch 8 | take 1", mirrored(4, 4)),  # full batches alone
        ("range elements=12 | batch 8 | filter", mirrored(4, 4)),
        ("range elements=8 | batch 2", mirrored(how=FUNCTION, batch=2, replicas=2)),
        ("range elements=7 | batch 2 | repeat", mirrored(how=FUNCTION, batch=2, replicas=3)),
    ],
)
def test_no_finding_if_all_replicas_have_rows(text: str, handover: InputDistribution | None) -> None:
    assert codes(text, handover=handover) == []


@pytest.mark.parametrize(
    ("text", "handover", "code", "words"),
    [
        ("range elements=80 | batch 8", mirrored(3, 3, 2), "uneven-replicas n1",
         ["8 is divided into 3, 3 and 2", "a multiple of 3", "6 or 9"]),
        ("range elements=80 | batch 4", mirrored(1, 1, 1, 1, 0), "idle-replicas n1",
         ["1 of 5 replicas gets nothing", ": 5."]),
        ("range elements=12 | batch 8 | prefetch 1", mirrored(4, 4), "empty-replica-batch n1",
         ["has 4 of 8 rows", "1 of 2 replicas gets an empty batch", "NaN", "4 of 12 rows"]),
        ("range elements=9 | batch 8", mirrored(2, 2, 2, 2), "empty-replica-batch n1",
         ["3 of 4 replicas get an empty batch"]),
        ("range elements=7 | batch 2 drop_remainder=True spec=TensorSpec(shape=(2,)) elements=3",
         mirrored(how=FUNCTION, batch=2, replicas=2), "replicas-run-out n1",
         ["has 3 elements for 2 replicas", "the last 1 (2 rows) reach no replica"]),
        ("range elements=5 | batch 2 spec=TensorSpec(shape=(None,))", mirrored(how=FUNCTION, batch=2, replicas=2),
         "empty-replica-batch n1", ["1 of 2 replicas gets an empty batch"]),
    ],
)  # fmt: skip
@pytest.mark.mission("B2.said", "B7.empty", "B7.offer")
def test_replicas_without_rows(text: str, handover: InputDistribution, code: str, words: list[str]) -> None:
    assert codes(text, handover=handover) == [code]
    (one,) = found(text, handover=handover)
    assert all(word in f"{one.message} {one.hint}" for word in words), (one.message, one.hint)


def test_keras_tolerates_empty_but_not_missing_batches() -> None:
    assert codes("range elements=12 | batch 8", handover=mirrored(4, 4, how=FIT), tolerates_empty_batches=True) == []
    function = mirrored(how=FUNCTION, batch=2, replicas=2)
    assert (
        codes(
            "range elements=5 | batch 2 spec=TensorSpec(shape=(None,))", handover=function, tolerates_empty_batches=True
        )
        == []
    )
    fixed = "range elements=7 | batch 2 drop_remainder=True spec=TensorSpec(shape=(2,)) elements=3"
    assert codes(fixed, handover=function, tolerates_empty_batches=True) == ["replicas-run-out n1"]


def test_batches_divided_by_their_own_size_leave_few_replicas_empty() -> None:
    own = replace(mirrored(4, 4), by_own_size=True)
    assert codes("range elements=12 | batch 8", handover=own) == []
    assert codes("range elements=9 | batch 8", handover=own) == ["empty-replica-batch n1"]
    unknown = replace(own, batch=None, shares=(0, 0))
    assert codes("range elements=12 | batch 8 | map", handover=unknown) == []
    (one,) = found("range elements=9 | batch 8 | map", handover=unknown)
    assert "has 1 of 8 rows: then 1 of 2 replicas gets an empty batch" in one.message
    # Six rows for four replicas: 2, 2, 2 and 0.
    (one,) = found("range elements=14 | batch 8", handover=replace(mirrored(2, 2, 2, 2), by_own_size=True))
    assert "has 6 of 8 rows: then 1 of 4 replicas gets an empty batch" in one.message
