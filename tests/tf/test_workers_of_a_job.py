"""How many workers a job has, and whether the script asks which of them it is."""

from __future__ import annotations

import json

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.tf.script import workers


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
        ("hvd.init(); ds = ds.batch(8)", False),
        ("frank, ranking = 1, 2", False),
    ],
)
def test_a_script_that_asks_which_worker_it_is(text, expected):
    assert workers.asks(["import tensorflow as tf", text]) is expected


def test_which_strategies_divide_data_over_workers():
    assert not workers.across(None)
    assert not workers.across(tf.distribute.get_strategy())
    assert not workers.across(tf.distribute.OneDeviceStrategy("CPU:0"))
    assert workers.across(object.__new__(tf.distribute.MultiWorkerMirroredStrategy))
