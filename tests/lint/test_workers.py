"""How data and state are divided among workers and replicas, and what these cannot run; most rows have no finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipetune.core.distribution import (
    COORDINATOR,
    DATASET,
    FIT,
    FUNCTION,
    CapturedKind,
    CapturedObject,
    Coverage,
    ElementIdentity,
    InputDistribution,
    OriginalSharding,
)
from pipetune.lint.dataset_use import JobWorkers
from pipetune.model.coverage import worst_coverage
from tests.lint.uses import codes, found

STRATEGY = JobWorkers(2, "TF_CONFIG", distributed=True)
ALONE = JobWorkers(2, "HOROVOD_SIZE")
ASKED = JobWorkers(2, "HOROVOD_SIZE", reads_worker_index=True)
OFF = {"options": {"experimental_distribute.auto_shard_policy": "OFF"}}
DATA = {"options": {"experimental_distribute.auto_shard_policy": "DATA"}}
ALL = range(8)


def counted(
    *workers: Sequence[int], batches: Sequence[int] = (2, 2), read: Sequence[int] = (4, 4), files: Sequence[int] = ()
) -> Coverage:
    made = worst_coverage(
        [Counter(ALL)], [[Counter(mine)] for mine in workers], told_by=ElementIdentity.INDEX, files=files
    )
    shares = zip(made.workers, batches, read, strict=True)
    return replace(made, workers=tuple(replace(one, batches=count, read=times) for one, count, times in shares))


FAIR = counted([0, 2, 4, 6], [1, 3, 5, 7])
BOTH = counted(ALL, ALL, batches=(4, 4), read=(8, 8))
HALF = counted([0, 4], [1, 5], batches=(1, 1))
SAME = counted([0, 2, 4, 6], [0, 2, 4, 6])
ONE_IDLE = counted(ALL, [], batches=(4, 0), read=(8, 0))
UNEVEN = counted([0, 1, 2, 3, 4, 5], [6, 7], batches=(6, 2), read=(6, 2))
READS_ALL = counted([0, 2, 4, 6], [1, 3, 5, 7], read=(8, 8), files=(4, 4))
ONE_LESS = counted([0, 2, 4, 6], [1, 3, 5, 7], batches=(3, 2))
LITTLE_LESS = counted([0, 2], [1, 3, 4, 5, 6, 7], batches=(10, 11))
APART = counted([0, 2, 4, 6], [0, 1, 2, 3])
LOOSE = "range | map 2 deterministic=False | batch 4"
LINES = "list_files | interleave inner=TextLineDataset | batch 4"
IN_ORDER = "list_files shuffle=False | interleave inner=TextLineDataset | batch 4"


SIZED = replace(READS_ALL, workers=tuple(replace(one, read_bytes=50, used_bytes=10) for one in READS_ALL.workers))
LONG = OriginalSharding(2, None, "DATA", "too long", files=9, file_bytes=90_000)
HIDDEN = "list_files | interleave inner=TextLineDataset | scan | batch 4"

DIVIDED_WRONGLY = [
    ("range | batch 4", ALONE, OriginalSharding(2, BOTH), ["unsharded-workers n1"],
     "every epoch trains 2 times on each of its 8 examples, in 4 steps.|", ""),
    ("range | batch 4", ALONE, None, ["unsharded-workers n1"], "HOROVOD_SIZE defines 2 workers", "shard"),
    ("range | shard 4 | batch 4", ASKED, OriginalSharding(2, HALF), ["data-left-out n1"], "", ""),
    ("range | shard 2 | batch 4", STRATEGY, OriginalSharding(2, HALF, "DATA"), ["data-left-out n1"],
     "divides each part again, with the policy DATA: 4 of 8 elements reach none of 2 workers", "OFF"),
    ("range | shard 2 | batch 4", ALONE, OriginalSharding(2, SAME), ["data-left-out n1"], "", ""),
    # a seed would not help
    ("range | shard 2 | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, HALF, "DATA"),
     ["data-left-out n1"], "", ""),
    ("range | shard 1 | batch 4", ALONE, OriginalSharding(2, BOTH), ["data-repeated n1"], "", ""),
    ("range | batch 4", STRATEGY, OriginalSharding(2, ONE_IDLE, "FILE"), ["idle-workers n1"],
     "|Of 2 workers, worker 1 gets no data at all.|", ""),
    ("range | batch 4", STRATEGY, OriginalSharding(2, UNEVEN, "FILE"), ["uneven-workers n1"],
     "The workers receive 6, 2 batches per epoch: after 2 of 6 steps", ""),
    (LINES, STRATEGY, OriginalSharding(2, READS_ALL, "DATA"), ["read-by-all-workers n3"],
     "reads all of 2 files, 2.0 elements for each one it uses: its auto_shard_policy is DATA.", ""),
    (LINES, STRATEGY, OriginalSharding(2, SIZED, "DATA"), ["read-by-all-workers n3"],
     "2.0 elements and 5.0 bytes for each one it uses", ""),
    (HIDDEN, STRATEGY, OriginalSharding(2, READS_ALL, "DATA", stopped_at="n3"), ["read-by-all-workers n4"],
     "gives up at scan", "OFF"),
    (IN_ORDER, STRATEGY, LONG, ["read-by-all-workers n2"],
     "reads all of 9 files, in total 180,000 bytes where 90,000 are used: its auto", ""),
    (LINES, STRATEGY, OriginalSharding(2, None, "FILE", "one file only", refused=True), ["too-few-files n3"], "", ""),
    ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, APART, "DATA"), ["shuffled-apart n1"],
     "2 of 8 elements reach no worker, and 2 reach several", "seed"),
    ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, None, "DATA", "too long"), ["shuffled-apart n1"],
     "some elements reach several", ""),
    (LOOSE, STRATEGY, OriginalSharding(2, FAIR, "DATA"), ["shuffled-apart n1"], "", ""),  # a count cannot detect it
]  # fmt: skip

DIVIDED = [
    ("range | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA")),
    ("range | batch 4", STRATEGY, OriginalSharding(2, why="There is too much data to count its elements.")),
    ("range | batch 4", None, OriginalSharding(2, HALF)),
    ("range | batch 4", replace(STRATEGY, count=1), OriginalSharding(1, HALF)),
    ("range | shard 2 | batch 4", ASKED, OriginalSharding(2, FAIR)),
    ("range | shuffle 9 | batch 4", ALONE, OriginalSharding(2, BOTH)),  # each worker draws its own order
    ("range | batch 4", STRATEGY, OriginalSharding(2, ONE_LESS, "DATA")),
    ("range | batch 4", STRATEGY, OriginalSharding(2, LITTLE_LESS, "FILE")),
    # with four replicas, six batches are two steps and two batches one
    ("range | batch 4", STRATEGY, OriginalSharding(2, replace(UNEVEN, replicas_per_worker=4), "FILE")),
    # with fewer files than workers, all workers have to read everything
    (LINES, STRATEGY, OriginalSharding(2, replace(READS_ALL, files=1), "DATA")),
    (LINES, STRATEGY, OriginalSharding(2, counted(ALL, [], read=(8, 8), batches=(1, 0), files=(4, 4)), "OFF")),
    ("range | shard 2 | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, None, "DATA", "too long")),
    (f"range | shard 2 | {LOOSE[8:]}", STRATEGY, OriginalSharding(2, FAIR, "DATA")),
    # too long to be counted
    (LINES, STRATEGY, replace(LONG, policy="FILE")),
    (IN_ORDER, STRATEGY, replace(LONG, files=1)),
    (IN_ORDER, STRATEGY, replace(LONG, files=0, file_bytes=None)),
    # the counted coverage is correct
    ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA")),
    ("range | shuffle 9 seed=1 | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA")),
    ("range | shuffle 9 | batch 4", STRATEGY, None),
    ("range | shuffle 9 | batch 4", ALONE, OriginalSharding(2, FAIR)),
    (LOOSE, STRATEGY, OriginalSharding(2, FAIR, "FILE")),
    (LOOSE.replace("False", "True"), STRATEGY, OriginalSharding(2, FAIR, "DATA")),
]


@pytest.mark.parametrize(
    ("text", "workers", "coverage", "expected", "words", "hint"),
    [*DIVIDED_WRONGLY, *((*row, [], "", "") for row in DIVIDED)],
)
@pytest.mark.mission("B3.wrong", "B3.idle", "B3.waste", "B8.stateful")
def test_findings_about_division_of_data(
    text: str,
    workers: JobWorkers | None,
    coverage: OriginalSharding | None,
    expected: list[str],
    words: str,
    hint: str,
) -> None:
    assert codes(text, workers=workers, worker_coverage=coverage) == expected
    told = found(text, workers=workers, worker_coverage=coverage)
    assert words in "".join(f"|{one.message}|" for one in told) and hint in "".join(one.hint for one in told), told


@pytest.mark.parametrize(
    ("text", "workers", "expected"),
    [
        ("range | map | batch 4", STRATEGY, []),
        ("range | map random | batch 4", STRATEGY, []),  # each worker has its own draws
        ("range | map seeded | batch 4", ALONE, []),
        ("range | map seeded | batch 4", None, []),
        ("range | map variable | batch 4", STRATEGY, []),  # only read
        ("range | map seeded | batch 4", STRATEGY, ["same-draws n1"]),
        ("range | map writes | batch 4", STRATEGY, ["state-of-each-worker n1"]),
    ],
)
@pytest.mark.mission("B8.stateful")
def test_equal_draws_and_state_per_worker(text: str, workers: JobWorkers | None, expected: list[str]) -> None:
    told = [code for code in codes(text, workers=workers) if not code.startswith("unsharded")]
    assert told == expected
    if workers is STRATEGY:
        assert codes(text, workers=workers, role="validation") == []


@pytest.mark.parametrize(
    ("text", "workers", "how", "expected"),
    [
        ("range | shuffle 9 seed=1 | batch 8", ALONE, {}, ["unsharded-workers n2"]),
        ("range | shuffle 9 reshuffle_each_iteration=False", ALONE, {}, ["unsharded-workers n1"]),
        ("range | shuffle 9 | batch 8", STRATEGY, OFF, ["unsharded-workers n2"]),
        ("range | batch 8", None, OFF, []),
        ("range | batch 8", STRATEGY, {}, []),  # the strategy shards
        ("range | batch 8", STRATEGY, DATA, []),
        ("range | shard 4 | batch 8", STRATEGY, OFF, []),
        ("range | shard 4 | batch 8", ALONE, {}, []),
        ("list_files shuffle=False | interleave inner=ShardDataset+MapDataset | batch 8", ALONE, {}, []),
        ("range | batch 8", ASKED, {}, []),
        ("range | batch 8", JobWorkers(4, "TF_CONFIG", distributed=True, reads_worker_index=True), OFF, []),
    ],
)
def test_unsharded_workers_are_reported(text, workers, how, expected):
    assert codes(text, workers=workers, **how) == expected


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
    function = mirrored(how=FUNCTION, batch=2, replicas=2)
    for text, handover, expected in (
        ("range elements=12 | batch 8", mirrored(4, 4, how=FIT), []),
        ("range elements=5 | batch 2 spec=TensorSpec(shape=(None,))", function, []),
        ("range elements=6 | batch 2 spec=TensorSpec(shape=(2,)) elements=3", function, ["replicas-run-out n1"]),
    ):
        assert codes(text, handover=handover, tolerates_empty_batches=True) == expected


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


HANDOVER = InputDistribution("ParameterServerStrategy", 2, COORDINATOR, 2)
TPU = InputDistribution("TPUStrategyV2", 8, DATASET)


@pytest.mark.parametrize(
    ("text", "handover", "expected"),
    [
        ("range | map | batch 4", HANDOVER, []),
        ("range | map random | batch 4", HANDOVER, []),
        ("list_files | interleave inner=TextLineDataset | batch 4", HANDOVER, []),
        ("from_generator | batch 4", None, []),
        ("range | map python | batch 4", None, []),
        ("from_generator | batch 4", replace(HANDOVER, strategy="MirroredStrategy", how=DATASET), []),
        ("from_generator | batch 4", HANDOVER, ["python-on-the-chief n0"]),
        ("range | map python | batch 4", HANDOVER, ["python-on-the-chief n1"]),
        ("range | map | batch 4", TPU, []),
        ("from_generator | batch 4", TPU, ["python-for-a-tpu n0"]),
        ("range | map python | batch 4", TPU, ["python-for-a-tpu n1"]),
    ],
)
@pytest.mark.mission("C3.own", "B10.generator")
def test_python_on_the_chief_or_for_a_tpu(text: str, handover: InputDistribution | None, expected: list[str]) -> None:
    assert codes(text, handover=handover) == expected


def test_message_for_one_and_for_several_workers() -> None:
    (one,) = found("from_generator | batch 4", handover=replace(HANDOVER, workers=1))
    assert "the worker waits for it, for every element" in one.message
    (one,) = found("from_generator | batch 4", handover=HANDOVER)
    assert "2 workers wait for it, for every element" in one.message


@pytest.mark.parametrize(
    ("kind", "named", "unnamed"),
    [
        (CapturedKind.DATASET, "uses train, a dataset built outside", "uses a dataset built outside"),
        (CapturedKind.ITERATOR, "uses train, an iterator created outside", "uses an iterator created outside"),
        (CapturedKind.STATE, "uses train, created outside", "uses a variable, a table or an iterator, created outside"),
    ],
)
@pytest.mark.mission("C3.own")
def test_captured_object_is_named_with_its_line(kind: CapturedKind, named: str, unnamed: str) -> None:
    captured = CapturedObject(kind, "train", "train.py", 7)
    (one,) = found("range | batch 4", handover=HANDOVER, captured=(captured,))
    assert (one.code, one.file, one.line) == (f"captured-{kind.value}", "train.py", 7)
    assert named in one.message and one.hint
    (one,) = found("range | batch 4", handover=HANDOVER, captured=(replace(captured, name=""),))
    assert unnamed in one.message
