"""Two replicas under MirroredStrategy: what TensorFlow gives them, and what pipetune reads, checks and serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from tests.starting import search_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("two_replicas.py"))],
        env={**os.environ, "PYTHONPATH": search_path(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        # Sharded by element a last batch of 3 is divided by its own size, for a single worker too; else it is dealt
        # by the size of full ones, where that is known.
        ("divided", [[[0, 1, 2], [3, 4, 5]], [[6, 7], [8]]]),
        ("dealt", [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], []]]),
        ("dealt behind a map", [[[1, 2, 3], [4, 5, 6]], [[7, 8], [9]]]),
        ("of files", [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], []]]),
        ("shares of files", [6, [3, 3], False, 2]),
        # Where shapes are fixed a step needs an element for each replica: the third one reaches none.
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
def test_what_replicas_get(found: dict[str, Any], what: str, expected: Any) -> None:
    assert found[what] == expected


@pytest.mark.mission("C5.fit")
def test_several_steps_in_one_call_under_a_strategy(found: dict[str, Any]) -> None:
    """Of Keras 3, which fails so under two replicas, and tf_keras; both models take one step in a call again."""
    keras, tf_keras = found["several steps"]
    assert keras == ["fit raised InvalidArgumentError", 1, True, 4]  # keras-team/keras, issue 19246
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
        ("one replica", []),
    ],
)
def test_whether_a_plan_divides_batches_as_the_script_does(found: dict[str, Any], what: str, expected: Any) -> None:
    assert found[what] == expected


@pytest.mark.mission("B9.under")
def test_the_input_alone_is_what_the_strategy_makes_of_it(found: dict[str, Any]) -> None:
    assert found["host"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert found["input"] == [4.0, True, "replicas", {"p": 7.0}], "a window counts whole global batches"
    # The strategy prefetches 2 behind it, which is not what the plan's prefetch holds.
    assert found["endless input"][3] == {"p": 7.0}


@pytest.mark.mission("B9.under")
def test_windows_go_to_the_replicas_in_the_same_way(found: dict[str, Any]) -> None:
    assert found["loop"] == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[0, 1], [2, 3]]], 4]
    # A step takes two elements of what the function makes: four are asked for, two steps run.
    assert found["function loop"] == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 4]


def test_a_window_takes_elements_with_the_care_of_the_script(found: dict[str, Any]) -> None:
    assert found["partial"] is True, "partial batches are looked for, though the window has none"
    assert found["optional"] == [[0, 1, 2], [3, 4, 5]]


def test_where_no_other_dataset_can_be_handed_over(found: dict[str, Any]) -> None:
    assert found["why"] == ["", "", ""]
    assert "called for each replica" in found["why not"]
    assert found["one worker"] == ["MultiWorkerMirroredStrategy", 1, ""], "its one process can be given other data"


def test_what_each_replica_holds_is_put_back(found: dict[str, Any]) -> None:
    before, changed, after, distributed = found["put back"]
    assert before == after == [[1.0, 1.0], [3.0, 4.0]] != changed
    assert distributed == 0, "reading what stands for all of them may take every process of a job"
