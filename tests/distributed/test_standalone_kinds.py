"""Modules for parameter servers, Horovod, the tf.data service and TPUs, run as in their environments."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipetune.core.distribution import PIPELINE_PER_PROCESS, InputDistribution
from pipetune.core.session import DistributedResult

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("counted_alone")]

from pipetune.distributed import writing
from pipetune.pipelines import live
from pipetune.stages.distributed_form import write_distributed_form
from tests.distributed.numbered_files import helper_module, records
from tests.distributed.written_modules import emit, load, run
from tests.stages.studies import study_of

FILES, RECORDS = 6, 4
ROOT = Path(__file__).resolve().parents[2]

HELPERS = """
import tensorflow as tf

def parse(record):
    return tf.strings.to_number(record, tf.int64)

def pair(number):
    return tf.cast([number], tf.float32), tf.cast([number], tf.float32)

def build(pattern, parse=parse):
    dataset = tf.data.Dataset.list_files(pattern)
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2)
    return dataset.map(parse).map(pair).shuffle(8)

NUMBERS = tf.range(24, dtype=tf.int64)
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.strings.as_string(NUMBERS), NUMBERS), -1)

def looked_up(record):
    return TABLE.lookup(record)
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Any]:
    """The numbers 0 to 23 from six files, shuffled, as pairs of floats."""
    with helper_module("kinds_helpers", HELPERS, tmp_path) as helpers:
        yield helpers.build(records(tmp_path, files=FILES, each=RECORDS))


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch, _ in batches for number in batch.numpy()[:, 0]]


def assert_each_byte_is_read_once(result: DistributedResult, folder: Path, *, by: int = 1) -> None:
    """By each of so many workers, of the files of `dataset`."""
    stored = sum(path.stat().st_size for path in folder.glob("part-*.tfrecord"))
    found = result.coverage[0]
    assert (found.used_bytes, found.bytes_read_over_used) == (by * stored, 1.0)


def everything(times: int = 1) -> Counter[int]:
    return Counter({number: times for number in range(FILES * RECORDS)})


# parameter-server


@pytest.mark.mission("B3.waste", "C2.endless", "C4.pure")
def test_parameter_server_workers_each_get_all_elements_in_different_orders(tmp_path: Path, dataset: Any) -> None:
    result = emit(dataset.batch(4), "parameter-server", tmp_path)
    (check,) = result.checks
    assert (check.each, check.elements, check.missing, check.duplicated) == ("everything", 24, 0, 0)
    assert_each_byte_is_read_once(result, tmp_path, by=2)
    assert "each delivered all 24 elements, every one once per epoch" in " ".join(result.module.split())
    assert "STEPS_PER_EPOCH = 6 " in result.module
    module, context = load(result), tf.distribute.InputContext(1, 0, 1)
    tf.random.set_seed(1)  # as in scripts; must not give the workers equal orders
    made = [module.dataset_fn(context) for _ in range(2)]
    assert live.read(made[0]).pipeline.identities() == live.read(made[1]).pipeline.identities()
    assert made[0].element_spec == dataset.batch(4).element_spec
    orders = [numbers(one.take(12)) for one in made]
    assert Counter(orders[0]) == Counter(orders[1]) == everything(times=2)
    tf.random.set_seed(1)
    assert numbers(module.dataset_fn(context).take(12)) != orders[0]


