"""Parameter servers: what a coordinator schedules, taken on other datasets; a cluster in one process."""

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
WORKERS = 2


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tf.coordinated"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": search_path(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    "form",
    [
        "a function of a distributed dataset",
        "a function of a dataset",
        "a distributed dataset of a function",
        "a distributed dataset",
        "a dataset",
    ],
)
def test_every_form_of_a_per_worker_dataset_is_served(found: dict[str, Any], form: str) -> None:
    kind, (steps, calls, _), taken, stopped = found["forms"][form]
    assert (kind, steps, taken, stopped) == ("coordinator", 6, True, True)
    assert calls == WORKERS * (6 + 2), "of the window, and its warm-up on every worker"


def test_training_is_what_is_scheduled_and_its_variables_are_put_back(found: dict[str, Any]) -> None:
    assert found["served"]["said"] == [
        "training",
        "ClusterCoordinator.schedule",
        2,
        "ClusterCoordinator.schedule, to 2 workers",
    ]
    assert found["served"]["put back"] == 5, "steps were taken to see whether they can be"


def test_another_dataset_reaches_the_steps(found: dict[str, Any]) -> None:
    steps, calls, total = found["served"]["others"]
    assert (steps, total) == (6, 4 * calls), "every element is four ones"
    assert found["served"]["traced again"] == 0, "iterators of all of them are alike"


@pytest.mark.mission("C5.coordinator")
def test_several_steps_are_one_call(found: dict[str, Any]) -> None:
    (steps, calls, _), more = found["served"]["four a call"]
    assert (steps, calls) == (8, WORKERS * (8 + 4)), "two calls of four; the warm-up is one"
    assert found["served"]["one step a call"] and not more
    assert found["served"]["again one"][:2] == [6, WORKERS * 8]


def test_a_call_that_takes_several_elements_counts_as_so_many_steps(found: dict[str, Any]) -> None:
    (steps, calls, _), one_a_call = found["looked at"]["three a call"]
    assert (steps, calls, one_a_call) == (6, WORKERS * (6 + 3), False)


def test_what_cannot_be_taken_ends_its_window_alone(found: dict[str, Any]) -> None:
    assert "other shapes" in found["served"]["other shapes"]
    assert "InvalidArgumentError" in found["served"]["raises"] and "too much" in found["served"]["raises"]
    assert "Python function" in found["served"]["python"]
    assert found["served"]["after that"][0] == 6


def test_a_cache_is_filled_once_on_every_worker(found: dict[str, Any]) -> None:
    once, again = found["served"]["cached"]
    assert once == again and len(once) == WORKERS and once[0] != once[1], "they draw what they cache"


def test_without_a_window_that_ends_the_input_is_measured_alone(found: dict[str, Any]) -> None:
    kind, why = found["looked at"]["all of it"]
    assert kind == "none" and "takes all that its iterator has" in why
    kind, why = found["looked at"]["raises"]
    assert kind == "none" and "too much" in why


def test_the_first_per_worker_dataset_that_is_scheduled_is_trained_on(found: dict[str, Any]) -> None:
    assert found["looked at"]["the first that is scheduled"] == [3, ["preview", "training"]]
    assert found["looked at"]["made at each call"] == [1, 1], "by the script, which pipetune only looks at"
    assert found["looked at"]["another is wanted"] == [0, False]


def test_another_dataset_is_built_by_the_workers_of_a_script_that_runs(found: dict[str, Any]) -> None:
    assert found["replaced"] == {"function": 8 * 4, "distributed": 8 * 4, "dataset": 8 * 4}


@pytest.mark.parametrize("form", ["nothing", "arrays", "in scope", "a live dataset", "a distributed dataset"])
@pytest.mark.mission("C3.own")
def test_functions_that_make_everything_inside_take_nothing_along(found: dict[str, Any], form: str) -> None:
    assert found["captured"][form] == []


@pytest.mark.parametrize(
    ("form", "kind", "name", "where"),
    [
        ("dataset", "dataset", "OUTSIDE['train']", '"dataset": lambda'),
        ("dataset, by a distributed one", "dataset", "OUTSIDE['train']", 'train = OUTSIDE["train"]'),
        ("dataset, by a distributed one of here", "dataset", "OUTSIDE['train']", 'train = OUTSIDE["train"]'),
        ("dataset, by tf_keras", "dataset", "OUTSIDE['train']", 'train = OUTSIDE["train"]'),
        ("dataset, without a name", "dataset", "", "iterator = iter(COORDINATOR.create_per_worker_dataset(given))"),
        ("iterator", "iterator", "DRAWN", '"iterator": lambda'),
        ("variable", "state", "MADE_HERE", '"variable": lambda'),
        ("generator of numbers", "state", "DRAWS", '"generator of numbers": lambda'),
    ],
)
@pytest.mark.mission("C3.own")
def test_what_a_function_takes_from_outside_is_found_by_name(
    found: dict[str, Any], form: str, kind: str, name: str, where: str
) -> None:
    ((said, named, line),) = found["captured"][form]
    assert (said, named) == (kind, name) and line.startswith(where)


def test_what_a_coordinator_tells(found: dict[str, Any]) -> None:
    (python,) = found["told"].pop("python")
    assert "/job:chief" in python, "a worker calls it there"
    assert found["told"] == {"raised": "LinAlgError", "threads": [True, True], "here": False}
