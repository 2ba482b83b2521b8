"""Python and objects of the script's process where a worker or a TPU has to run the input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.distribution import COORDINATOR, DATASET, CapturedKind, CapturedObject, InputDistribution
from tests.lint.uses import codes, found

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
