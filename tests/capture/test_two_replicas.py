"""Two replicas under MirroredStrategy: the data TensorFlow gives them, and what pipetune reads, checks and serves."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from tests.starting import output_of


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return dict(json.loads(output_of("tests.capture.two_replicas", TF_USE_LEGACY_KERAS="1")))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        # Sharded by element, a last batch of 3 is divided by its own size, also with a single worker; otherwise by the
        # size of full batches, where that is known.
        ("divided", [[[0, 1, 2], [3, 4, 5]], [[6, 7], [8]]]),
        ("dealt", [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], []]]),
        ("dealt behind a map", [[[1, 2, 3], [4, 5, 6]], [[7, 8], [9]]]),
        ("of files", [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], []]]),
        ("shares of files", [6, [3, 3], False, 2]),
        # With fixed shapes a step needs an element for each replica: the fifth element reaches none.
        ("fixed shapes", [[[0, 1], [2, 3]]]),
        ("free shapes", [[[0, 1], [2, 3]], [[4], []]]),
        ("seen", [6, None, 6, None, 2]),
        (
            "shares",
            [
                [6, [3, 3], True, 2],
                [6, [3, 3], False, 2],
                [None, [0, 0], True, 2],
                [5, [3, 2], True, 2],
                [5, [3, 2], False, 2],
            ],
        ),
        ("of a function", [3, [], 2]),
    ],
)
def test_elements_are_divided_over_replicas(found: dict[str, Any], what: str, expected: Any) -> None:
    assert found[what] == expected


@pytest.mark.mission("C5.fit")
def test_several_steps_per_execution_fail_in_keras_3_and_run_in_tf_keras(found: dict[str, Any]) -> None:
    """Keras 3 fails under two replicas; afterwards both models take one step per call again."""
    keras, tf_keras = found["several steps"]
    assert keras == ["Model.fit raised InvalidArgumentError", 1, True, 4]  # keras-team/keras, issue 19246
    assert tf_keras == [32, 1, True, 4]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("same", [True]),
        ("size lost", [False]),
        ("size lost, by its own size before", [True]),
        ("size lost, never partial", [True]),
        ("size lost, dropping", [True]),
        ("other shares", [False]),
        ("per replica", []),
    ],
)
def test_plan_is_compared_by_how_it_divides_batches_over_replicas(
    found: dict[str, Any], what: str, expected: Any
) -> None:
    assert found[what] == expected


@pytest.mark.mission("B9.under")
def test_input_windows_read_the_distributed_dataset(found: dict[str, Any]) -> None:
    assert found["host"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert found["input"] == [4.0, True, "replicas", {"p": 7.0}], "a window counts whole global batches"
    # The strategy prefetches 2 downstream, which is not the plan's own prefetch.
    assert found["endless input"][3] == {"p": 7.0}


@pytest.mark.mission("B9.under")
def test_windows_of_a_loop_are_distributed_like_the_script_s_dataset(found: dict[str, Any]) -> None:
    assert found["loop"] == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[0, 1], [2, 3]]], 4]
    # A step takes two elements of the function's dataset: a window of four elements has two steps.
    assert found["function loop"] == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 4]


def test_windows_handle_partial_and_optional_elements_like_the_script(found: dict[str, Any]) -> None:
    assert found["partial"] is True, "partial batches are looked for, though the window has none"
    assert found["optional"] == [[0, 1, 2], [3, 4, 5]]


def test_obstacles_to_switching_datasets_are_named(found: dict[str, Any]) -> None:
    assert found["why"] == ["", "", ""]
    assert "called once per replica" in found["why not"]
    assert found["one worker"] == ["MultiWorkerMirroredStrategy", 1, ""], "its one process can be given other data"


def test_variables_of_each_replica_are_restored(found: dict[str, Any]) -> None:
    before, changed, after, distributed = found["restored"]
    assert before == after == [[1.0, 1.0], [3.0, 4.0]] != changed
    assert distributed == 0, "reading what stands for all of them may take every process of a job"


def test_monitor_logs_the_wait_of_the_older_keras_but_not_of_two_replicas(found: dict[str, Any]) -> None:
    epochs, share, _ = found["monitored"]
    assert epochs == 2 and share > 0.5
    assert found["monitored replicas"][:2] == [0, None]
    assert "not available: the batches do not come from one iterator" in found["monitored replicas"][2]
