"""How many workers a job has, and whether the script asks which of them it is."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.handover import FUNCTION, OWN_PIPELINES, Handover
from pipetune.tf.script import consumption, handing_over, strategies, workers


def cluster(**kinds: list[str]) -> str:
    return json.dumps({"cluster": kinds, "task": {"type": "worker", "index": 0}})


@pytest.mark.parametrize(
    ("environment", "horovod", "expected"),
    [
        ({}, True, None),
        ({"TF_CONFIG": cluster(worker=["a:1", "b:1"])}, False, (2, "TF_CONFIG")),
        ({"TF_CONFIG": cluster(chief=["a:1"], worker=["b:1", "c:1"])}, False, (3, "TF_CONFIG")),
        ({"TF_CONFIG": cluster(worker=["a:1"])}, False, None),
        ({"TF_CONFIG": cluster(worker=["a:1", "b:1"], ps=["c:1"])}, False, None),
        ({"TF_CONFIG": "{}"}, False, None),
        ({"TF_CONFIG": "no json"}, False, None),
        ({"TF_CONFIG": "[1]"}, False, None),
        ({"TF_CONFIG": '{"cluster": null}'}, False, None),
        ({"HOROVOD_SIZE": "4"}, True, (4, "HOROVOD_SIZE")),
        ({"HOROVOD_SIZE": "4"}, False, None),
        ({"HOROVOD_SIZE": "1"}, True, None),
        ({"HOROVOD_SIZE": "many"}, True, None),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, False, None),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True, (2, "OMPI_COMM_WORLD_SIZE")),
        ({"PMI_RANK": "1", "PMI_SIZE": "3"}, True, (3, "PMI_SIZE")),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, True, None),
        ({"HOROVOD_SIZE": "2", "PMI_RANK": "1", "PMI_SIZE": "3"}, True, (2, "HOROVOD_SIZE")),
    ],
)
def test_what_the_environment_names(environment, horovod, expected):
    assert workers.told_by(environment, horovod=horovod) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("files = files[hvd.rank() :: hvd.size()]", True),
        ("ds = ds.shard(4, index)", True),
        ("index = json.loads(os.environ['TF_CONFIG'])['task']['index']", True),
        ("context.input_pipeline_id", True),
        ("strategy.cluster_resolver.task_id", True),
        ("index = int(os.environ['OMPI_COMM_WORLD_RANK'])", True),
        ("MPI.COMM_WORLD.Get_rank()", True),
        ("hvd.init(); ds = ds.batch(8)", False),
        ("frank, ranking = 1, 2", False),
    ],
)
def test_a_script_that_asks_which_worker_it_is(text, expected):
    assert workers.asks(["import tensorflow as tf", text]) is expected


def test_which_of_the_workers_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    by_mpi = {"PMI_RANK": "2", "PMI_SIZE": "3"}
    assert workers.own_index({}) is None and workers.own_index(by_mpi) is None, "nothing of Horovod is imported"
    assert workers.own_index({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}) == 1
    task = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
    assert workers.own_index({"TF_CONFIG": json.dumps(task), **by_mpi}) == 2
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    assert workers.own_index(by_mpi) == 2
    assert workers.own_index({"TF_CONFIG": json.dumps(task), "HOROVOD_RANK": "0", "HOROVOD_SIZE": "3"}) == 2


def test_which_strategies_divide_data_over_workers():
    assert not workers.across(None)
    assert not workers.across(tf.distribute.get_strategy())
    assert not workers.across(tf.distribute.OneDeviceStrategy("CPU:0"))
    assert workers.across(object.__new__(tf.distribute.MultiWorkerMirroredStrategy))


def test_a_rank_of_horovod_has_a_pipeline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tf.data.Dataset.range(9).batch(4)
    use = consumption.Consumption(dataset=dataset, variable="train", role="training", how="Model.fit")
    monkeypatch.setenv("HOROVOD_SIZE", "4")
    assert workers.handover(use) is None, "nothing of Horovod is imported"
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    assert workers.handover(use) == Handover("Horovod", 4, OWN_PIPELINES, 4, batch=4)
    monkeypatch.delenv("HOROVOD_SIZE")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert workers.handover(use) == Handover("Horovod", 2, OWN_PIPELINES, 2, batch=4)
    use.role = "validation"
    assert workers.handover(use) is None


def test_a_strategy_for_accelerators_that_are_not_here_is_told_by_its_name() -> None:
    class TPUStrategy:
        num_replicas_in_sync = 8
        cluster_resolver = None

    dataset = tf.data.Dataset.range(64).batch(32)
    handed = handing_over.HandedOver(TPUStrategy(), dataset, None, FUNCTION)
    assert handed.facts() == Handover("TPUStrategy", 8, FUNCTION, batch=32)


def test_processes_in_step_cannot_be_given_other_data_by_one_of_them() -> None:
    class Strategy:
        num_replicas_in_sync = 4
        cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": ["a:1", "b:1"]})
        )

    handed = handing_over.HandedOver(Strategy(), tf.data.Dataset.range(64).batch(32), None, FUNCTION)
    assert handed.facts().replicas_per_worker == handed.facts().elements_per_step == 2
    assert strategies.why_not_switched(handed).startswith("2 processes train in step under Strategy")


def test_ranks_of_horovod_cannot_be_given_other_data_by_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_SIZE", "4")
    assert strategies.why_not_switched(None) == "", "nothing of Horovod is imported"
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    assert strategies.why_not_switched(None).startswith("4 processes train in step under Horovod")
    monkeypatch.setenv("HOROVOD_SIZE", "1")
    assert strategies.why_not_switched(None) == ""


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({}, 1),
        ({"worker": ["a:1"]}, 1),
        ({"chief": ["a:1"], "worker": ["b:1"]}, 2),
        ({"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1", "d:1"]}, 2),
    ],
)
def test_workers_of_a_cluster(cluster: dict[str, list[str]], expected: int) -> None:
    class Strategy:
        cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster))

    assert handing_over.workers_of(Strategy()) == expected
