"""State that a strategy does not divide among its workers; most rows of the tables have no finding."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pipetune.core.distribution import DATASET, Coverage, ElementIdentity, InputDistribution, OriginalSharding
from pipetune.lint.dataset_use import JobWorkers
from pipetune.model.coverage import worst_coverage
from tests.lint.uses import codes, found

STRATEGY = JobWorkers(2, "TF_CONFIG", distributed=True)
HOROVOD = JobWorkers(2, "HOROVOD_SIZE")
TPU = InputDistribution("TPUStrategyV2", 8, DATASET)


def counted(*workers: list[int]) -> Coverage:
    return worst_coverage([Counter(range(8))], [[Counter(mine)] for mine in workers], told_by=ElementIdentity.INDEX)


FAIR = counted([0, 2, 4, 6], [1, 3, 5, 7])
APART = counted([0, 2, 4, 6], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("text", "workers", "worker_coverage", "expected"),
    [
        ("range | shuffle 9 seed=1 | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        ("range | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        (
            "range | shuffle 9 | batch 4",
            STRATEGY,
            OriginalSharding(2, FAIR, "DATA"),
            [],
        ),  # the counted coverage is correct
        ("list_files | interleave inner=TextLineDataset | batch 4", STRATEGY, OriginalSharding(2, FAIR, "FILE"), []),
        ("range | shuffle 9 | batch 4", STRATEGY, None, []),
        ("range | shuffle 9 | batch 4", None, OriginalSharding(2, APART, "DATA"), []),
        ("range | shuffle 9 | batch 4", HOROVOD, OriginalSharding(2, FAIR), []),
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, APART, "DATA"), ["shuffled-apart n1"]),
        ("range | shuffle 9 | batch 4", STRATEGY, OriginalSharding(2, None, "DATA", "too long"), ["shuffled-apart n1"]),
        ("range | map 2 deterministic=False | batch 4", STRATEGY, OriginalSharding(2, FAIR, "FILE"), []),
        ("range | map 2 deterministic=True | batch 4", STRATEGY, OriginalSharding(2, FAIR, "DATA"), []),
        # a count in one process cannot detect it
        (
            "range | map 2 deterministic=False | batch 4",
            STRATEGY,
            OriginalSharding(2, FAIR, "DATA"),
            ["shuffled-apart n1"],
        ),
    ],
)
@pytest.mark.mission("B8.stateful")
def test_workers_with_different_shuffles_are_reported(
    text: str, workers: JobWorkers | None, worker_coverage: OriginalSharding | None, expected: list[str]
) -> None:
    assert codes(text, workers=workers, worker_coverage=worker_coverage) == expected


@pytest.mark.mission("B8.stateful")
def test_message_has_numbers_of_lost_and_repeated_elements() -> None:
    (one,) = found("range | shuffle 9 | batch 4", workers=STRATEGY, worker_coverage=OriginalSharding(2, APART, "DATA"))
    assert "2 of 8 elements reach no worker, and 2 reach several" in one.message and "seed" in one.hint
    (one,) = found(
        "range | shuffle 9 | batch 4", workers=STRATEGY, worker_coverage=OriginalSharding(2, None, "DATA", "too long")
    )
    assert "some elements reach several" in one.message


@pytest.mark.parametrize(
    ("text", "workers", "expected"),
    [
        ("range | map | batch 4", STRATEGY, []),
        ("range | map random | batch 4", STRATEGY, []),  # each worker has its own draws
        ("range | map seeded | batch 4", HOROVOD, []),
        ("range | map seeded | batch 4", None, []),
        ("range | map seeded | batch 4", replace(STRATEGY, count=1), []),
        ("range | map variable | batch 4", STRATEGY, []),  # only read
        ("range | map seeded | batch 4", STRATEGY, ["same-draws n1"]),
        ("range | map writes | batch 4", STRATEGY, ["state-of-each-worker n1"]),
    ],
)
@pytest.mark.mission("B8.stateful")
def test_equal_draws_and_state_per_worker_are_reported(
    text: str, workers: JobWorkers | None, expected: list[str]
) -> None:
    told = [code for code in codes(text, workers=workers) if not code.startswith("unsharded")]
    assert told == expected
    if workers is STRATEGY:
        assert codes(text, workers=workers, role="validation") == []


@pytest.mark.parametrize(
    ("text", "handover", "expected"),
    [
        ("range | map | batch 4", TPU, []),
        ("from_generator | batch 4", replace(TPU, strategy="MirroredStrategy"), []),
        ("range | map python | batch 4", None, []),
        ("from_generator | batch 4", TPU, ["python-for-a-tpu n0"]),
        ("range | map python | batch 4", TPU, ["python-for-a-tpu n1"]),
    ],
)
@pytest.mark.mission("B10.generator")
def test_python_in_input_of_tpu_is_reported(text: str, handover: InputDistribution | None, expected: list[str]) -> None:
    assert codes(text, handover=handover) == expected
