"""Every way to consume a dataset, every kind of element, and scripts that do not train, in real workers."""

from __future__ import annotations

import re
from functools import partial

import pytest

from pipetune.core import restoration
from pipetune.core.messages import ScriptExited
from tests.e2e.command import SCRIPTS
from tests.e2e.forked import Forked, Script, Worked

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

MEASURED = {"slows-down", "epoch-pause", "memory-grows"}  # warnings about runs on a busy machine, not about the script

SLICES = "from_tensor_slices"
EXHAUSTIVE = partial(pytest.param, marks=pytest.mark.exhaustive)
MAPPED = [SLICES, "map", "batch"]

ALONE = ("run_eagerly", "raises_in_its_loop", "tf_keras_fit", "class_method", "adapt_preview", "fit_validation_leak",
         "parameter_server", "raises_before", "exits_before", "no_dataset", "built_not_consumed", "empty_dataset",
         "trains_in_subprocess", "inference")  # fmt: skip
KINDS = ("strings", "varying_shape", "ragged_sparse", "nested_namedtuple", "one_batch")
WORKED: dict[str, tuple[str, ...] | Script] = {
    **dict.fromkeys(ALONE, ()),
    **{f"elements-{kind}": (kind,) for kind in KINDS},
    **{f"consumers-{way}": (way,) for way in ("endless", "enumerate_take", "next_iter", "reduce", "function")},
    **{f"mirrored-{way}": (way,) for way in ("loop", "dataset_fn", "function")},
    "consumers-removes_file": ("removes_file", "{large}"),
    "raises_within_map-python": ("python",),
    "corrupt_tfrecord": ("{folder}",),
    "keras_utils": ("{folder}",),
    "short_loop": ("{folder}/prepared",),
    "no_gpu": Script(SCRIPTS / "no_dataset.py", device="gpu"),
}
"""Scripts of `tests/scripts` that run in a worker alone, and their arguments."""


def completed(worked: Forked, name: str) -> Worked:
    """The result for a script whose analysis has come to its end."""
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    return done


def assert_measured(done: Worked) -> None:
    """Asserts that the real step, one cached batch repeated, and the input alone were measured."""
    for name in ("real_seconds", "bound_seconds", "input_seconds"):
        assert done.consumer[name], (name, done.consumer["why"])


def assert_measured_with_steps(done: Worked) -> None:
    """Also single steps."""
    assert_measured(done)
    (series,) = done.first["step_series"].values()
    if not re.match("20 steps need|Only", series["why"]):  # on a busy machine
        assert series["step_seconds"] and series["wait_seconds"], series["why"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("elements-strings", MAPPED),
        ("elements-varying_shape", ["from_generator", "map", "padded_batch"]),
        ("elements-ragged_sparse", MAPPED),
        ("elements-nested_namedtuple", MAPPED),
        ("elements-one_batch", MAPPED),
        ("consumers-enumerate_take", [SLICES, "map", "repeat", "batch", "take"]),
    ],
)
def test_loop_is_measured_for_every_kind_of_element(worked: Forked, name: str, operators: list[str]) -> None:
    done = completed(worked, name)
    assert done.operators == operators
    assert done.first["role"] == "training" and done.first["consumer"] == "a Python loop"
    assert done.consumer["kind"] == "loop"
    assert_measured_with_steps(done)
    assert done.summary["training"]["defaults_step_ms"] > 0
    assert {operator["node"] for operator in done.first["profile"]["operators"]} >= {"n0", "n1"}


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        EXHAUSTIVE("run_eagerly", MAPPED),
        ("tf_keras_fit", MAPPED),
        ("class_method", [SLICES, "map", "map", "map", "shuffle", "filter", "batch"]),
    ],
)
def test_fit_is_measured_and_the_script_stopped_there(worked: Forked, name: str, operators: list[str]) -> None:
    done = completed(worked, name)
    assert done.operators == operators
    assert done.first["consumer"] == "Model.fit" and done.consumer["kind"] == "keras-fit"
    assert_measured_with_steps(done)
    assert "Epoch 1/" not in done.log, "the user's own training does not run"


