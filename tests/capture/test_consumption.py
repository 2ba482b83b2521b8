"""The first lines of an analysis: what is taken for training, and why the first step came late."""

from __future__ import annotations

from pipetune.capture.consumption import Consumption, describe_start, describe_training
from pipetune.core.time_plan import SLOW_START_SECONDS


def use(variable: str, call: str, line: int, *, seconds: float = 0.0, elements: int = 50) -> Consumption:
    return Consumption(
        None, variable, "training", call, elements=elements, file="/home/x/train.py", line=line, wall_seconds=seconds
    )


def test_the_training_call_is_named_and_others_are_listed() -> None:
    training, names, one = use("train", "Model.fit", 14), use("files", "for", 4), use("shapes", "for", 5, elements=1)
    said = describe_training(training, [names, one, training])
    assert said == (
        "Training: Model.fit over train at train.py:14. Also consumed: files at train.py:4; --dataset NAME analyzes "
        "another."
    )
    unnamed = use("", "Model.fit", 14)  # `fit(ds.repeat())`
    assert describe_training(unnamed, []) == "Training: Model.fit at train.py:14."
    glanced = use("val", "validation_data of Model.fit", 14, elements=1)  # `next(iter(val))` before `fit`
    glanced.role = "validation"
    assert "Also consumed: val at train.py:14;" in describe_training(training, [glanced, training])


def test_a_slow_start_is_told_with_its_causes() -> None:
    training, adapt = use("train", "Model.fit", 14), use("words", "adapt", 9, seconds=30.0)
    assert describe_start(SLOW_START_SECONDS - 1, [training, adapt]) == ""
    said = describe_start(42.0, [training, adapt, use("small", "for", 5, seconds=0.5)])
    assert said == (
        "The first training step came after 42 s: 30 s in adapt over words at train.py:9, 12 s outside datasets."
    )
    assert describe_start(42.0, [training]) == ("The first training step came after 42 s.")
    unsure = describe_start(42.0, [training], certain=False)
    assert unsure == "Nothing else trained, and measuring began after 42 s."