CLUSTER = """
import faulthandler, json, os
faulthandler.dump_traceback_later(200, exit=True)
import sys
import tensorflow as tf
from pipetune.core.cluster import free_addresses

first, second, third = free_addresses(3)
cluster = tf.train.ClusterSpec({"worker": [first, second], "ps": [third]})
threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)  # with as many as two cores give, they wait for ever
tasks = [("worker", 0), ("worker", 1), ("ps", 0)]
servers = [tf.distribute.Server(cluster, name, index, config=threads) for name, index in tasks]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
import distributed
try:
    distributed.per_worker_dataset(coordinator)
    refused = ""
except RuntimeError as error:  # the table is on the coordinator alone
    refused = str(error)
    del sys.modules["distributed"], sys.modules["kinds_helpers"]
    with strategy.scope():
        import distributed
iterator = iter(distributed.per_worker_dataset(coordinator))

@tf.function
def step(iterator):
    return strategy.run(lambda batch: batch[0][:, 0], args=(next(iterator),))

results = [coordinator.schedule(step, args=(iterator,)) for _ in range(20)]
coordinator.join()
seen = [int(number) for result in results for number in result.fetch()]

import tf_keras
with strategy.scope():
    model = tf_keras.Sequential([tf_keras.Input([1]), tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=3)
history = model.fit(
    distributed.dataset_creator(), epochs=2, steps_per_epoch=distributed.STEPS_PER_EPOCH, verbose=0
)
print(json.dumps({"seen": seen, "losses": len(history.history["loss"]), "refused": refused}), flush=True)
os._exit(0)
"""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mission("C2.creator", "C3.per-worker")
def test_parameter_server_cluster_trains_on_the_module(tmp_path: Path, dataset: Any) -> None:
    """The lookup table of its map is on every worker if the module is imported inside the scope."""
    helpers = sys.modules["kinds_helpers"]
    built = helpers.build(str(tmp_path / "part-*.tfrecord"), helpers.looked_up)
    assert emit(built.batch(4), "parameter-server", tmp_path).module
    said = json.loads(run(CLUSTER, tmp_path, path=ROOT).splitlines()[-1])
    seen = Counter(said["seen"])  # 20 steps of 4 rows by two workers, each with all 24 rows in 6 steps
    assert seen.total() == 80 and set(seen) == set(range(24))
    assert min(seen.values()) >= 2 and max(seen.values()) <= 5
    assert said["losses"] == 2
    assert "inside strategy.scope()" in said["refused"]


# horovod


@pytest.mark.mission("E1.steps", "E1.sharded")
def test_horovod_ranks_share_all_elements_and_take_equally_many_steps(
    tmp_path: Path, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = emit(dataset.batch(5).prefetch(1), "horovod", tmp_path)
    assert [(row.workers, row.missing, row.duplicated) for row in result.checks] == [
        (2, 0, 0), (3, 0, 0), (4, 0, 0)
    ]  # fmt: skip
    assert result.checks[2].batches_per_worker == (2, 2, 1, 1)
    module = load(result)
    assert module.STEPS_PER_EPOCH == 5  # 24 rows in batches of 5
    parts, steps = [], []
    for rank in range(4):
        monkeypatch.setenv("HOROVOD_RANK", str(rank))
        monkeypatch.setenv("HOROVOD_SIZE", "4")
        parts += numbers(module.dataset_fn(None))
        steps.append(sum(1 for _ in module.dataset_fn()))
        assert sum(1 for _ in module.dataset_fn(9)) == 2
    assert Counter(parts) == everything()
    assert steps == [1, 1, 1, 1]  # 5 // 4, also on the ranks that have two batches
    with pytest.raises(ValueError, match="3 steps cannot be divided among 4 ranks"):
        module.dataset_fn(3)
    monkeypatch.setenv("HOROVOD_SIZE", "7")
    with pytest.raises(ValueError, match="6 files cannot be divided among 7 ranks"):
        module.dataset_fn(None)
    monkeypatch.delenv("HOROVOD_RANK")
    with pytest.raises(RuntimeError, match="horovodrun"):
        module.dataset_fn(None)
    for names, rank in ((("PMI_RANK", "PMI_SIZE"), 0), (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), 1)):
        for name, value in zip(names, (rank, 2), strict=True):  # a bare mpirun; Open MPI's come before PMI's
            monkeypatch.setenv(name, str(value))
        assert module.rank_and_size() == (rank, 2)


# service


def test_service_module_is_checked_by_running_a_service(tmp_path: Path, dataset: Any) -> None:
    result = emit(dataset.batch(5), "service", tmp_path)
    (check,) = result.checks
    assert (check.workers, check.elements, check.missing, check.duplicated) == (2, 24, 0, 0)
    assert_each_byte_is_read_once(result, tmp_path)
    assert "Checked by running a service with 2 workers" in result.module
    assert "ShardingPolicy.DYNAMIC" in result.module and "one takes " in result.module
    release = ".".join(tf.__version__.split(".")[:2])
    assert f"image: tensorflow/tensorflow:{release}.0\n" in (tmp_path / "docker-compose.yml").read_text()