@pytest.mark.exhaustive
def test_loop_that_ends_early_is_measured_or_gives_the_reason(worked: Forked) -> None:
    done = completed(worked, "consumers-endless")
    assert done.first["role"] == "training" and "repeat" in done.operators
    training = done.summary["training"]
    assert training["defaults_step_ms"] or "loop ended after 401 elements" in training["why"]


def test_short_counted_loop_is_measured(worked: Forked) -> None:
    done = completed(worked, "consumers-next_iter")
    assert_measured_with_steps(done)
    assert done.summary["training"]["defaults_step_ms"] > 0
    assert "trained" not in done.log


def test_input_alone_is_measured_where_datasets_cannot_be_switched(worked: Forked) -> None:
    done = completed(worked, "consumers-reduce")
    assert (done.first["role"], done.first["consumer"]) == ("training", "Dataset.reduce")
    training = done.summary["training"]
    assert "it was consumed by Dataset.reduce" in training["why"]
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
    assert done.first["line"] == 17, "the line of fit"
    assert done.operators == MAPPED
    assert "preview (32, 8) (32, 1)" in done.log


def test_validation_is_distinguished_from_training(worked: Forked) -> None:
    done = worked("class_method")
    assert roles(done) == ["training", "validation"]
    assert done.session["datasets"][1]["consumer"] == "validation_data of Model.fit"
    shared = [dataset["pipeline"]["nodes"][1]["location"] for dataset in done.session["datasets"]]
    assert shared[0]["line"] == shared[1]["line"], "one call site made both"


def test_datasets_created_inside_keras_are_located_in_the_script(worked: Forked) -> None:
    done = completed(worked, "keras_utils")
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
        EXHAUSTIVE("raises_in_its_loop", "ValueError: the loss is nan at step 60\n"),
    ],
)
def test_failure_while_measured_is_reported_as_the_users_error(worked: Forked, name: str, text: str) -> None:
    done = worked(name)
    assert done.code == 3
    assert text in done.traceback
    assert "/pipetune/" not in done.traceback, "none of pipetune's own frames"
    assert done.operators[-2:] == ["map", "batch"], "what was captured is kept"


def test_bug_in_the_script_is_reported_with_its_line(worked: Forked) -> None:
    done, script = worked("fit_validation_leak"), SCRIPTS / "fit_validation_leak.py"
    (warning,) = (one for one in done.summary["warnings"] if one["code"] not in MEASURED)
    assert (warning["code"], warning["file"]) == ("validation-leak", str(script))
    assert ".shuffle(" in script.read_text().splitlines()[warning["line"] - 1]
    assert warning["message"] and warning["hint"]


def test_script_without_a_bug_gets_no_warning(worked: Forked) -> None:
    assert {one["code"] for one in worked("tf_keras_fit").summary["warnings"]} <= MEASURED


def test_loop_that_changes_too_many_files_is_stopped_and_only_its_input_measured(worked: Forked) -> None:
    done = completed(worked, "consumers-removes_file")
    large = done.folder / "own" / "large"
    assert large.stat().st_size == 1_500_000_000 and "it went on" not in done.log
    why = done.consumer["why"]
    assert "changes more than 1 GB of files" in why and str(large) in why
    assert done.consumer["input_seconds"] and not done.consumer["real_seconds"]


def test_files_of_a_completed_script_are_kept(worked: Forked) -> None:
    done = completed(worked, "short_loop")
    restoration.restore(str(done.folder / "undo"))
    assert (done.folder / "own" / "prepared").read_text() == "prepared 5"


def test_inference_is_measured_where_nothing_trains(worked: Forked) -> None:
    done = completed(worked, "inference")
    assert (done.first["consumer"], done.operators) == ("Model.predict", MAPPED)
    assert "predicted 6400" in done.log
    assert_measured_with_steps(done)


@pytest.mark.exhaustive
def test_script_that_ends_before_any_dataset_has_failed(worked: Forked) -> None:
    raised, exited = worked("raises_before"), worked("exits_before")
    assert "\nKeyError: 'learning-rate'\n" in raised.traceback and "/pipetune/" not in raised.traceback
    assert [message.code for message in exited.messages if isinstance(message, ScriptExited)] == [3]
    for done in (raised, exited):
        assert (done.code, done.summary["status"]) == (3, "failed")


