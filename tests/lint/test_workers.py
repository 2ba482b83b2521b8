"""How data and state are divided among the workers of a job; the larger part of each table has no finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity, OriginalSharding
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


@pytest.mark.parametrize(
    ("text", "workers", "worker_coverage", "expected"),
    [
        ("range | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        ("range | batch 4", STRATEGY, OriginalSharding(2, why="There is too much data to count its elements."), []),
        ("range | batch 4", STRATEGY, None, []),
        ("range | batch 4", None, OriginalSharding(2, HALF), []),
        ("range | batch 4", replace(STRATEGY, count=1), OriginalSharding(1, HALF), []),
        ("range | shard 2 | batch 4", ASKED, OriginalSharding(2, FAIR), []),
        ("range | shuffle 9 | batch 4", ALONE, OriginalSharding(2, BOTH), []),  # each worker draws its own order
        ("range | batch 4", STRATEGY, OriginalSharding(2, ONE_LESS, "DATA"), []),
        ("range | batch 4", STRATEGY, OriginalSharding(2, LITTLE_LESS, "FILE"), []),
        # with four replicas, six batches are two steps and two batches one
        ("range | batch 4", STRATEGY, OriginalSharding(2, replace(UNEVEN, replicas_per_worker=4), "FILE"), []),
        # in memory, or with fewer files than workers, all workers have to read everything
        ("range | batch 4", STRATEGY, OriginalSharding(2, replace(READS_ALL, files=1), "DATA"), []),
        (LINES, STRATEGY, OriginalSharding(2, replace(READS_ALL, files=1), "DATA"), []),
        (LINES, STRATEGY, OriginalSharding(2, counted(ALL, [], read=(8, 8), batches=(1, 0), files=(4, 4)), "OFF"), []),
        ("range | batch 4", ALONE, OriginalSharding(2, BOTH), ["unsharded-workers n1"]),
        ("range | shard 4 | batch 4", ASKED, OriginalSharding(2, HALF), ["data-left-out n1"]),
        ("range | shard 2 | batch 4", STRATEGY, OriginalSharding(2, HALF, "DATA"), ["data-left-out n1"]),
        ("range | shard 2 | batch 4", ALONE, OriginalSharding(2, SAME), ["data-left-out n1"]),
        # a seed would not help
        ("range | shard 2 | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, HALF, "DATA"), ["data-left-out n1"]),
        ("range | shard 2 | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, None, "DATA", "too long"), []),
        (f"range | shard 2 | {LOOSE[8:]}", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        ("range | shard 1 | batch 4", ALONE, OriginalSharding(2, BOTH), ["data-repeated n1"]),
        ("range | batch 4", STRATEGY, OriginalSharding(2, ONE_IDLE, "FILE"), ["idle-workers n1"]),
        ("range | batch 4", STRATEGY, OriginalSharding(2, UNEVEN, "FILE"), ["uneven-workers n1"]),
        (LINES, STRATEGY, OriginalSharding(2, READS_ALL, "DATA"), ["read-by-all-workers n3"]),
        (LINES, STRATEGY, OriginalSharding(2, None, "FILE", "one file only", refused=True), ["too-few-files n3"]),
        # too long to be counted
        (LINES, STRATEGY, OriginalSharding(2, None, "FILE", "too long", files=9, file_bytes=90), []),
        (IN_ORDER, STRATEGY, OriginalSharding(2, None, "DATA", "too long", files=1, file_bytes=90), []),
        (IN_ORDER, STRATEGY, OriginalSharding(2, None, "DATA", "too long"), []),
        (IN_ORDER, STRATEGY, OriginalSharding(2, None, "DATA", files=9, file_bytes=90), ["read-by-all-workers n2"]),
        # the counted coverage is correct
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        ("range | shuffle 9 seed=1 | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        ("range | shuffle 9 | batch 4", STRATEGY, None, []),
        ("range | shuffle 9 | batch 4", None, OriginalSharding(2, APART, "DATA"), []),
        ("range | shuffle 9 | batch 4", ALONE, OriginalSharding(2, FAIR), []),
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, APART, "DATA"), ["shuffled-apart n1"]),
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, None, "DATA", "too long"), ["shuffled-apart n1"]),
        (LOOSE, STRATEGY, OriginalSharding(2, FAIR, "FILE"), []),
        (LOOSE.replace("False", "True"), STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        (LOOSE, STRATEGY, OriginalSharding(2, FAIR, "DATA"), ["shuffled-apart n1"]),  # a count cannot detect it
    ],
)
@pytest.mark.mission("B3.wrong", "B3.idle", "B8.stateful")
def test_findings_about_division_of_data(
    text: str, workers: JobWorkers | None, worker_coverage: OriginalSharding | None, expected: list[str]
) -> None:
    assert codes(text, workers=workers, worker_coverage=worker_coverage) == expected


SIZED = replace(READS_ALL, workers=tuple(replace(one, read_bytes=50, used_bytes=10) for one in READS_ALL.workers))
LONG = OriginalSharding(2, None, "DATA", "too long", files=9, file_bytes=90_000)
HIDDEN = "list_files | interleave inner=TextLineDataset | scan | batch 4"


@pytest.mark.parametrize(
    ("text", "workers", "coverage", "words"),
    [
        ("range | batch 4", ALONE, OriginalSharding(2, BOTH),
         ["every epoch trains 2 times on each of its 8 examples, in 4 steps.|"]),
        ("range | shard 2 | batch 4", STRATEGY, OriginalSharding(2, HALF, "DATA"),
         ["divides each part again, with the policy DATA: 4 of 8 elements reach none of 2 workers", "OFF"]),
        ("range | batch 4", STRATEGY, OriginalSharding(2, UNEVEN, "FILE"),
         ["The workers receive 6, 2 batches per epoch: after 2 of 6 steps"]),
        ("range | batch 4", STRATEGY, OriginalSharding(2, ONE_IDLE, "FILE"),
         ["|Of 2 workers, worker 1 gets no data at all.|"]),
        (LINES, STRATEGY, OriginalSharding(2, READS_ALL, "DATA"),
         ["reads all of 2 files, 2.0 elements for each one it uses: its auto_shard_policy is DATA."]),
        (LINES, STRATEGY, OriginalSharding(2, SIZED, "DATA"), ["2.0 elements and 5.0 bytes for each one it uses"]),
        (IN_ORDER, STRATEGY, LONG, ["reads all of 9 files, in total 180,000 bytes where 90,000 are used: its auto"]),
        (HIDDEN, STRATEGY, OriginalSharding(2, READS_ALL, "DATA", stopped_at="n3"), ["gives up at scan", "OFF"]),
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, APART, "DATA"),
         ["2 of 8 elements reach no worker, and 2 reach several", "seed"]),
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, None, "DATA", "too long"),
         ["some elements reach several"]),
        ("range | batch 8", ALONE, None, ["HOROVOD_SIZE defines 2 workers", "shard"]),
    ],
)  # fmt: skip
@pytest.mark.mission("B3.wrong", "B3.waste", "B8.stateful")
def test_messages_have_the_numbers(
    text: str, workers: JobWorkers, coverage: OriginalSharding | None, words: list[str]
) -> None:
    (one,) = found(text, workers=workers, worker_coverage=coverage)
    message, *hints = words
    assert message in f"|{one.message}|" and all(hint in one.hint for hint in hints), one


@pytest.mark.parametrize(
    ("text", "workers", "expected"),
    [
        ("range | map | batch 4", STRATEGY, []),
        ("range | map random | batch 4", STRATEGY, []),  # each worker has its own draws
        ("range | map seeded | batch 4", ALONE, []),
        ("range | map seeded | batch 4", None, []),
        ("range | map seeded | batch 4", replace(STRATEGY, count=1), []),
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
        ("range | batch 8", ALONE, {}, ["unsharded-workers n1"]),
        ("range | shuffle 9 seed=1 | batch 8", ALONE, {}, ["unsharded-workers n2"]),
        ("range | shuffle 9 reshuffle_each_iteration=False", ALONE, {}, ["unsharded-workers n1"]),
        ("range | shuffle 9 | batch 8", STRATEGY, OFF, ["unsharded-workers n2"]),
        ("range | batch 8", None, {}, []),
        ("range | batch 8", None, OFF, []),
        ("range | batch 8", JobWorkers(1, "TF_CONFIG"), {}, []),
        ("range | batch 8", STRATEGY, {}, []),  # the strategy shards
        ("range | batch 8", STRATEGY, DATA, []),
        ("range | shard 4 | batch 8", STRATEGY, OFF, []),
        ("range | shard 4 | batch 8", ALONE, {}, []),
        ("list_files shuffle=False | interleave inner=ShardDataset+MapDataset | batch 8", ALONE, {}, []),
        ("range | shuffle 9 | batch 8", ALONE, {}, []),  # each worker draws its own order
        ("range | batch 8", ASKED, {}, []),
        ("range | batch 8", JobWorkers(4, "TF_CONFIG", distributed=True, reads_worker_index=True), OFF, []),
    ],
)
def test_unsharded_workers_are_reported(text, workers, how, expected):
    assert codes(text, workers=workers, **how) == expected