def test_service_without_sharding_is_used_where_rows_are_taken_by_position(tmp_path: Path) -> None:
    whole = tf.data.Dataset.range(40).shuffle(40, seed=1, reshuffle_each_iteration=False).skip(10).batch(4)
    assert "cannot divide the data" in emit(whole, "service", tmp_path).notes[0]
    result = emit(whole.repeat(), "service", tmp_path)
    assert "ShardingPolicy.OFF" in result.module, result.notes
    (check,) = result.checks
    assert (check.each, check.elements, check.missing, check.duplicated) == ("everything", 30, 0, 0)


# tpu


def test_tpu_module_has_static_shapes(tmp_path: Path, dataset: Any) -> None:
    result = emit(dataset.batch(4), "tpu", tmp_path)
    module = load(result)
    made = module.dataset_fn(tf.distribute.InputContext(2, 0, 4))
    assert [spec.shape.as_list() for spec in made.element_spec] == [[1, 1], [1, 1]]
    halved = module.in_bfloat16(made)
    assert [spec.dtype for spec in halved.element_spec] == [tf.bfloat16, tf.float32], "asked for, and not the labels"
    pairs = [(float(features[0, 0]), float(labels[0, 0])) for features, labels in halved]
    assert pairs and all(features == labels for features, labels in pairs), "small whole numbers are kept"
    assert any("drop_remainder is set" in note for note in result.notes)
    assert all(row.missing == row.duplicated == 0 for row in result.checks)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda rows: rows.map(lambda x: tf.range(x)).padded_batch(4), "padded_batch .*gives the shape"),
        (lambda rows: rows.map(lambda x: tf.zeros(tf.stack([x, 2]))), r"map .*gives the shape \(None, 2\)"),
        (lambda rows: rows.map(tf.strings.as_string).batch(2), "map .*gives texts"),
        (lambda rows: rows.map(tf.range).ragged_batch(2), "gives a RaggedTensor"),
        (lambda rows: rows.map(lambda x: tf.py_function(abs, [x], tf.int64)).batch(2), "runs Python code"),
    ],
)
@pytest.mark.mission("B10.generator")
def test_elements_unsupported_by_tpus_are_rejected_with_the_operator(tmp_path: Path, make: Any, reason: str) -> None:
    import re

    result = emit(make(tf.data.Dataset.range(9)), "tpu", tmp_path)
    assert not result.module
    assert re.search(reason, result.notes[0]), result.notes


def test_all_elements_unsupported_by_tpus_are_reported_with_lines(tmp_path: Path) -> None:
    from pipetune.pipelines.call_sites import Recorder

    with Recorder():
        rows = tf.data.Dataset.range(9).map(lambda x: tf.py_function(abs, [x], tf.int64))
        rows = rows.map(lambda x: (tf.strings.as_string(x), tf.range(3)[:1] + tf.cast(x, tf.int32), tf.zeros([x])))
        result = emit(rows.batch(2), "tpu", tmp_path)
    first = result.notes[0]
    here = Path(__file__).name
    text = Path(__file__).read_text().splitlines()
    lines = [number for number, line in enumerate(text, 1) if line.strip().startswith("rows = ")]
    assert first.count(here) == 2 and f"{here}:{lines[-2]} runs Python code" in first
    assert f"{here}:{lines[-1]} gives texts and the shape" in first


# what the stage does with them


def test_module_is_written_into_a_results_folder_alone_and_errors_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tf.data.Dataset.range(24).batch(8))
    study.journal.update_dataset(handover=InputDistribution("Horovod", 2, PIPELINE_PER_PROCESS, 2))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "distributed.py").write_text("the user's")
    write_distributed_form(study, None)
    assert (tmp_path / "distributed.py").read_text() == "the user's" and study.journal.session.distributed is None
    monkeypatch.setattr(writing, "distribute", Mock(side_effect=ValueError("Cell is empty")))
    study.settings = replace(study.settings, out=str(tmp_path / "out"))
    write_distributed_form(study, None)
    study.runner.close()
    assert "No distributed form is written (ValueError: Cell is empty)" in study.journal.session.notes[-1]