@pytest.mark.parametrize(
    ("name", "why", "hint"),
    [
        ("no_dataset", "did not train on a tf.data dataset.", "pass a tf.data.Dataset to fit"),
        EXHAUSTIVE("built_not_consumed", "it took only one element of dataset (built_not_consumed.py:7)", ""),
        EXHAUSTIVE("empty_dataset", "The dataset is empty.", ""),
        EXHAUSTIVE("trains_in_subprocess", "did not train on a tf.data dataset",
                   "Processes that the script starts are not analyzed"),
    ],
)  # fmt: skip
def test_script_without_training_data_is_told_so(worked: Forked, name: str, why: str, hint: str) -> None:
    done = worked(name)
    assert done.code == 4 and (name == "empty_dataset" or done.summary["status"] == "no-dataset")
    assert why in done.failure and hint in done.failure, done.failure
    assert name != "trains_in_subprocess" or "200/200" in done.log, "the other process was left alone"


def test_script_does_not_run_without_the_requested_device(worked: Forked) -> None:
    done = worked("no_gpu")
    assert done.code == 5 and "'gpu' is not available" in done.failure and "trained" not in done.log


# -- two replicas: two logical processors in a MirroredStrategy; and a cluster


@pytest.mark.parametrize(
    ("name", "operators"), [("consumers-function", MAPPED), ("mirrored-function", ["range", "map", "map", "batch"])]
)
def test_function_that_loops_over_its_dataset_is_measured(worked: Forked, name: str, operators: list[str]) -> None:
    done = completed(worked, name)
    assert done.operators == operators
    assert (done.first["consumer"], done.consumer["kind"]) == ("a tf.function", "function")
    assert_measured(done)
    assert "trained" not in done.log and "the end" not in done.log, "the function has not run as the script calls it"


@pytest.mark.exhaustive
@pytest.mark.mission("B1.reads", "B1.prefetch", "B5.for", "B9.under")
def test_dataset_distributed_by_a_strategy_is_measured_in_it(worked: Forked) -> None:
    done = completed(worked, "mirrored-loop")
    assert done.operators == ["range", "map", "map", "batch"], "the script's own, without what the strategy adds"
    assert (done.first["consumer"], done.consumer["kind"]) == ("a Python loop", "loop")
    assert_measured(done)
    assert done.first["handover"] == {
        "strategy": "MirroredStrategy", "how": "experimental_distribute_dataset", "policy": "", "workers": 1,
        "replicas": 2, "batch": 32, "shares": [16, 16], "by_own_size": True, "prefetched": 2,
    }  # fmt: skip
    assert done.first["profile"]["examples_per_element"] == 32
    assert "the end" not in done.log


def test_dataset_fn_is_read_as_the_pipeline(worked: Forked) -> None:
    done = completed(worked, "mirrored-dataset_fn")
    assert done.operators == ["range", "map", "shard", "map", "batch"]
    assert done.consumer["real_seconds"] and done.consumer["bound_seconds"], done.consumer["why"]
    found = done.first["handover"]
    assert (found["how"], found["batch"], found["shares"]) == ("distribute_datasets_from_function", 16, [])
    assert done.first["profile"]["examples_per_element"] == 16
    lines = [node["location"]["line"] for node in done.first["pipeline"]["nodes"]]
    assert len(set(lines[2:])) == 3, "each call in the function has its own line"


@pytest.mark.exhaustive
@pytest.mark.mission("C1.recognised")
def test_coordinator_dataset_is_measured_in_the_steps_of_fit(worked: Forked) -> None:
    done = completed(worked, "parameter_server")
    assert done.operators == ["range", "shuffle", "map", "repeat", "batch"]
    found = done.first["handover"]
    assert (found["strategy"], found["workers"]) == ("ParameterServerStrategy", 2)
    assert found["how"] == "create_per_worker_dataset"
    assert (done.first["consumer"], done.consumer["kind"]) == ("Model.fit", "coordinator")
    assert_measured(done)
