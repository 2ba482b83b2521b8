"""Ways to consume a dataset, and scripts that do not train or fail, in real workers."""

from __future__ import annotations

import re
from functools import partial

import pytest

from pipetune.core import restoration
from tests.e2e.command import SCRIPTS
from tests.e2e.forked import Forked, Script, Worked

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

MEASURED = {"slows-down", "epoch-pause", "memory-grows"}  # warnings about runs on a busy machine, not about the script

SLICES = "from_tensor_slices"
EXHAUSTIVE = partial(pytest.param, marks=pytest.mark.exhaustive)
MAPPED = [SLICES, "map", "batch"]

ALONE = ("tf_keras_fit", "fit_validation_leak", "parameter_server", "no_dataset", "built_not_consumed",
         "trains_in_subprocess")  # fmt: skip
WORKED: dict[str, tuple[str, ...] | Script] = {
    **dict.fromkeys(ALONE, ()),
    **{
        f"consumers-{way}": (way,) for way in ("next_iter", "function", "predict", "reduce", "shard_for_four", "bursts")
    },
    **{f"mirrored-{way}": (way,) for way in ("loop", "dataset_fn")},
    "consumers-removes_file": ("removes_file", "{large}"),
    "raises_within_map-python": ("python",),
    "trains_in_subprocess-fork": ("fork",),
    "short_loop": ("{folder}/prepared", "40"),
    "no_gpu": Script(SCRIPTS / "no_dataset.py", device="gpu"),
    "emulated": Script(SCRIPTS / "consumers.py", ("next_iter",), step_time=0.05),
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


def test_fit_is_measured_and_the_script_stopped_there(worked: Forked) -> None:
    done = completed(worked, "tf_keras_fit")
    assert done.operators == MAPPED
    assert done.first["consumer"] == "Model.fit" and done.consumer["kind"] == "keras-fit"
    assert_measured_with_steps(done)
    assert "Epoch 1/" not in done.log, "the user's own training does not run"


def test_short_counted_loop_is_measured(worked: Forked) -> None:
    done = completed(worked, "consumers-next_iter")
    assert (done.first["role"], done.first["consumer"], done.consumer["kind"]) == ("training", "a Python loop", "loop")
    assert {operator["node"] for operator in done.first["profile"]["operators"]} >= {"n0", "n1"}
    assert_measured_with_steps(done)
    assert done.summary["training"]["defaults_step_ms"] > 0
    assert "trained" not in done.log


def test_function_that_loops_over_its_dataset_is_measured(worked: Forked) -> None:
    done = completed(worked, "consumers-function")
    assert (done.first["consumer"], done.consumer["kind"]) == ("a tf.function", "function")
    assert_measured(done)
    assert "trained" not in done.log, "the function has not run as the script calls it"


def test_inference_is_measured_where_nothing_trains(worked: Forked) -> None:
    done = completed(worked, "consumers-predict")
    assert (done.first["consumer"], done.operators) == ("Model.predict", MAPPED) and "predicted 9600" in done.log
    assert_measured_with_steps(done)


@pytest.mark.exhaustive
def test_given_step_time_is_emulated(worked: Forked) -> None:
    done = completed(worked, "emulated")
    assert done.consumer["kind"] == "emulated"
    assert done.summary["training"]["bound_step_ms"] >= 49  # the clock is read a little late at the beginning


@pytest.mark.exhaustive
def test_pauses_of_an_input_in_bursts_are_measured(worked: Forked) -> None:
    done = completed(worked, "consumers-bursts")
    assert done.first["profile"]["pause"]["elements"] == 40
    assert (done.summary["verdict"], done.first["diagnosis"]["cause"]) == ("input-bound", "buffer")


@pytest.mark.exhaustive
def test_job_that_leaves_data_out_gets_a_warning_with_the_amount(worked: Forked) -> None:
    done = completed(worked, "consumers-shard_for_four")
    (finding,) = (one for one in done.summary["warnings"] if one["code"] == "data-left-out")
    assert "3,200 of 6,400 elements reach none of 2 workers in an epoch" in finding["message"]
    found = done.first["as_written"]["coverage"]
    assert (found["never"], found["once"], found["told_by"]) == (3200, 3200, "number")


def test_input_alone_is_measured_where_datasets_cannot_be_switched(worked: Forked) -> None:
    done = completed(worked, "consumers-reduce")
    assert (done.first["role"], done.first["consumer"]) == ("training", "Dataset.reduce")
    training = done.summary["training"]
    assert "it was consumed by Dataset.reduce" in training["why"]
    assert training["defaults_step_ms"] is training["bound_step_ms"] is training["speedup"] is None
    assert done.summary["verdict"] == "undetermined"
    assert done.consumer["input_seconds"] and done.consumer["why"]
    assert done.summary["datasets"][0]["rates"]["defaults"]["examples_per_second"] > 0


def test_failure_while_measured_is_reported_as_the_users_error(worked: Forked) -> None:
    done = worked("raises_within_map-python")
    assert done.code == 3
    assert "ValueError: element 120 is broken" in done.traceback
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
    assert (done.folder / "own" / "prepared").read_text() == "prepared 40"
    why = done.consumer["why"]
    assert "did not seem to train, and what it wrote is kept. With --dataset numbers that loop" in why


@pytest.mark.parametrize(("name", "why", "hint"), [
    ("no_dataset", "did not train on a tf.data dataset.", "pass a tf.data.Dataset to fit"),
    EXHAUSTIVE("built_not_consumed", "it took only one element of dataset (built_not_consumed.py:7)", ""),
    EXHAUSTIVE("trains_in_subprocess", "did not train on a tf.data dataset",
               "Processes that the script starts are not analyzed"),
    EXHAUSTIVE("trains_in_subprocess-fork", "did not train on a tf.data dataset",
               "Processes that the script starts are not analyzed"),
])  # fmt: skip
def test_script_without_training_data_is_told_so(worked: Forked, name: str, why: str, hint: str) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (4, "no-dataset")
    assert why in done.failure and hint in done.failure, done.failure
    assert not name.startswith("trains_in_subprocess") or "200/200" in done.log, "the other process was left alone"


def test_script_does_not_run_without_the_requested_device(worked: Forked) -> None:
    done = worked("no_gpu")
    assert done.code == 5 and "'gpu' is not available" in done.failure and "trained" not in done.log


# -- two replicas: two logical processors in a MirroredStrategy; and a cluster


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
