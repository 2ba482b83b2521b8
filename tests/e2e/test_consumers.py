"""Every way to consume a dataset, and every kind of element, in real workers."""

from __future__ import annotations

import re

import pytest

from pipetune.core import restoration
from tests.e2e.command import SCRIPTS
from tests.e2e.forked import Forked, Worked

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

MEASURED = {"slows-down", "epoch-pause", "memory-grows"}  # warnings about runs on a busy machine, not about the script

SLICES = "from_tensor_slices"

WORKED: dict[str, tuple[str, ...]] = {
    "strings": (),
    "varying_shape": (),
    "ragged_sparse": (),
    "nested_namedtuple": (),
    "unbatched": (),
    "py_function": (),
    "stateful_table": (),
    "variable_in_map": (),
    "one_batch": (),
    "runs_out": (),
    "infinite": (),
    "run_eagerly": (),
    "raises_within_map-python": ("python",),
    "corrupt_tfrecord": ("{folder}",),
    "unreadable_file": ("{folder}",),
    "sys_exit": (),
    "raises_after": (),
    "tf_keras_fit": (),
    "keras_utils": ("{folder}",),
    "class_method": (),
    "adapt_preview": (),
    "fit_validation_leak": (),
    "cached_augmentation": (),
    "runs_out_of_data_fit": (),
    "enumerate_take": (),
    "get_next_as_optional": (),
    "next_iter_loop": (),
    "as_numpy_iterator": (),
    "reduce_consumer": (),
    "tf_function_dataset": (),
    "tf_function_iterator": (),
    "removes_large_file": ("{large}",),
    "short_loop": ("{folder}/prepared",),
}
"""Scripts of `tests/scripts` that run in a worker alone, and their arguments."""


def assert_measured_three_ways(done: Worked) -> None:
    """Asserts that the real step, one cached batch repeated, and the input alone were measured, and single steps."""
    for name in ("real_seconds", "bound_seconds", "input_seconds"):
        assert done.consumer[name], (name, done.consumer["why"])
    (series,) = done.first["step_series"].values()
    if not re.match("20 steps need|Only", series["why"]):  # on a busy machine
        assert series["step_seconds"] and series["wait_seconds"], series["why"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("strings", [SLICES, "map", "batch"]),
        ("varying_shape", ["from_generator", "map", "padded_batch"]),
        ("ragged_sparse", [SLICES, "map", "batch"]),
        ("nested_namedtuple", [SLICES, "map", "batch"]),
        ("unbatched", [SLICES, "map"]),
        ("py_function", [SLICES, "map", "batch"]),
        ("stateful_table", [SLICES, "map", "map", "batch"]),
        ("variable_in_map", [SLICES, "map", "batch"]),
        ("one_batch", [SLICES, "map", "batch"]),
        ("runs_out", [SLICES, "map", "batch"]),
        ("enumerate_take", [SLICES, "map", "repeat", "batch", "take"]),
        ("get_next_as_optional", [SLICES, "map", "batch"]),
        ("as_numpy_iterator", [SLICES, "map", "batch"]),
    ],
)
def test_loop_is_measured_for_every_kind_of_element(worked: Forked, name: str, operators: list[str]) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.operators == operators
    assert done.first["role"] == "training" and done.first["consumer"] == "a Python loop"
    assert done.consumer["kind"] == "loop"
    assert_measured_three_ways(done)
    assert done.summary["training"]["defaults_step_ms"] > 0
    assert {operator["node"] for operator in done.first["profile"]["operators"]} >= {"n0", "n1"}


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        pytest.param("run_eagerly", [SLICES, "map", "batch"], marks=pytest.mark.exhaustive),
        ("sys_exit", [SLICES, "map", "batch"]),
        pytest.param("raises_after", [SLICES, "map", "batch"], marks=pytest.mark.exhaustive),
        pytest.param("tf_keras_fit", [SLICES, "map", "batch"], marks=pytest.mark.exhaustive),
        pytest.param(
            "class_method", [SLICES, "map", "map", "map", "shuffle", "filter", "batch"], marks=pytest.mark.exhaustive
        ),
    ],
)
def test_fit_is_measured_and_the_script_stopped_there(worked: Forked, name: str, operators: list[str]) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.operators == operators
    assert done.first["consumer"] == "Model.fit" and done.consumer["kind"] == "keras-fit"
    assert_measured_three_ways(done)
    assert "Epoch 1/" not in done.log, "the user's own training does not run"


@pytest.mark.exhaustive
def test_loop_that_ends_early_is_measured_or_gives_the_reason(worked: Forked) -> None:
    done = worked("infinite")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.first["role"] == "training" and "repeat" in done.operators
    training = done.summary["training"]
    assert training["defaults_step_ms"] or "loop ended after 401 elements" in training["why"]


def test_short_counted_loop_is_measured(worked: Forked) -> None:
    done = worked("next_iter_loop")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert_measured_three_ways(done)
    assert done.summary["training"]["defaults_step_ms"] > 0
    assert "trained" not in done.log


