"""State that a strategy does not divide over its workers; the longer tables are where nothing is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pipetune.core.coverage import AsWritten, Coverage, Identity
from pipetune.core.handover import DATASET, Handover
from pipetune.mistakes.use import Workers
from pipetune.model.coverage import coverage
from tests.mistakes.uses import codes, found

STRATEGY = Workers(2, "TF_CONFIG", distributed=True)
HOROVOD = Workers(2, "HOROVOD_SIZE")
TPU = Handover("TPUStrategyV2", 8, DATASET)


def counted(*workers: list[int]) -> Coverage:
    return coverage([Counter(range(8))], [[Counter(mine)] for mine in workers], told_by=Identity.NUMBER)


FAIR = counted([0, 2, 4, 6], [1, 3, 5, 7])
APART = counted([0, 2, 4, 6], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("text", "workers", "as_written", "expected"),
    [
        ("range | shuffle 9 seed=1 | batch 4", STRATEGY, AsWritten(2, FAIR, "DATA"), []),
        ("range | batch 4", STRATEGY, AsWritten(2, FAIR, "DATA"), []),
        ("range | shuffle 9 | batch 4", STRATEGY, AsWritten(2, FAIR, "DATA"), []),  # counted: it did no harm
        ("list_files | interleave inner=TextLineDataset | batch 4", STRATEGY, AsWritten(2, FAIR, "FILE"), []),
        ("range | shuffle 9 | batch 4", STRATEGY, None, []),
        ("range | shuffle 9 | batch 4", None, AsWritten(2, APART, "DATA"), []),
        ("range | shuffle 9 | batch 4", HOROVOD, AsWritten(2, FAIR), []),
        ("range | shuffle 9 | batch 4", STRATEGY, AsWritten(2, APART, "DATA"), ["shuffled-apart n1"]),
        ("range | shuffle 9 | batch 4", STRATEGY, AsWritten(2, None, "DATA", "too long"), ["shuffled-apart n1"]),
        ("range | map 2 deterministic=False | batch 4", STRATEGY, AsWritten(2, FAIR, "FILE"), []),
        ("range | map 2 deterministic=True | batch 4", STRATEGY, AsWritten(2, FAIR, "DATA"), []),
        # no count in one process shows it
        ("range | map 2 deterministic=False | batch 4", STRATEGY, AsWritten(2, FAIR, "DATA"), ["shuffled-apart n1"]),
    ],
)
@pytest.mark.mission("B8.stateful")
def test_workers_that_shuffle_apart(
    text: str, workers: Workers | None, as_written: AsWritten | None, expected: list[str]
) -> None:
    assert codes(text, workers=workers, as_written=as_written) == expected


@pytest.mark.mission("B8.stateful")
def test_what_is_lost_by_it_is_said_in_numbers() -> None:
    (one,) = found("range | shuffle 9 | batch 4", workers=STRATEGY, as_written=AsWritten(2, APART, "DATA"))
    assert "2 of 8 elements come to none of them, and 2 to several" in one.message and "seed" in one.hint
    (one,) = found("range | shuffle 9 | batch 4", workers=STRATEGY, as_written=AsWritten(2, None, "DATA", "too long"))
    assert "some elements come to several" in one.message


@pytest.mark.parametrize(
    ("text", "workers", "expected"),
    [
        ("range | map | batch 4", STRATEGY, []),
        ("range | map random | batch 4", STRATEGY, []),  # draws of its own on each worker
        ("range | map seeded | batch 4", HOROVOD, []),
        ("range | map seeded | batch 4", None, []),
        ("range | map seeded | batch 4", replace(STRATEGY, count=1), []),
        ("range | map variable | batch 4", STRATEGY, []),  # read alone
        ("range | map seeded | batch 4", STRATEGY, ["same-draws n1"]),
        ("range | map writes | batch 4", STRATEGY, ["state-of-each-worker n1"]),
    ],
)
@pytest.mark.mission("B8.stateful")
def test_draws_and_state_that_sharding_ignores(text: str, workers: Workers | None, expected: list[str]) -> None:
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
def test_python_in_the_input_of_a_tpu(text: str, handover: Handover | None, expected: list[str]) -> None:
    assert codes(text, handover=handover) == expected
