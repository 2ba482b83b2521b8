"""Each kind of standalone module as text: what it refuses, what it changes, and its notes."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import yaml

from pipetune.core.distribution import ElementBytes, FunctionSource, SourceText, StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline, SourceLocation
from pipetune.core.results import ServiceNeed
from pipetune.core.sizing import Origin, QuantityRange
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known, Standalone
from tests.source.test_standalone import PARSE, PHOTOS_READ, ROWS, files, parts, photos, statements

ARRAYS = SourceText(1_000, expression="tf.data.Dataset.from_tensor_slices(source)", takes_source=True)


def emit(made: StandaloneParts, kind: str, **known: object) -> Standalone:
    """As in `distribution`: what the kind changes and refuses, then the text."""
    chosen = kinds.find(kind)
    made = replace(made, pipeline=chosen.prepare(made.pipeline))
    chosen.refuse(made.pipeline)
    return chosen.emit(made, Known("train.py", **known))  # type: ignore[arg-type]


def at_line(made: StandaloneParts, name: str, line: int) -> StandaloneParts:
    location = SourceLocation("train.py", line, 0, line, 9, "map")
    nodes = (replace(node, location=location) if node.id == name else node for node in made.pipeline)
    return replace(made, pipeline=Pipeline(tuple(nodes), options=made.pipeline.options))


def function(text: str, name: str) -> ast.FunctionDef:
    (found,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return found


def dataset_calls(text: str, name: str = "dataset_fn") -> list[str]:
    return statements(ast.unparse(function(text, name)))


@pytest.mark.parametrize("kind", kinds.names())
def test_every_kind_writes_a_documented_module(kind: str) -> None:
    made = emit(photos(14), kind)
    assert "auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF" in made.text
    docstring = ast.get_docstring(ast.parse(made.text)) or ""
    assert docstring.startswith("The tuned input pipeline of train.py")
    assert "Not checked." in docstring
    assert all(len(line) <= 120 for line in made.text.splitlines())
    told = " ".join(docstring.split())
    assert all(note in told for note in made.notes)
    assert made.indexed and "indexed_dataset_fn gives" in told
    for name in ("dataset_fn", "indexed_dataset_fn", "in_order"):
        assert function(made.text, name)


@pytest.mark.parametrize("kind", ["parameter-server", "service", "tpu"])
def test_python_code_is_refused_where_another_process_runs_the_pipeline(kind: str) -> None:
    made = at_line(parts(files(9), "map python | batch 4"), "n1", 12)
    with pytest.raises(CannotExpress, match=r"map at train\.py:12 runs Python code"):
        emit(made, kind)


@pytest.mark.parametrize("kind", ["mirrored", "multiworker", "horovod"])
def test_python_code_is_kept_where_the_script_runs_the_pipeline(kind: str) -> None:
    assert ".map(parse)" in dataset_calls(emit(parts(files(9), "map python"), kind).text)


# parameter-server


@pytest.mark.mission("C2.endless")
def test_parameter_server_workers_read_all_data_endlessly_in_their_own_order() -> None:
    steps = "shuffle 14 seed=87654321,7 | interleave 4 read | batch 32 | prefetch 2"
    made = emit(parts(files(14), steps), "parameter-server")
    assert "".join(dataset_calls(made.text)) == (
        ".from_tensor_slices(files).shuffle(14, seed=worker_seed())"
        ".interleave(tf.data.TFRecordDataset, cycle_length=4).batch(batch_size).repeat().prefetch(2 * replicas)"
    )
    assert ".shard(" not in made.text and "SHARD_BY" not in made.text
    notes = " ".join(made.notes)
    assert "repeat is added" in notes and "seeds of shuffles are replaced" in notes
    assert made.batch_size == 32


@pytest.mark.parametrize(
    ("steps", "added"),
    [
        ("interleave 4 read | map parse | batch 4", True),
        ("interleave 4 read | take 9", False),
        ("interleave 4 read | shuffle 9", False),
        ("interleave 4 read | window 3", False),
    ],
)
def test_files_are_shuffled_only_where_order_does_not_matter(steps: str, added: bool) -> None:
    made = emit(parts(files(9), steps), "parameter-server")
    assert (dataset_calls(made.text)[1] == ".shuffle(9, seed=worker_seed())") is added


def test_rows_in_memory_are_not_shuffled() -> None:
    made = emit(parts(ROWS, "batch 4"), "parameter-server")
    assert "shuffle" not in "".join(dataset_calls(made.text)) and "def worker_seed" not in made.text
    assert any("same rows in the same order" in note for note in made.notes)


def test_parameter_servers_refuse_arrays_of_the_script_and_file_caches() -> None:
    with pytest.raises(CannotExpress, match="array in the memory of the script"):
        emit(parts(ARRAYS, "batch 4"), "parameter-server")
    with pytest.raises(CannotExpress, match="cache writes a file"):
        emit(parts(files(9), "cache /tmp/c"), "parameter-server")
    assert ".cache()" in dataset_calls(emit(parts(files(9), "cache filename="), "parameter-server").text)


@pytest.mark.mission("C3.per-worker")
def test_tables_must_be_created_on_every_worker() -> None:
    looks_up = {"looks_up": replace(PARSE, operations=("Identity", "LookupTableFindV2"))}
    with_table = at_line(parts(files(9), "map looks_up | batch 4", functions=looks_up), "n1", 12)
    made = emit(with_table, "parameter-server")
    assert "with strategy.scope():  # which makes the tables" in made.text
    for name in ("per_worker_dataset", "dataset_creator"):
        assert ast.unparse(function(made.text, name).body[1]) == "check_scope()"
    (note,) = (note for note in made.notes if "tables" in note)
    assert note.startswith("map at train.py:12 looks into tables") and "not before" in note
    for text in (
        emit(parts(files(9), "map parse"), "parameter-server").text,
        emit(with_table, "multiworker").text,  # the table is in the worker's own process
    ):
        assert "scope" not in text.replace("strategy.scope", "") and "check_scope" not in text


@pytest.mark.mission("C2.endless")
def test_parameter_server_module_contains_counted_steps_per_epoch() -> None:
    assert "STEPS_PER_EPOCH = 9 " in emit(photos(14), "parameter-server", epoch_batches=9).text
    made = emit(photos(14), "parameter-server")
    assert "STEPS_PER_EPOCH" not in made.text and "steps_per_epoch=..." in made.text
    assert dataset_calls(made.text).count(".repeat()") == 1 and "repeat is added" not in " ".join(made.notes)


# horovod


@pytest.mark.mission("E1.steps")
def test_horovod_ranks_keep_the_batch_size_and_share_the_steps() -> None:
    made = emit(photos(14), "horovod", epoch_batches=40)
    assert "".join(dataset_calls(made.text)) == (
        f".from_tensor_slices(files).shard(size, rank).shuffle(14){PHOTOS_READ}"
        ".batch(BATCH_SIZE, drop_remainder=True).repeat().prefetch(2)"
    )
    assert "BATCH_SIZE = 32 " in made.text and "get_per_replica_batch_size" not in made.text
    assert "dataset = dataset.take(steps // size)\n" in made.text
    assert made.text.index("take(steps // size)") < made.text.index(".prefetch(2)")
    assert "def dataset_fn(steps=STEPS_PER_EPOCH, *, size=None, rank=None):" in made.text
    assert (made.global_batch_size, made.batch_size) == (None, 32)


def test_horovod_rank_repeats_a_finite_dataset_and_needs_steps_if_not_counted() -> None:
    text = emit(parts(ARRAYS, "batch 4"), "horovod").text
    assert "dataset = dataset.repeat().take(steps // size)\n" in text
    assert "def dataset_fn(steps, *, source, size=None, rank=None):" in text
    assert "STEPS_PER_EPOCH" not in text


def test_batch_counts_are_divided_among_ranks_without_overlap_of_take_and_skip() -> None:
    taken = emit(parts(ROWS, "batch 4 | take 5"), "horovod")
    assert ".take(5 // size)" in dataset_calls(taken.text)
    skipped = emit(parts(ROWS, "batch 4 | skip 5"), "horovod")
    assert ".skip(-(-5 // size))" in dataset_calls(skipped.text)
    assert any("take are divided among the ranks" in note for note in taken.notes)


def test_function_that_uses_an_argument_name_of_the_module_is_refused() -> None:
    made = parts(ROWS, "map parse")
    with pytest.raises(CannotExpress, match="name rank"):
        emit(replace(made, functions={"n1": FunctionSource("lambda x: x + rank")}), "horovod")


# service


def test_service_dispatches_files_dynamically_and_repeats_in_the_training_process() -> None:
    made = emit(photos(14), "service")
    assert made.splits
    written = f".from_tensor_slices(files){PHOTOS_READ}.batch(BATCH_SIZE, drop_remainder=True)"
    assert "".join(dataset_calls(made.text, "pipeline")) == written
    assert dataset_calls(made.text)[-2:] == [".repeat()", ".prefetch(2)"]
    assert "ShardingPolicy.DYNAMIC" in made.text
    assert "files = random.sample(files, len(files))" in made.text
    docstring = ast.get_docstring(ast.parse(made.text)) or ""
    assert "at most once" in made.guarantee and "once in an epoch" in made.guarantee
    assert made.guarantee in " ".join(docstring.split())


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("skip 5 | batch 4", "only what stands behind skip"),
        ("batch 4 | take 5", "by their position"),
        ("snapshot | batch 4", "snapshot"),
        ("repeat 2 | interleave read -1 | batch 4", "go on after its last repetition"),
    ],
)
def test_pipeline_that_the_service_cannot_split_is_refused(steps: str, reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        emit(parts(ROWS, steps), "service")


def test_endless_shuffled_pipeline_is_read_whole_by_each_service_worker() -> None:
    made = emit(parts(ROWS, "shuffle 9 seed=None | skip 5 | batch 4 | repeat -1"), "service")
    assert "ShardingPolicy.OFF" in made.text and not made.splits and not made.indexed
    assert any("every worker of the service gives all" in note for note in made.notes)
    assert "once from each worker" in (ast.get_docstring(ast.parse(made.text)) or "")


def test_caches_are_left_out_for_a_service() -> None:
    made = emit(parts(files(9), "cache filename= | map augment"), "service")
    assert "cache" not in "".join(dataset_calls(made.text, "pipeline"))


@pytest.mark.parametrize(
    ("measured", "ahead", "compression"),
    [
        (None, "None", "'AUTO'"),
        (ElementBytes(10**6, 300_000), "16", "'AUTO'"),
        (ElementBytes(10**6, 900_000), "16", "None"),
        (ElementBytes(100 * 10**6, None), "2", "'AUTO'"),
    ],
)
def test_batch_size_in_bytes_decides_compression_and_outstanding_requests(
    measured: ElementBytes | None, ahead: str, compression: str
) -> None:
    tree = ast.parse(emit(photos(14), "service", batch_bytes=measured).text)
    constants = {
        ast.unparse(node.targets[0]): ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Assign)
    }
    assert (constants["MAX_OUTSTANDING_REQUESTS"], constants["COMPRESSION"]) == (ahead, compression)


def service_files(made: StandaloneParts, **known: object) -> tuple[dict[str, str], Any, list[Any]]:
    """The files beside the module, and what those of Docker Compose and of Kubernetes hold."""
    companions = dict(emit(made, "service", **known).companions)
    documents = yaml.safe_load_all(companions["kubernetes.yaml"])
    return companions, yaml.safe_load(companions["docker-compose.yml"]), list(documents)


@pytest.mark.parametrize("folder", ["/data", '/da"ta: {x}', ""])
def test_companion_files_start_what_serve_py_offers(folder: str) -> None:
    source = SourceText(9, pattern=f"{folder}/train-*.tfrecord" if folder else "gs://b/train-*")
    companions, compose, documents = service_files(parts(source, "map parse"))
    assert set(companions) == {"serve.py", "docker-compose.yml", "kubernetes.yaml"}
    ast.parse(companions["serve.py"])
    worker = compose["services"]["worker"]
    assert worker["command"].split()[1:5] == ["/serve.py", "worker", "--dispatcher", "dispatcher:5050"]
    assert "check --port 5051" in worker["healthcheck"]["test"]
    assert (f"{folder}:{folder}:ro" in worker["volumes"]) is bool(folder)
    assert [one["kind"] for one in documents] == ["Service", "Deployment", "Deployment"]
    pod = documents[2]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][2:5] == ["worker", "--dispatcher", "data-dispatcher:5050"]
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert mounts == (["/service", folder] if folder else ["/service"])
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {one["name"] for one in pod["volumes"]}


@pytest.mark.parametrize(
    ("version", "tag"), [("2.18.1", "2.18.0"), ("2.21.0", "2.21.0"), ("2.22.0.dev20260101", "nightly"), ("", "latest")]
)
def test_servers_have_the_tensorflow_that_trains(version: str, tag: str) -> None:
    _, compose, documents = service_files(photos(14), tensorflow=version)
    pods = [document["spec"]["template"]["spec"] for document in documents[1:]]
    images = [pod["containers"][0]["image"] for pod in pods] + [one["image"] for one in compose["services"].values()]
    assert len(images) == 4 and set(images) == {f"tensorflow/tensorflow:{tag}"}


NEED = ServiceNeed(5000.0, QuantityRange(1500, 1500, Origin.MEASURED), QuantityRange(20, 24, Origin.MEASURED), 4.0)
ENOUGH = replace(NEED, local_rate=QuantityRange(6000, 6000, Origin.MEASURED))


@pytest.mark.parametrize(("known", "workers"), [(None, 2), (ENOUGH, 2), (replace(NEED, workers=None), 2), (NEED, 24)])
def test_number_of_service_workers_matches_training_demand(known: ServiceNeed | None, workers: int) -> None:
    companions, compose, documents = service_files(photos(30), need=known)
    assert compose["services"]["worker"]["deploy"] == {"replicas": workers}
    deployment = documents[2]["spec"]
    assert deployment["replicas"] == workers
    asked = deployment["template"]["spec"]["containers"][0].get("resources")
    assert asked == ({"requests": {"cpu": "4"}} if workers == 24 else None)
    ast.parse(companions["serve.py"])
    assert ("on 24 machines of 4 cores" in companions["serve.py"]) is (workers == 24)
    assert ("# on every machine that is to help" in companions["serve.py"]) is (workers != 24)


def test_module_states_whether_a_service_helps() -> None:
    def told(need: ServiceNeed | None) -> str:
        return " ".join((ast.get_docstring(ast.parse(emit(photos(14), "service", need=need).text)) or "").split())

    assert "tf.data service helps" not in told(None)
    assert "A tf.data service is not recommended: training consumes at most 5,000 examples/s" in told(ENOUGH)
    assert "20 to 24 workers of 4 cores would deliver what training consumes" in told(NEED)


def test_more_workers_than_files_are_noted_and_requests_cover_all_workers() -> None:
    text = emit(photos(14), "service", need=NEED, batch_bytes=ElementBytes(100 * 10**6, None)).text
    assert "the data has 14 files: no more workers than that" in " ".join(text.split())
    assert "MAX_OUTSTANDING_REQUESTS = 24 " in text
    assert "no more workers than that" not in emit(photos(30), "service", need=NEED).text


# tpu


def test_tpu_batches_drop_the_remainder_with_a_note() -> None:
    made = at_line(parts(files(9), "map parse | batch 4"), "n2", 7)
    written = emit(made, "tpu")
    assert ".batch(batch_size, drop_remainder=not fill)" in dataset_calls(written.text)
    notes = " ".join(written.notes)
    assert "drop_remainder is set at batch at train.py:7" in notes and "element_spec" in notes


def test_every_operator_that_a_tpu_cannot_run_is_named_with_its_line() -> None:
    made = parts(files(9), "map prints | map python | map python | batch 4")
    for line in (1, 2, 3):
        made = at_line(made, f"n{line}", line)
    with pytest.raises(CannotExpress) as refused:
        emit(made, "tpu")
    assert "map at train.py:2 and map at train.py:3 run Python code" in refused.value.message
    assert "map at train.py:1 has effects outside" in refused.value.message
    assert "Say it in TensorFlow operations" in refused.value.hint and "Take them out" in refused.value.hint


@pytest.mark.parametrize(("pattern", "said"), [("/data/train-*", True), ("gs://b/train-*", False)])
def test_local_files_are_noted_for_a_remote_tpu(pattern: str, said: bool) -> None:
    made = emit(parts(SourceText(9, pattern=pattern), "map parse"), "tpu")
    assert any("files are local" in note for note in made.notes) is said


def test_bfloat16_is_offered_only_for_floats() -> None:
    for dtype, offered in (("tf.float32", True), ("tf.uint8", False)):
        made = parts(files(9), "map parse")
        nodes = (replace(node, spec=f"TensorSpec(shape=(3,), dtype={dtype}, name=None)") for node in made.pipeline)
        found = emit(replace(made, pipeline=Pipeline(tuple(nodes))), "tpu")
        told = [note for note in found.notes if "bfloat16" in note]
        assert bool(told) is offered
        assert "bfloat16" not in "".join(dataset_calls(found.text)), "it is offered, never done"
        if told:
            assert "not the labels" in told[0] and "in_bfloat16(dataset_fn(context))" in told[0]
        assert ("def in_bfloat16(dataset)" in found.text) is offered
