"""Scripts that train on two replicas, in real workers: two logical processors in a MirroredStrategy."""

from __future__ import annotations

import pytest

from tests.e2e.forked import Forked

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

ROWS = ["range", "map"]

WORKED: dict[str, tuple[str, ...]] = {
    "mirrored-loop": ("loop",),
    "mirrored-fit": ("fit",),
    "mirrored-dataset_fn": ("dataset_fn",),
    "mirrored-function": ("function",),
    "parameter_server": (),
    "parameter_server-fit": ("fit",),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "how", "handed", "kind"),
    [
        ("mirrored-loop", "a Python loop", "experimental_distribute_dataset", "loop"),
        ("mirrored-fit", "Model.fit", "Model.fit", "keras-fit"),
    ],
)
@pytest.mark.mission("B1.reads", "B1.prefetch", "B5.for", "B9.under")
def test_dataset_distributed_by_a_strategy_is_measured_in_it(
    worked: Forked, name: str, how: str, handed: str, kind: str
) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.operators == [*ROWS, "map", "batch"], "the script's own, without what the strategy adds"
    assert (done.first["consumer"], done.consumer["kind"]) == (how, kind)
    for figure in ("real_seconds", "bound_seconds", "input_seconds"):
        assert done.consumer[figure], (figure, done.consumer["why"])
    assert done.first["handover"] == {
        "strategy": "MirroredStrategy",
        "replicas": 2,
        "how": handed,
        "workers": 1,
        "batch": 32,
        "shares": [16, 16],
        "by_own_size": True,
        "prefetched": 2,
        "policy": "",
    }
    assert done.first["profile"]["examples_per_element"] == 32
    assert "the end" not in done.log


def test_dataset_fn_is_read_as_the_pipeline(worked: Forked) -> None:
    done = worked("mirrored-dataset_fn")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.operators == [*ROWS, "shard", "map", "batch"]
    assert done.consumer["real_seconds"] and done.consumer["bound_seconds"], done.consumer["why"]
    found = done.first["handover"]
    assert (found["how"], found["batch"], found["shares"]) == ("distribute_datasets_from_function", 16, [])
    assert done.first["profile"]["examples_per_element"] == 16
    lines = [node["location"]["line"] for node in done.first["pipeline"]["nodes"]]
    assert len(set(lines[2:])) == 3, "each call in the function has its own line"


@pytest.mark.exhaustive
@pytest.mark.mission("B5.function")
def test_input_alone_is_measured_inside_a_tf_function(worked: Forked) -> None:
    done = worked("mirrored-function")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.first["handover"]["shares"] == [16, 16]
    assert "inside a tf.function" in done.summary["training"]["why"]
    assert done.summary["training"]["defaults_step_ms"] is None
    assert done.summary["datasets"][0]["rates"]["defaults"]["examples_per_second"] > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "how"), [("parameter_server", "ClusterCoordinator.schedule"), ("parameter_server-fit", "Model.fit")]
)
@pytest.mark.mission("C1.recognised")
def test_coordinator_dataset_is_measured_in_its_scheduled_steps(worked: Forked, name: str, how: str) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.operators == ["range", "shuffle", "map", "repeat", "batch"]
    found = done.first["handover"]
    assert (found["strategy"], found["how"], found["workers"]) == (
        "ParameterServerStrategy",
        "create_per_worker_dataset",
        2,
    )
    assert (done.first["consumer"], done.consumer["kind"]) == (how, "coordinator")
    for figure in ("real_seconds", "bound_seconds", "input_seconds"):
        assert done.consumer[figure], (figure, done.consumer["why"])
