"""Parameter servers: the functions a coordinator schedules, run on other datasets; the cluster is in one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from tests.starting import output_of

WORKERS = 2


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return dict(json.loads(output_of("tests.capture.coordinated")))


@pytest.mark.parametrize(
    "form",
    ["a function of a dataset", "a distributed dataset of a function", "a distributed dataset", "a dataset"],
)
def test_per_worker_dataset_of_every_form_is_served_windows(found: dict[str, Any], form: str) -> None:
    kind, (steps, calls, _), taken, stopped = found["forms"][form]
    assert (kind, steps, taken, stopped) == ("coordinator", 6, True, True)
    assert calls == WORKERS * (6 + 2), "of the window, and its warm-up on every worker"


def test_scheduled_steps_are_training_and_their_variables_are_restored(found: dict[str, Any]) -> None:
    assert found["served"]["said"] == [
        "training",
        "ClusterCoordinator.schedule",
        2,
        "ClusterCoordinator.schedule, on 2 workers",
    ]
    assert found["served"]["restored"] == 5, "steps were taken to see whether they can be"


def test_scheduled_steps_take_elements_of_other_datasets_without_retracing(found: dict[str, Any]) -> None:
    steps, calls, total = found["served"]["others"]
    assert (steps, total) == (6, 4 * calls), "every element is four ones"
    assert found["served"]["traced again"] == 0, "iterators of all of them are alike"


@pytest.mark.mission("C5.coordinator")
def test_several_steps_per_call_are_measured_as_one_call(found: dict[str, Any]) -> None:
    (steps, calls, _), more = found["served"]["four a call"]
    assert (steps, calls) == (8, WORKERS * (8 + 4)), "two calls of four; the warm-up is one"
    assert found["served"]["one step a call"] and not more
    assert found["served"]["again one"][:2] == [6, WORKERS * 8]


def test_call_that_takes_several_elements_counts_one_step_per_element(found: dict[str, Any]) -> None:
    (steps, calls, _), one_a_call = found["read"]["three a call"]
    assert (steps, calls, one_a_call) == (6, WORKERS * (6 + 3), False)


def test_incompatible_or_failing_dataset_fails_only_its_window(found: dict[str, Any]) -> None:
    assert "different shapes" in found["served"]["different shapes"]
    assert "InvalidArgumentError" in found["served"]["raises"] and "too much" in found["served"]["raises"]
    assert "Python function" in found["served"]["python"]
    assert found["served"]["after that"][0] == 6


def test_cache_is_filled_once_per_worker(found: dict[str, Any]) -> None:
    once, again = found["served"]["cached"]
    assert once == again and len(once) == WORKERS and once[0] != once[1], "they draw what they cache"


def test_function_that_exhausts_its_iterator_or_raises_has_no_consumer(found: dict[str, Any]) -> None:
    kind, why = found["read"]["all of it"]
    assert kind == "none" and "reads its iterator to" in why
    kind, why = found["read"]["raises"]
    assert kind == "none" and "too much" in why


def test_first_scheduled_per_worker_dataset_is_the_training_dataset(found: dict[str, Any]) -> None:
    assert found["read"]["the first that is scheduled"] == [3, ["preview", "training"]]
    assert found["read"]["made at each call"] == [1, 1], "by the script, which pipetune only looks at"
    assert found["read"]["another is wanted"] == [0, False]


def test_replaced_dataset_is_built_on_the_workers(found: dict[str, Any]) -> None:
    assert found["replaced"] == {"function": 8 * 4, "distributed": 8 * 4, "dataset": 8 * 4}


@pytest.mark.parametrize("form", ["nothing", "arrays", "in scope", "a live dataset", "a distributed dataset"])
@pytest.mark.mission("C3.own")
def test_self_contained_dataset_functions_capture_nothing(found: dict[str, Any], form: str) -> None:
    assert found["captured"][form] == []


@pytest.mark.parametrize(
    ("form", "kind", "name", "where"),
    [
        ("dataset", "dataset", "OUTSIDE['train']", '"dataset": lambda'),
        ("dataset, by a distributed one", "dataset", "OUTSIDE['train']", 'train = OUTSIDE["train"]'),
        ("dataset, by a distributed one of here", "dataset", "OUTSIDE['train']", 'train = OUTSIDE["train"]'),
        ("dataset, by tf_keras", "dataset", "OUTSIDE['train']", 'train = OUTSIDE["train"]'),
        ("dataset, without a name", "dataset", "", "return run(lambda: COORDINATOR.create_per_worker_dataset(given))"),
        ("iterator", "iterator", "DRAWN", '"iterator": lambda'),
        ("variable", "state", "MADE_HERE", '"variable": lambda'),
        ("generator of numbers", "state", "DRAWS", '"generator of numbers": lambda'),
    ],
)
@pytest.mark.mission("C3.own")
def test_captured_objects_are_found_with_name_and_line(
    found: dict[str, Any], form: str, kind: str, name: str, where: str
) -> None:
    ((said, named, line),) = found["captured"][form]
    assert (said, named) == (kind, name) and line.startswith(where)


def test_coordinator_reports_errors_threads_and_python_functions(found: dict[str, Any]) -> None:
    (python,) = found["told"].pop("python")
    assert "/job:chief" in python, "a worker calls it there"
    assert found["told"] == {"raised": "LinAlgError", "threads": [True, True], "here": False}