@pytest.mark.parametrize(
    ("name", "how", "why"),
    [
        (
            "tf_function_dataset",
            "a tf.function",
            "inside a tf.function, where it cannot be replaced by another dataset",
        ),
        pytest.param(
            "tf_function_iterator",
            "a tf.function",
            "inside a tf.function, where it cannot be replaced by another dataset",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "reduce_consumer", "Dataset.reduce", "it was consumed by Dataset.reduce", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_input_alone_is_measured_where_datasets_cannot_be_switched(
    worked: Forked, name: str, how: str, why: str
) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert (done.first["role"], done.first["consumer"]) == ("training", how)
    training = done.summary["training"]
    assert why in training["why"]
    assert training["defaults_step_ms"] is training["bound_step_ms"] is training["speedup"] is None
    assert done.summary["verdict"] == "undetermined"
    assert done.consumer["input_seconds"] and done.consumer["why"]
    assert done.summary["datasets"][0]["rates"]["defaults"]["examples_per_second"] > 0


def roles(done: Worked) -> list[str]:
    return [dataset["role"] for dataset in done.session["datasets"]]


def test_adapt_and_previews_are_not_training(worked: Forked) -> None:
    done = worked("adapt_preview")
    assert roles(done).count("training") == 1 and roles(done)[0] == "training"
    assert set(roles(done)) - {"training"} == {"adapt", "preview"}
    assert done.first["line"] == 21, "the line of fit"
    assert done.operators == [SLICES, "map", "batch"]
    assert "preview (32, 8) (32, 1)" in done.log


def test_validation_is_distinguished_from_training(worked: Forked) -> None:
    done = worked("class_method")
    assert roles(done) == ["training", "validation"]
    assert done.session["datasets"][1]["consumer"] == "validation_data of Model.fit"
    shared = [dataset["pipeline"]["nodes"][1]["location"] for dataset in done.session["datasets"]]
    assert shared[0]["line"] == shared[1]["line"], "one call site made both"


def test_datasets_created_inside_keras_are_located_in_the_script(worked: Forked) -> None:
    done = worked("keras_utils")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.operators[-5:] == ["shuffle", "map", "batch", "prefetch", "map"]
    script = SCRIPTS / "keras_utils.py"
    calls = [node["location"] for node in done.first["pipeline"]["nodes"]]
    assert {call["file"] for call in calls} == {str(script)}, "the user's frame, not the library's"
    assert "image_dataset_from_directory(" in script.read_text().splitlines()[calls[0]["line"] - 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("raises_within_map-python", "ValueError: element 120 is broken"),
        ("corrupt_tfrecord", "DataLossError"),
        pytest.param("unreadable_file", "part-2.tfrecord", marks=pytest.mark.exhaustive),
    ],
)
def test_failing_input_is_reported_as_the_users_error(worked: Forked, name: str, text: str) -> None:
    done = worked(name)
    assert done.code == 3
    assert text in done.traceback
    assert "/pipetune/" not in done.traceback, "none of pipetune's own frames"
    assert done.operators[-2:] == ["map", "batch"], "what was captured is kept"


@pytest.mark.parametrize(
    ("name", "code", "call"),
    [
        ("fit_validation_leak", "validation-leak", ".shuffle("),
        pytest.param("cached_augmentation", "cached-augmentation", ".cache()", marks=pytest.mark.exhaustive),
        ("runs_out_of_data_fit", "runs-out-of-data", ".batch("),
    ],
)
def test_bug_in_the_script_is_reported_with_its_line(worked: Forked, name: str, code: str, call: str) -> None:
    done = worked(name)
    (warning,) = (one for one in done.summary["warnings"] if one["code"] not in MEASURED)
    assert warning["code"] == code
    assert warning["file"] == str(SCRIPTS / f"{name}.py")
    assert call in (SCRIPTS / f"{name}.py").read_text().splitlines()[warning["line"] - 1]
    assert warning["message"] and warning["hint"]


def test_script_without_a_bug_gets_no_warning(worked: Forked) -> None:
    assert {one["code"] for one in worked("tf_keras_fit").summary["warnings"]} <= MEASURED


def test_loop_that_changes_too_many_files_is_stopped_and_only_its_input_measured(worked: Forked) -> None:
    done = worked("removes_large_file")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    large = done.folder / "own" / "large"
    assert large.stat().st_size == 1_500_000_000 and "it went on" not in done.log
    why = done.consumer["why"]
    assert "changes more than 1 GB of files" in why and str(large) in why
    assert done.consumer["input_seconds"] and not done.consumer["real_seconds"]


def test_files_of_a_completed_script_are_kept(worked: Forked) -> None:
    done = worked("short_loop")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    restoration.restore(str(done.folder / "undo"))
    assert (done.folder / "own" / "prepared").read_text() == "prepared 5"
