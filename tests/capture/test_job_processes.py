"""How many workers a job has, which of them this process is, and what needs a process of its own."""

from __future__ import annotations

import json
import sys
import types
from types import ModuleType
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import consumption, distributed_input, job_processes
from pipetune.core.distribution import FUNCTION, PIPELINE_PER_PROCESS, InputDistribution
from tests.starting import output_of


def strategy(spec: dict[str, list[str]], replicas: int = 1) -> Any:
    """What pipetune reads of a strategy in such a cluster."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(spec))
    return types.SimpleNamespace(num_replicas_in_sync=replicas, cluster_resolver=resolver)


def cluster(**kinds: list[str]) -> str:
    return json.dumps({"cluster": kinds, "task": {"type": "worker", "index": 0}})


@pytest.mark.parametrize(("environment", "horovod", "expected"), [
    ({}, True, None),
    ({"TF_CONFIG": cluster(chief=["a:1"], worker=["b:1", "c:1"])}, False, (3, "TF_CONFIG")),
    ({"TF_CONFIG": cluster(worker=["a:1"])}, False, None),
    ({"TF_CONFIG": cluster(worker=["a:1", "b:1"], ps=["c:1"])}, False, None),
    ({"TF_CONFIG": "{}"}, False, None),
    ({"TF_CONFIG": "no json"}, False, None),
    ({"TF_CONFIG": "[1]"}, False, None),
    ({"HOROVOD_SIZE": "1"}, True, None),
    ({"HOROVOD_SIZE": "many"}, True, None),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, True, (2, "OMPI_COMM_WORLD_SIZE")),
    ({"PMI_RANK": "1", "PMI_SIZE": "3"}, True, (3, "PMI_SIZE")),
    ({"PMI_RANK": "0", "PMI_SIZE": "1"}, True, None),
    ({"HOROVOD_SIZE": "2", "PMI_RANK": "1", "PMI_SIZE": "3"}, True, (2, "HOROVOD_SIZE")),
])  # fmt: skip
def test_number_of_workers_is_read_from_the_environment(environment, horovod, expected):
    assert job_processes.workers_in_environment(environment, horovod=horovod) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("files = files[hvd.rank() :: hvd.size()]", True),
    ("ds = ds.shard(4, index)", True),
    ("index = json.loads(os.environ['TF_CONFIG'])['task']['index']", True),
    ("context.input_pipeline_id", True),
    ("strategy.cluster_resolver.task_id", True),
    ("index = int(os.environ['OMPI_COMM_WORLD_RANK'])", True),
    ("MPI.COMM_WORLD.Get_rank()", True),
    ("hvd.init(); ds = ds.batch(8)", False),
    ("frank, ranking = 1, 2", False),
])  # fmt: skip
def test_use_of_the_worker_identity_in_a_script_is_detected(text, expected):
    assert job_processes.uses_worker_identity(["import tensorflow as tf", text]) is expected


def test_own_index_is_read_from_tf_config_or_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    by_mpi = {"PMI_RANK": "2", "PMI_SIZE": "3"}
    assert job_processes.own_index({}) is job_processes.own_index(by_mpi) is None, "nothing of Horovod is imported"
    assert job_processes.own_index({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}) == 1
    task = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
    assert job_processes.own_index({"TF_CONFIG": json.dumps(task), **by_mpi}) == 2
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    assert job_processes.own_index(by_mpi) == 2
    assert job_processes.own_index({"TF_CONFIG": json.dumps(task), "HOROVOD_RANK": "0", "HOROVOD_SIZE": "3"}) == 2


def test_only_multi_worker_strategies_are_multi_worker():
    assert not job_processes.is_multi_worker(None)
    assert not job_processes.is_multi_worker(tf.distribute.get_strategy())
    assert not job_processes.is_multi_worker(tf.distribute.OneDeviceStrategy("CPU:0"))
    assert job_processes.is_multi_worker(object.__new__(tf.distribute.MultiWorkerMirroredStrategy))


def test_handover_of_a_horovod_rank_is_one_pipeline_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tf.data.Dataset.range(9).batch(4)
    use = consumption.Consumption(dataset=dataset, variable="train", role="training", consumer_call="Model.fit")
    monkeypatch.setenv("HOROVOD_SIZE", "4")
    assert job_processes.handover_of(use) is None, "nothing of Horovod is imported"
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    assert job_processes.handover_of(use) == InputDistribution("Horovod", 4, PIPELINE_PER_PROCESS, 4, batch=4)
    use.role = "validation"
    assert job_processes.handover_of(use) is None


def test_lockstep_processes_of_a_strategy_cannot_switch_datasets() -> None:
    taken = strategy({"worker": ["a:1", "b:1"]}, replicas=4)
    handed = distributed_input.DistributedInput(taken, tf.data.Dataset.range(64).batch(32), None, FUNCTION)
    assert handed.handover.replicas_per_worker == handed.handover.elements_per_step == 2
    assert job_processes.switching_obstacle(handed).startswith("2 processes train in lockstep under SimpleNamespace")


@pytest.mark.parametrize(("cluster", "expected"), [
    ({}, 1),
    ({"chief": ["a:1"], "worker": ["b:1"]}, 2),
    ({"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1", "d:1"]}, 2),
])  # fmt: skip
def test_workers_of_a_cluster_spec_are_counted(cluster: dict[str, list[str]], expected: int) -> None:
    assert distributed_input.workers_of(strategy(cluster)) == expected


@pytest.mark.slow
@pytest.mark.mission("B9.under", "C3.own", "C5.coordinator", "C5.fit")
@pytest.mark.parametrize(("module", "least", "variables"), [
    ("coordinated", 40, {}),
    ("two_replicas", 30, {"TF_USE_LEGACY_KERAS": "1"}),
])  # fmt: skip
def test_all_is_as_expected(module: str, least: int, variables: dict[str, str]) -> None:
    found = json.loads(output_of(f"tests.capture.{module}", **variables))
    assert len(found) > least
    assert {what: seen for what, seen, _ in found} == {what: expected for what, _, expected in found}
